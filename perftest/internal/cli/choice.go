package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// restrictions are the environment variables that restrict ucp.
func restrictions(c *ucp.Config) (vars []string) {
	for _, v := range []struct {
		name string
		list config.List
	}{
		{"TLS", c.TLS}, {"NET_DEVICES", c.NetDevices}, {"SHM_DEVICES", c.ShmDevices}, {"SELF_DEVICES", c.SelfDevices},
	} {
		if v.list.Names() != nil {
			vars = append(vars, "GUCX_"+v.name+"="+v.list.String())
		}
	}
	return vars
}

// allowed returns the resources that the environment permits.
func allowed(c ucp.Config, components []uct.Component) (_ []uct.Resource, err error) {
	ctx, err := ucp.NewContext(c, components...)
	if err != nil {
		return nil, err
	}
	return ctx.Resources(), ctx.Close()
}

// chooseTransport selects the transport of the test and its device: from the flags, otherwise from the environment,
// otherwise the default. It remarks on the environment if it has decided, and if it was ignored.
func (j *job) chooseTransport() error {
	s := j.settings
	components := j.config.Components(s.fabric)
	name, dev := s.transport, s.device
	if vars := strings.Join(restrictions(&j.config.UCP), " "); vars != "" {
		list, err := allowed(j.config.UCP, components)
		r, ok := pickResource(list, name, dev)
		switch {
		case ok && name == "":
			j.remark("measuring %s on %s, by %s", r.Transport, r.Device, vars)
		case name != "" || dev != "":
			if !ok {
				j.remark("-x %s overrides %s", cmp.Or(name, defaultTransport), vars)
			}
		default:
			return cmp.Or(err, fmt.Errorf("%s excludes everything", vars))
		}
		name, dev = cmp.Or(name, r.Transport), cmp.Or(dev, r.Device)
	}
	t, err := device.FindTransport(components, cmp.Or(name, defaultTransport), dev)
	j.transport, j.plan.Transport, j.plan.Device = t, t.Resource.Transport, dev
	return err
}

// pickResource returns the resource of list with the transport and device, if they are given: the default transport if
// the list has it, otherwise the first one that reaches other workers.
func pickResource(list []uct.Resource, transport, dev string) (uct.Resource, bool) {
	list = slices.DeleteFunc(slices.Clone(list), func(r uct.Resource) bool {
		base, _, _ := strings.Cut(r.Device, ":")
		return transport != "" && r.Transport != transport || dev != "" && r.Device != dev && base != dev
	})
	rank := func(r uct.Resource) int {
		switch {
		case r.Transport == defaultTransport:
			return 0
		case r.Kind != uct.DeviceSelf:
			return 1
		}
		return 2
	}
	if len(list) == 0 {
		return uct.Resource{}, false
	}
	// The first one of equal resources, as in ucp.
	return slices.MinFunc(list, func(a, b uct.Resource) int { return rank(a) - rank(b) }), true
}

// remark prints a warning that is no error.
func (j *job) remark(format string, args ...any) {
	j.remarks = append(j.remarks, fmt.Sprintf(format, args...))
}
