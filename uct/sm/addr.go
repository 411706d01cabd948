package sm

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/uct"
)

// A device address says on which host the sockets of an iface are, and where:
//
//	 0  u8   version
//	 1  u8   kind of place
//	 2  16B  boot id of the kernel
//	18  u64  inode of the network namespace, or device of the directory
//	26  u64  0, or inode of the directory
//
// Integers are little endian. A directory has one device and inode wherever it is
// mounted.
const (
	addrVersion   = 2
	offKind       = 1
	offBoot       = 2
	offPlace      = 18
	deviceAddrLen = 34

	placeNetNS = 0
	placeDir   = 1
)

// An iface address is the GID of its port.
const ifaceAddrLen = 16

// deviceAddr is the address of ifaces that have their sockets in dir, or abstract
// ones if that is empty.
func deviceAddr(dir string) ([]byte, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	b := make([]byte, deviceAddrLen)
	b[0] = addrVersion
	id, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || len(id) != offPlace-offBoot {
		return nil, fmt.Errorf("%w: boot id %q", uct.ErrUnsupported, text)
	}
	copy(b[offBoot:], id)
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
		binary.LittleEndian.PutUint64(b[offPlace:], st.Ino)
		return b, nil
	}
	b[offKind] = placeDir
	binary.LittleEndian.PutUint64(b[offPlace:], uint64(st.Dev))
	binary.LittleEndian.PutUint64(b[offPlace+8:], st.Ino)
	return b, nil
}

// peerGID checks addresses that may come from a stranger. The iface address may be
// nil, which leaves it out. Errors: ErrInvalidAddr, ErrUnreachable.
func peerGID(own, device, iface []byte) (gid [ifaceAddrLen]byte, err error) {
	if len(device) != deviceAddrLen || device[0] != addrVersion {
		return gid, fmt.Errorf("%w: not a device of sm", uct.ErrInvalidAddr)
	}
	if iface != nil && (len(iface) != ifaceAddrLen || [ifaceAddrLen]byte(iface) == gid) {
		return gid, fmt.Errorf("%w: not an iface of sm", uct.ErrInvalidAddr)
	}
	switch {
	case string(device[offBoot:offPlace]) != string(own[offBoot:offPlace]):
		return gid, fmt.Errorf("%w: another host", uct.ErrUnreachable)
	case device[offKind] != own[offKind]:
		return gid, fmt.Errorf("%w: SOCKET_DIR is set on one side only", uct.ErrUnreachable)
	case string(device[offPlace:]) != string(own[offPlace:]) && own[offKind] == placeDir:
		return gid, fmt.Errorf("%w: SOCKET_DIR is another directory", uct.ErrUnreachable)
	case string(device[offPlace:]) != string(own[offPlace:]):
		return gid, fmt.Errorf("%w: another network namespace; SOCKET_DIR reaches across", uct.ErrUnreachable)
	}
	copy(gid[:], iface)
	return gid, nil
}
