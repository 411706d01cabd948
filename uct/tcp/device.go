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

// sysNet is the directory in which the kernel describes network devices.
const sysNet = "/sys/class/net"

// device is a network device that is up and has an address.
type device struct {
	name     string
	loopback bool
	v4, v6   netip.Addr // the first address of each family; the zero Addr if there is none
	all      []netip.Addr
	mbits    int // link speed in 10^6 bit/s; 0 if the system does not know it
}

// listDevices returns the devices over which peers can be reached, in the order of their indexes.
// It omits bridges without a hardware port, such as docker0, because they lead only to guests of
// this host.
func listDevices() ([]device, error) {
	return filterDevices(func(d *device) bool { return !internalBridge(sysNet, d.name) })
}

// devicesAt returns the device, other than loopback, that has the address; this can be an internal
// bridge. If local is unspecified, it returns all devices of listDevices but loopback.
func devicesAt(local netip.Addr) ([]device, error) {
	local = local.Unmap()
	return filterDevices(func(d *device) bool {
		return !d.loopback && (d.has(local) || local.IsUnspecified() && !internalBridge(sysNet, d.name))
	})
}

// filterDevices returns the usable devices for which match is true, in the order of their indexes.
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

// findDevice returns the named device, which can be an internal bridge.
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

// whyUnusable returns the reason why describe rejects a device.
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

// describe reads the properties of a device. ok is false if the device cannot be used.
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

// addAddr adds an address to the device. Peers use the first one of each family. It ignores
// link-local addresses: they have no meaning for a peer on another link.
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

// has reports whether ip is an address of the device. The kernel may choose any of them as the
// source address for a peer: the one in the network of the peer, or a temporary IPv6 address.
func (d *device) has(ip netip.Addr) bool { return slices.Contains(d.all, ip) }

// linkSpeed reads the speed of a link in 10^6 bit/s; 0 if the system does not know it. For virtual
// devices the kernel returns -1 or an error.
func linkSpeed(sys, name string) int {
	b, err := os.ReadFile(filepath.Join(sys, name, "speed"))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	const fastest = 10_000_000 // 10 Tbit/s; drivers report more for an unknown speed
	if err != nil || n <= 0 || n > fastest {
		return 0
	}
	return n
}

// internalBridge reports whether a device is a bridge of which no port has hardware.
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
