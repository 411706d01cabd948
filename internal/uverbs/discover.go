package uverbs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Paths in sysfs and in /dev.
const (
	verbsClass = "class/infiniband_verbs"
	ibClass    = "class/infiniband"
	deviceDir  = "/dev/infiniband"
)

// classABI is the supported version of the ABI, IB_USER_VERBS_ABI_VERSION.
const classABI = 6

// Info is a device that the kernel lists.
type Info struct {
	Name   string // name in the kernel: "rxe0", "mlx5_0"
	Path   string // path of the device file: "/dev/infiniband/uverbs0"
	Driver Driver // DriverUnknown if sysfs does not show it
	ABI    int    // version of the driver's ABI
	NetDev string // network interface of a device with a parent; may be empty
}

// List returns the devices of k, sorted by name. The list is empty if the kernel has no RDMA. List skips entries that it
// cannot read, because a device may be removed at any time.
func List(k Kernel) ([]Info, error) {
	sys := k.Sys()
	entries, err := fs.ReadDir(sys, verbsClass)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list RDMA devices: %w", err)
	}
	if abi, err := readNumber(sys, path.Join(verbsClass, "abi_version")); err == nil && abi != classABI {
		return nil, fmt.Errorf("list RDMA devices: the kernel has version %d of the verbs ABI, want %d: %w", abi, classABI, errors.ErrUnsupported)
	}
	var list []Info
	for _, e := range entries {
		if info, ok := describe(sys, e.Name()); ok {
			list = append(list, info)
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// describe reads an entry of the class. It returns false if the entry is not a device.
func describe(sys fs.FS, node string) (Info, bool) {
	if n, ok := strings.CutPrefix(node, "uverbs"); !ok || !isNumber(n) {
		return Info{}, false
	}
	name, err := readLine(sys, path.Join(verbsClass, node, "ibdev"))
	if err != nil || !validName(name) {
		return Info{}, false
	}
	abi, err := readNumber(sys, path.Join(verbsClass, node, "abi_version"))
	if err != nil {
		return Info{}, false
	}
	info := Info{Name: name, Path: path.Join(deviceDir, node), ABI: abi}
	info.NetDev, _ = readLine(sys, path.Join(ibClass, name, "parent"))
	info.Driver = driverOf(sys, name, info.NetDev)
	return info, true
}

// pciMellanox is the prefix of the modalias of a PCI function of Mellanox or NVIDIA.
const pciMellanox = "pci:v000015B3"

// driverOf returns the driver of a device. It assumes rxe if the device has a network interface as parent and no bus
// device; Open fails if the assumption is wrong.
func driverOf(sys fs.FS, name, parent string) Driver {
	modalias, err := readLine(sys, path.Join(ibClass, name, "device/modalias"))
	switch {
	case err == nil && strings.HasPrefix(modalias, pciMellanox) && strings.HasPrefix(name, "mlx5"):
		return DriverMLX5
	case err != nil && parent != "":
		return DriverRXE
	}
	return DriverUnknown
}

// validName reports whether a name from the kernel is valid as a file name and in "name:port".
func validName(name string) bool {
	return name != "" && len(name) < 64 && !strings.ContainsAny(name, "/: \t\n\x00") && name != "." && name != ".."
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 31)
	return err == nil
}

// maxLine is the maximum number of bytes read from a file of sysfs, which has at most one page.
const maxLine = 4096

// readLine returns the content of a file without the newline.
func readLine(sys fs.FS, name string) (string, error) {
	f, err := sys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, maxLine)
	n, err := f.Read(b)
	if n == 0 && err != nil {
		return "", err
	}
	return strings.TrimRight(string(b[:n]), "\n"), nil
}

func readNumber(sys fs.FS, name string) (int, error) {
	s, err := readLine(sys, name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(s)
}
