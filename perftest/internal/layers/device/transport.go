package device

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gucx/gucx/uct"
)

// Source creates the components, with the verbs devices of a fabric.
type Source func(fabric string) []uct.Component

// Transport is a transport of a device.
type Transport struct {
	uct.Resource
	Component uct.Component
	MD        string
}

// OverVerbs reports whether the transport uses a verbs device.
func (t *Transport) OverVerbs() bool { return t.Component.Name() == "ib" }

// Caps opens an interface of the transport and returns its capabilities.
func (t *Transport) Caps() (caps uct.Caps, err error) {
	md, err := t.Component.OpenMD(t.MD)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, md.Close()) }()
	iface, err := md.OpenIface(uct.IfaceParams{Transport: t.Resource.Transport, Device: t.Device})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, iface.Close()) }()
	return iface.Attr().Caps, nil
}

// Transports returns the transports of components. With an error of one component it still returns those of the others.
func Transports(components []uct.Component) (list []Transport, err error) {
	var failures []error
	for _, c := range components {
		mds, err := c.MDs()
		failures = append(failures, err)
		for _, m := range mds {
			resources, err := resources(c, m.Name)
			failures = append(failures, err)
			for _, r := range resources {
				list = append(list, Transport{Resource: r, Component: c, MD: m.Name})
			}
		}
	}
	return list, errors.Join(failures...)
}

func resources(c uct.Component, name string) (_ []uct.Resource, err error) {
	md, err := c.OpenMD(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, md.Close()) }()
	return md.Resources()
}

// FindTransport returns the transport with that name on a device, which may be given with or without port; "" selects
// the first device. The error lists the transports that exist.
func FindTransport(components []uct.Component, name, device string) (Transport, error) {
	list, failed := Transports(components)
	var names, devices []string
	for _, t := range list {
		base, _, _ := strings.Cut(t.Device, ":")
		switch {
		case t.Resource.Transport != name:
		case device == "" || device == t.Device || device == base:
			return t, nil
		default:
			devices = append(devices, t.Device)
		}
		names = append(names, t.Resource.Transport)
	}
	if why := whyNot(components, name, device); why != nil {
		return Transport{}, fmt.Errorf("no transport %q on device %q: %w", name, device, why)
	}
	if len(devices) > 0 {
		return Transport{}, fmt.Errorf("no device %q with transport %s; there is %s", device, name, strings.Join(devices, ", "))
	}
	slices.Sort(names)
	err := fmt.Errorf("no transport %q; there is %s", name, strings.Join(slices.Compact(names), ", "))
	if failed != nil {
		err = fmt.Errorf("%w (%w)", err, failed)
	}
	return Transport{}, err
}

// whyNot returns the reason why a device that exists does not have the transport: its error, for example that its port
// is down. nil if the device does not exist.
func whyNot(components []uct.Component, name, device string) error {
	base, _, hasPort := strings.Cut(device, ":")
	if !hasPort {
		device = base + ":1"
	}
	for _, c := range components {
		mds, _ := c.MDs() // FindTransport reports the error
		if !slices.ContainsFunc(mds, func(m uct.MDResource) bool { return m.Name == base }) {
			continue
		}
		md, err := c.OpenMD(base)
		if err != nil {
			return err
		}
		iface, err := md.OpenIface(uct.IfaceParams{Transport: name, Device: device})
		if err == nil {
			err = iface.Close()
		}
		return errors.Join(err, md.Close())
	}
	return nil
}
