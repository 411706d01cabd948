package tcp

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gucx/gucx/uct"
)

// sysNet is where the kernel describes network devices.
const sysNet = "/sys/class/net"

// device is a network device that is up and has an address.
type device struct {
	name     string
	loopback bool
	v4, v6   netip.Addr // the zero Addr where it has none
	all      []netip.Addr
	mbits    int // link speed in 10^6 bit/s; 0 if the system does not say
}

// listDevices returns the devices that peers may be reached by, in the order of
// their numbers. A bridge without hardware behind it, such as docker0, leads only
// to guests of this host and is not among them.
func listDevices() ([]device, error) {
	return filterDevices(func(d *device) bool { return !internalBridge(sysNet, d.name) })
}

// devicesAt returns the device, other than loopback, that has an address, which may be an inside
// bridge; of an unspecified address, all but loopback that listDevices returns.
func devicesAt(local netip.Addr) ([]device, error) {
	local = local.Unmap()
	return filterDevices(func(d *device) bool {
		return !d.loopback && (d.has(local) || local.IsUnspecified() && !internalBridge(sysNet, d.name))
	})
}

// devicesThat returns the usable devices that take accepts, in the order of their numbers.
func filterDevices(match func(*device) bool) (out []device, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for i := range links {
		if d, ok := describe(&links[i], sysNet); ok && match(&d) {
			out = append(out, d)
		}
	}
	return out, nil
}

// findDevice returns the named device, which may be an inside bridge.
func findDevice(name string) (device, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return device{}, fmt.Errorf("%w: device %q: %w", uct.ErrInvalidParam, name, err)
	}
	d, ok := describe(link, sysNet)
	if !ok {
		addrs, _ := link.Addrs() // the error: it has none
		return d, fmt.Errorf("%w: device %q %s", uct.ErrInvalidParam, name, whyUnusable(link.Flags, addrs))
	}
	return d, nil
}

// whyUnusable says why describe refuses a device.
func whyUnusable(flags net.Flags, addrs []net.Addr) string {
	switch {
	case flags&net.FlagUp == 0:
		return "is down"
	case flags&net.FlagRunning == 0:
		return "is up, but has no link"
	case len(addrs) == 0:
		return "has no address"
	}
	return "has only link-local addresses, which mean nothing to a peer on another link: give it an address"
}

// describe reads what is needed of a device; ok is false if it cannot be used.
func describe(link *net.Interface, sys string) (d device, ok bool) {
	const want = net.FlagUp | net.FlagRunning
	if link.Flags&want != want {
		return d, false
	}
	addrs, err := link.Addrs()
	if err != nil {
		return d, false
	}
	d = device{name: link.Name, loopback: link.Flags&net.FlagLoopback != 0, mbits: linkSpeed(sys, link.Name)}
	for _, a := range addrs {
		d.addAddr(a)
	}
	return d, d.v4.IsValid() || d.v6.IsValid()
}

// take notes an address, and of each family the first as the one to be reached by. Link-local
// ones mean nothing to a peer that does not know the link.
func (d *device) addAddr(a net.Addr) {
	n, ok := a.(*net.IPNet)
	if !ok {
		return
	}
	ip, ok := netip.AddrFromSlice(n.IP)
	ip = ip.Unmap()
	if !ok || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
		return
	}
	d.all = append(d.all, ip)
	switch {
	case ip.Is4() && !d.v4.IsValid():
		d.v4 = ip
	case ip.Is6() && !d.v6.IsValid():
		d.v6 = ip
	}
}

// has reports whether ip is an address of the device. The kernel may choose any of them for the
// way to a peer: that of the peer's network, or a temporary one of IPv6.
func (d *device) has(ip netip.Addr) bool { return slices.Contains(d.all, ip) }

// linkSpeed reads the speed of a link in 10^6 bit/s; 0 if the system does not
// know it: virtual devices say -1 or refuse to say.
func linkSpeed(sys, name string) int {
	b, err := os.ReadFile(filepath.Join(sys, name, "speed"))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	const fastest = 10_000_000 // 10 Tbit/s: more is a driver's idea of unknown
	if err != nil || n <= 0 || n > fastest {
		return 0
	}
	return n
}

// insideBridge reports whether a device is a bridge none of whose ports has
// hardware behind it.
func internalBridge(sys, name string) bool {
	if _, err := os.Stat(filepath.Join(sys, name, "bridge")); err != nil {
		return false
	}
	ports, _ := filepath.Glob(filepath.Join(sys, name, "brif", "*"))
	for _, p := range ports {
		if _, err := os.Stat(filepath.Join(sys, filepath.Base(p), "device")); err == nil {
			return false
		}
	}
	return true
}
