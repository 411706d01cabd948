package sm

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/uct"
)

// A device address identifies the host and the location of the sockets of an iface:
//
//	0  u8   version in the upper 4 bits, type of location in the lower 4
//	1  8B   first half of the boot id of the kernel, which is random; 0 if unknown
//	9  u64  inode of the network namespace, or FNV-1a of device and inode of the directory
//
// Integers are little endian. A directory has one device and inode wherever it is
// mounted.
const (
	addrVersion   = 3
	offBoot       = 1
	offPlace      = 9
	deviceAddrLen = 17

	placeNetNS = addrVersion << 4
	placeDir   = addrVersion<<4 | 1
)

// portGID identifies the port of an iface. An iface address is its first half; the
// second half is zero.
type portGID [16]byte

const ifaceAddrLen = 8

// bootIDFile contains the boot id of the kernel.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// bootID reads the first half of a boot id from a file. It is 0 if a sandbox hides the file. Peers with 0
// on different hosts then dial, and find no socket.
func bootID(file string) (half [offPlace - offBoot]byte, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return half, nil
	}
	id, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || len(id) < len(half) {
		return half, fmt.Errorf("%w: boot id %q", uct.ErrUnsupported, text)
	}
	return [offPlace - offBoot]byte(id), nil
}

// deviceAddr returns the device address of ifaces with sockets in dir, or with abstract
// sockets if dir is empty.
func deviceAddr(dir string) ([]byte, error) {
	boot, err := bootID(bootIDFile)
	if err != nil {
		return nil, err
	}
	b := make([]byte, deviceAddrLen)
	copy(b[offBoot:offPlace], boot[:])
	path := "/proc/self/ns/net"
	if dir != "" {
		path = dir
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		err = &os.PathError{Op: "stat", Path: path, Err: err}
		if dir != "" {
			err = fmt.Errorf("%w: SOCKET_DIR: %w", uct.ErrInvalidParam, err)
		}
		return nil, err
	}
	if dir == "" {
		b[0] = placeNetNS
		binary.LittleEndian.PutUint64(b[offPlace:], st.Ino)
		return b, nil
	}
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, [2]uint64{uint64(st.Dev), st.Ino}) // does not fail
	b[0] = placeDir
	binary.LittleEndian.PutUint64(b[offPlace:], h.Sum64())
	return b, nil
}

// peerGID checks the addresses of a possibly untrusted peer and returns its portGID. iface may be
// nil; then it is not checked. Errors: ErrInvalidAddr, ErrUnreachable.
func peerGID(own, device, iface []byte) (gid portGID, err error) {
	if len(device) != deviceAddrLen || device[0]>>4 != addrVersion {
		return gid, fmt.Errorf("%w: not a device of sm", uct.ErrInvalidAddr)
	}
	if iface != nil && (len(iface) != ifaceAddrLen || [ifaceAddrLen]byte(iface) == [ifaceAddrLen]byte{}) {
		return gid, fmt.Errorf("%w: not an iface of sm", uct.ErrInvalidAddr)
	}
	switch {
	case string(device[offBoot:offPlace]) != string(own[offBoot:offPlace]):
		return gid, fmt.Errorf("%w: another host", uct.ErrUnreachable)
	case device[0] != own[0]:
		return gid, fmt.Errorf("%w: SOCKET_DIR is set on one side only", uct.ErrUnreachable)
	case string(device[offPlace:]) != string(own[offPlace:]) && own[0] == placeDir:
		return gid, fmt.Errorf("%w: SOCKET_DIR is another directory", uct.ErrUnreachable)
	case string(device[offPlace:]) != string(own[offPlace:]):
		return gid, fmt.Errorf("%w: another network namespace; SOCKET_DIR reaches across", uct.ErrUnreachable)
	}
	copy(gid[:], iface)
	return gid, nil
}
