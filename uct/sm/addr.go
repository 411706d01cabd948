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

// A device address says on which host and in which network namespace the abstract
// sockets of a process are:
//
//	 0  u8   version
//	 1  16B  boot id of the kernel
//	17  u64  inode of the network namespace, little endian
const (
	addrVersion   = 1
	offBoot       = 1
	offNetNS      = 17
	deviceAddrLen = 25
)

// An iface address is the GID of its port.
const ifaceAddrLen = 16

// deviceAddr is the address of this process's device.
func deviceAddr() ([]byte, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	b := make([]byte, deviceAddrLen)
	b[0] = addrVersion
	id, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || len(id) != offNetNS-offBoot {
		return nil, fmt.Errorf("%w: boot id %q", uct.ErrUnsupported, text)
	}
	copy(b[offBoot:], id)
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: "/proc/self/ns/net", Err: err}
	}
	binary.LittleEndian.PutUint64(b[offNetNS:], st.Ino)
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
	case string(device[offBoot:offNetNS]) != string(own[offBoot:offNetNS]):
		return gid, fmt.Errorf("%w: another host", uct.ErrUnreachable)
	case string(device[offNetNS:]) != string(own[offNetNS:]):
		return gid, fmt.Errorf("%w: another network namespace", uct.ErrUnreachable)
	}
	copy(gid[:], iface)
	return gid, nil
}
