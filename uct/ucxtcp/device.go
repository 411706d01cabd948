package ucxtcp

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/gucx/gucx/uct"
)

// device is a network device that is up, with the address at which peers reach it.
type device struct {
	name     string
	loopback bool
	ip       netip.Addr
	network  netip.Prefix // network of ip: its hosts are reached without a router
	mtu      int          // in bytes
}

// segment returns the maximum number of bytes of a stream in one packet of the device (the MSS) as
// the kernel computes it: without the IP header and the TCP header with timestamps.
func (d *device) segment() int {
	const maxIP, ip4, ip6, tcp = 65535, 20, 40, 20 + 12
	n := min(d.mtu, maxIP) - tcp
	if d.ip.Is6() {
		return n - ip6
	}
	return n - ip4
}

// listDevices returns the usable devices in the order of their indexes.
func listDevices(family string) (out []device, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for i := range links {
		if d := describe(&links[i], family); d.ip.IsValid() {
			out = append(out, d)
		}
	}
	return out, nil
}

// findDevice returns the named device. ErrInvalidParam if it cannot be used.
func findDevice(name, family string) (device, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return device{}, fmt.Errorf("%w: device %q: %w", uct.ErrInvalidParam, name, err)
	}
	d := describe(link, family)
	if !d.ip.IsValid() {
		return d, fmt.Errorf("%w: device %q is down or has no address of family %s that peers on another link can use",
			uct.ErrInvalidParam, name, family)
	}
	return d, nil
}

// describe returns the properties of a device. If it cannot be used, ip is the zero Addr; else ip
// is its first address of the family, or its first address. Link-local addresses are ignored,
// because they have no meaning for a peer on another link. A loopback device has a loopback
// address.
func describe(link *net.Interface, family string) device {
	const want = net.FlagUp | net.FlagRunning
	d := device{name: link.Name, loopback: link.Flags&net.FlagLoopback != 0, mtu: link.MTU}
	if link.Flags&want != want {
		return d
	}
	addrs, err := link.Addrs()
	if err != nil {
		return d
	}
	d.choose(addrs, family)
	return d
}

// choose sets the address of the device, if one of addrs can be used.
func (d *device) choose(addrs []net.Addr, family string) {
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		if ip = ip.Unmap(); !ok || ip.IsLinkLocalUnicast() || ip.IsMulticast() || d.loopback && !ip.IsLoopback() {
			continue
		}
		wanted := ip.Is6() == (family == familyName6)
		if wanted || !d.ip.IsValid() {
			bits, _ := n.Mask.Size()
			d.ip = ip
			d.network, _ = ip.Prefix(bits) // the zero Prefix for an invalid mask
		}
		if wanted {
			return
		}
	}
}
