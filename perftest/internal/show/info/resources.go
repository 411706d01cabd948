package info

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/studies/endpoints"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// resourceThreads are the numbers of threads for which categories are counted: those of the study.
const resourceThreads = 16

// resources prints the resources of verbs objects on the devices of a fabric.
func (p *printer) resources(fabric string) error {
	devs, err := device.List(fabric)
	if err != nil {
		return err
	}
	for _, d := range devs {
		if ok, err := countsResources(d); err != nil || !ok {
			p.line("#\n# Resources of verbs device: %s\n#   not counted", d.Name())
			continue
		}
		if err := p.deviceResources(d); err != nil {
			return err
		}
	}
	return nil
}

// countsResources reports whether the device counts what it allocates.
func countsResources(d *verbs.Device) (ok bool, err error) {
	ctx, err := d.Open()
	if err != nil {
		return false, err
	}
	_, ok = ctx.Resources()
	return ok, ctx.Close()
}

func (p *printer) deviceResources(d *verbs.Device) error {
	b, err := endpoints.ObjectSizes(d)
	if err != nil {
		return err
	}
	p.line("#\n# Resources of verbs device: %s", d.Name())
	for _, o := range []struct {
		name  string
		bytes int64
	}{
		{"context", b.Contexts}, {"PD", b.PDs}, {"MR", b.MRs}, {"thread domain", b.TDs},
		{"QP, depth 64", b.QPs}, {"CQ, depth 64", b.CQs}, {"UAR page", b.UARs},
		{"reserved by a context", b.Reserved},
	} {
		p.line("#   %22s: %d bytes", o.name, o.bytes)
	}
	p.item("uUARs on a UAR page", prm.UUARsPerPage)
	study := endpoints.Study{Categories: endpoint.Categories(), Threads: []int{resourceThreads}}
	rows, err := study.Resources(d)
	if err != nil {
		return err
	}
	p.line("#\n# Endpoints for %d threads on %s, by category", resourceThreads, d.Name())
	s := endpoints.Sheet(nil, nil, rows, false)
	s.Alone = true
	return s.Write(p.w, "table")
}
