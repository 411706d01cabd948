// Package info prints devices, transports, limits and configuration, as ucx_info does.
package info

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/measure/machine"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/interop"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ucxtcp"
)

// Query selects what to print. The zero value selects version and devices.
type Query struct {
	Version, System, Devices, Config bool
	// Protocols prints the lanes and protocols of an endpoint to a process of this host.
	Protocols bool
	// Full prints the configuration with its documentation.
	Full bool
	// Resources prints the resources of verbs objects of each device.
	Resources bool
	// Transport restricts devices to one transport and the devices below it; empty means all.
	Transport string
	Fabric    string
}

// Write prints what q selects. It opens the devices temporarily.
func Write(ctx context.Context, w io.Writer, cfg layers.Config, q Query) error {
	if !q.Version && !q.System && !q.Devices && !q.Config && !q.Full && !q.Resources && !q.Protocols {
		q.Version, q.Devices = true, true
	}
	out := bufio.NewWriter(w)
	p := &printer{w: out}
	if q.Version {
		p.line("# gucx %s, commit %s", ucp.Version, machine.Commit(ctx))
	}
	if q.System {
		p.system()
	}
	if q.Devices {
		if err := p.devices(ctx, cfg, q); err != nil {
			return err
		}
	}
	if q.Protocols {
		if err := p.protocols(cfg, q); err != nil {
			return err
		}
	}
	if q.Resources {
		if err := p.resources(q.Fabric); err != nil {
			return err
		}
		if err := p.connections(cfg, q.Fabric); err != nil {
			return err
		}
	}
	if q.Config || q.Full {
		if err := config.Print(out, config.PrintOptions{Docs: q.Full}, cfg.Tables()...); err != nil {
			return err
		}
	}
	return out.Flush()
}

// printer writes lines. Flush returns the error of the writer.
type printer struct{ w io.Writer }

func (p *printer) line(format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}

// nameWidth is the width of the text before a value on its line.
const nameWidth = 28

// item writes a name and a value in columns; a long value takes several lines.
func (p *printer) item(name string, value any) {
	text := sheet.Wrap(fmt.Sprint(value), sheet.Width(p.w)-nameWidth)
	for i, line := range strings.Split(text, "\n") {
		if i == 0 {
			p.line("#   %22s: %s", name, line)
		} else {
			p.line("#   %22s  %s", "", line)
		}
	}
}

func (p *printer) system() {
	m := machine.Describe()
	p.line("#\n# System")
	p.item("cpu", m.CPU)
	p.item("cores", m.Cores)
	p.item("kernel", m.Kernel)
	p.item("go", m.Go+" "+m.Arch)
	p.item("gomaxprocs", m.GOMAXPROCS)
	p.item("gogc", m.GOGC)
}

// protocols prints the explanation of an endpoint.
func (p *printer) protocols(cfg layers.Config, q Query) error {
	text, err := cfg.Explain(q.Fabric, q.Transport)
	if err != nil {
		return err
	}
	p.line("#\n# Endpoint between two processes of this host")
	for line := range strings.Lines(text) {
		p.line("#   %s", strings.TrimSuffix(line, "\n"))
	}
	return nil
}

func (p *printer) devices(ctx context.Context, cfg layers.Config, q Query) error {
	components := cfg.Components(q.Fabric)
	devs, err := device.List(q.Fabric)
	if err != nil {
		return err
	}
	if q.Transport == "" { // including that of package ucxpeer, which contexts of ucp do not use
		components = append(components, ucxtcp.New(ucxtcp.Config{}))
	} else {
		t, err := device.FindTransport(components, q.Transport, "")
		if err != nil {
			return err
		}
		if components = []uct.Component{t.Component}; !t.OverVerbs() {
			devs = nil
		}
	}
	for _, d := range devs {
		if err := p.device(d); err != nil {
			return err
		}
	}
	for _, c := range components {
		if err := p.component(c, q.Transport); err != nil {
			return err
		}
	}
	if q.Transport == "" {
		p.ucx(ctx)
	}
	return nil
}

// ucx prints whether perftest can measure with processes that use UCX.
func (p *printer) ucx(ctx context.Context) {
	p.line("#\n# UCX")
	text := "perftest --peer ucx builds a program and measures with it"
	if why := interop.Lacking(ctx); why != "" {
		text = "perftest --peer ucx is skipped: " + why
	}
	p.item("peer", text)
}

// device prints the limits of a verbs device, or the error of opening it.
func (p *printer) device(d *verbs.Device) (err error) {
	ctx, err := d.Open()
	if err != nil {
		p.line("#\n# Verbs device: %s\n#   not usable: %v", d.Name(), err)
		return nil
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	a := ctx.QueryDevice()
	p.line("#\n# Verbs device: %s", d.Name())
	p.item("firmware", a.FWVer)
	p.item("max qp / wr / sge", fmt.Sprintf("%d / %d / %d", a.MaxQP, a.MaxQPWR, a.MaxSGE))
	p.item("max cq / cqe", fmt.Sprintf("%d / %d", a.MaxCQ, a.MaxCQE))
	p.item("max srq / wr", fmt.Sprintf("%d / %d", a.MaxSRQ, a.MaxSRQWR))
	p.item("max mr / bytes", fmt.Sprintf("%d / %s", a.MaxMR, size(a.MaxMRSize)))
	p.item("max inline", size(uint64(a.MaxInline)))
	p.item("max message", size(uint64(a.MaxMsgSize)))
	p.item("reads in flight", fmt.Sprintf("%d out, %d in", a.MaxInitRD, a.MaxRDAtomic))
	for n := uint8(1); n <= a.PhysPorts; n++ {
		port, err := ctx.QueryPort(n)
		if err != nil {
			return err
		}
		p.item(fmt.Sprintf("port %d", n), fmt.Sprintf("state %d, mtu %d, %g Gb/s", port.State, port.ActiveMTU.Bytes(), port.SpeedGbps))
		if err := p.gids(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// gids prints the GID table of a port, and marks the default source GID.
func (p *printer) gids(ctx *verbs.Context, port uint8) error {
	list, err := ctx.GIDs(port)
	if err != nil {
		return err
	}
	chosen, ok := verbs.ChooseGID(list)
	for _, e := range list {
		note := ""
		if ok && e == chosen {
			note = ", default"
		}
		p.item(fmt.Sprintf("gid %d", e.Index), fmt.Sprintf("%v, %v%s", e.GID, e.Type, note))
	}
	return nil
}

func (p *printer) component(c uct.Component, transport string) error {
	mds, err := c.MDs()
	if err != nil {
		return err
	}
	for _, m := range mds {
		if err := p.domain(c, m.Name, transport); err != nil {
			return err
		}
	}
	return nil
}

// domain prints a memory domain and its transports.
func (p *printer) domain(c uct.Component, name, transport string) (err error) {
	md, err := c.OpenMD(name)
	if err != nil {
		p.line("#\n# Memory domain: %s\n#   not usable: %v", name, err)
		return nil
	}
	defer func() { err = errors.Join(err, md.Close()) }()
	a := md.Attr()
	p.line("#\n# Memory domain: %s", a.Name)
	p.item("component", a.Component)
	p.item("register", upTo(a.MaxReg))
	p.item("remote key", fmt.Sprintf("%d bytes", a.RKeyLen))
	p.item("cost of registering", "declared: "+cost(a.RegCost))
	p.item("local memory handle", yesNo(a.NeedMemH, "required for zcopy", "not needed"))
	if _, is := md.(*ib.MD); is {
		p.item("endpoints", ib.EndpointsAuto.Grammar())
	}
	resources, err := md.Resources()
	if err != nil {
		return err
	}
	for _, r := range resources {
		if transport != "" && r.Transport != transport {
			continue
		}
		if err := p.transport(md, r); err != nil {
			return err
		}
	}
	return nil
}

// transport opens an iface and prints its attributes, or the error of opening it.
func (p *printer) transport(md uct.MD, r uct.Resource) (err error) {
	p.line("#\n#   Transport: %s", r.Transport)
	p.item("device", r.Device)
	iface, err := md.OpenIface(uct.IfaceParams{Transport: r.Transport, Device: r.Device})
	if err != nil {
		p.line("#   not usable: %v", err)
		return nil
	}
	defer func() { err = errors.Join(err, iface.Close()) }()
	a := iface.Attr()
	p.item("type", r.Kind)
	p.costs(a, iface.Ext().Measure)
	p.class("put", a.Put, a.Caps, uct.CapPutShort, uct.CapPutBcopy, uct.CapPutZcopy)
	p.class("get", a.Get, a.Caps, uct.CapGetShort, uct.CapGetBcopy, uct.CapGetZcopy)
	p.class("am", a.AM, a.Caps, uct.CapAMShort, uct.CapAMBcopy, uct.CapAMZcopy)
	p.atomics(a)
	p.queues(a)
	p.item("connection", connection(a.Caps))
	p.item("address lengths", fmt.Sprintf("device %d, iface %d, ep %d", a.DeviceAddrLen, a.IfaceAddrLen, a.EPAddrLen))
	p.item("capabilities", strings.ReplaceAll(a.Caps.String(), "|", " "))
	if e := iface.Ext().Explain; e != nil {
		p.item("by the system", e.Explain())
	}
	return nil
}

// costs prints the cost of each supported variant: as declared, and as measured on this machine if
// that differs.
func (p *printer) costs(a *uct.IfaceAttr, measure uct.Measurer) {
	p.item("priority", a.Priority)
	here, m := "", uct.Measured{Costs: a.Costs}
	if measure != nil {
		here, m = "measured", measure.Measure()
	}
	if m.Assumed {
		here = "assumed"
	}
	for v := range uct.Variant(uct.NumVariants) {
		if !v.Claimed(a) {
			continue
		}
		text := "declared: " + cost(a.Costs[v])
		if m.Costs[v] != a.Costs[v] {
			text += "; " + here + ": " + cost(m.Costs[v])
		}
		p.item("cost of "+v.String(), text)
	}
	if m.RegReach != (uct.Cost{}) {
		p.item("reaching other memory", here+": "+cost(m.RegReach))
	}
}

// cost formats a cost in one line.
func cost(c uct.Cost) string {
	text := fmt.Sprintf("send %v, receive %v, latency %v", c.Send, c.Recv, c.Latency)
	if c.Bandwidth > 0 {
		text += fmt.Sprintf(", %.2f MB/s", float64(c.Bandwidth)/1e6)
	}
	if c.SharedBandwidth > 0 {
		text += fmt.Sprintf(" (%.2f shared)", float64(c.SharedBandwidth)/1e6)
	}
	return text
}

// queues prints the limits of receive queues, if there are any.
func (p *printer) queues(a *uct.IfaceAttr) {
	if q := &a.Queue; a.Caps.Has(uct.CapQueue) {
		p.item("queues", fmt.Sprintf("%d, of up to %d receives of up to %d pieces", q.MaxQueues, q.MaxDepth, q.MaxRecvIOV))
		p.item("queue_zcopy", fmt.Sprintf("<= %s, up to %d pieces, over %d connections", size(uint64(q.MaxMessage)), q.MaxIOV, q.MaxConns))
	}
}

// class prints the limits of the supported variants.
func (p *printer) class(name string, l uct.OpLimits, have, short, bcopy, zcopy uct.Caps) {
	if have.Has(short) {
		p.item(name+"_short", "<= "+size(uint64(l.MaxShort)))
	}
	if have.Has(bcopy) {
		p.item(name+"_bcopy", "<= "+size(uint64(l.MaxBcopy)))
	}
	if have.Has(zcopy) {
		p.item(name+"_zcopy", fmt.Sprintf("%d..%s, up to %d pieces", l.MinZcopy, size(uint64(l.MaxZcopy)), l.MaxIOV))
	}
}

func (p *printer) atomics(a *uct.IfaceAttr) {
	if a.Caps&uct.CapAtomic == 0 {
		return
	}
	p.item("atomic domain", a.Atomic.Domain)
	for _, x := range []struct {
		name string
		ops  uct.AtomicOps
	}{
		{"atomic post 32", a.Atomic.Post32}, {"atomic post 64", a.Atomic.Post64},
		{"atomic fetch 32", a.Atomic.Fetch32}, {"atomic fetch 64", a.Atomic.Fetch64},
	} {
		if x.ops != 0 {
			p.item(x.name, x.ops)
		}
	}
}

func connection(c uct.Caps) string {
	switch {
	case c.Has(uct.CapConnectEP | uct.CapConnectIface):
		return "to ep, to iface"
	case c.Has(uct.CapConnectEP):
		return "to ep"
	case c.Has(uct.CapConnectIface):
		return "to iface"
	}
	return "none"
}

// size formats a number of bytes as the configuration does.
func size(n uint64) string { return config.MemSize(n).String() }

func upTo(n uint64) string {
	if n == 0 {
		return "none"
	}
	if n >= math.MaxInt64 { // no slice is longer
		return "any length"
	}
	return "up to " + size(n)
}

func yesNo(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}
