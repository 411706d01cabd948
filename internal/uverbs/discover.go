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

// Places in sysfs and in /dev.
const (
	verbsClass = "class/infiniband_verbs"
	ibClass    = "class/infiniband"
	deviceDir  = "/dev/infiniband"
)

// classABI is the version of the ABI that this package knows, by IB_USER_VERBS_ABI_VERSION.
const classABI = 6

// Info is a device that the kernel lists.
type Info struct {
	Name   string // the kernel's: "rxe0", "mlx5_0"
	Path   string // of its device file: "/dev/infiniband/uverbs0"
	Driver Driver // DriverUnknown if sysfs does not tell
	ABI    int    // version of the driver's ABI
	NetDev string // the network interface under a device that has a parent; may be empty
}

// List returns the devices of k, by name. Where the kernel has no RDMA the list is empty. An entry that
// cannot be read is left out: a device may be removed at any time.
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

// describe reads an entry of the class; false if it is no device.
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

// pciMellanox is how the modalias of a PCI function of Mellanox or NVIDIA begins.
const pciMellanox = "pci:v000015B3"

// driverOf finds the driver. rxe is the one that has a network interface as parent and no bus device; Open finds
// out whether that is so.
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

// validName reports whether a name from the kernel can be the name of a file, and a part of "name:port".
func validName(name string) bool {
	return name != "" && len(name) < 64 && !strings.ContainsAny(name, "/: \t\n\x00") && name != "." && name != ".."
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 31)
	return err == nil
}

// maxLine bounds what is read from a file of sysfs, which has at most a page.
const maxLine = 4096

// readLine returns the text of a file without the line end.
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
