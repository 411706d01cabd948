package info

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/xrc"
)

// connected describes the resources of a node when each of its interfaces is connected with each
// interface of another node.
type connected struct {
	Transport string
	Ifaces    int
	EPs       int
	verbs.Resources
}

// connectedIfaces are the numbers of interfaces per node.
var connectedIfaces = []int{1, 2, 4, 8}

// kind is a transport with its configuration.
type kind struct {
	label, transport string
	cfg              layers.Config
}

// kinds are the compared transports.
func kinds(cfg layers.Config) []kind {
	cfg.UCT.XRC.ShareDomain = xrc.ShareNothing
	shared := cfg
	shared.UCT.XRC.ShareDomain = xrc.ShareProcess
	return []kind{{"rc", "rc", cfg}, {"xrc", "xrc", cfg}, {"xrc, shared domain", "xrc", shared}}
}

const connectionsLegend = "Counted from the contexts of one node when each endpoint (EP) has sent a message; an interface (iface) " +
	"stands for a process. Targets are those of the QPs that have no queues."

// connections prints the resources of connections between the interfaces of two nodes.
func (p *printer) connections(cfg layers.Config, fabric string) error {
	var rows []connected
	for _, k := range kinds(cfg) {
		for _, n := range connectedIfaces {
			r, err := k.count(fabric, n)
			if errors.Is(err, uct.ErrUnreachable) {
				p.line("#\n# Connections of two nodes: contexts do not reach each other on this fabric")
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s, %d interfaces: %w", k.label, n, err)
			}
			rows = append(rows, r)
		}
	}
	p.line("#\n# Connections of two nodes, each interface with each of the other node")
	return connectedSheet(rows).Write(p.w, "table")
}

// connectedSheet returns the rows to write.
func connectedSheet(rows []connected) *sheet.Sheet[connected] {
	return &sheet.Sheet[connected]{Legend: connectionsLegend, Columns: connectedColumns, Rows: rows, Alone: true,
		Group: func(r connected) string { return r.Transport }}
}

var connectedColumns = []sheet.Column[connected]{
	{Title: "Transport", Value: func(r connected) any { return r.Transport }},
	{Title: "Ifaces", Value: func(r connected) any { return r.Ifaces }},
	{Title: "EPs", Value: func(r connected) any { return r.EPs }},
	{Title: "QPs", Value: func(r connected) any { return r.QPs }},
	{Title: "Targets", Value: func(r connected) any { return r.Targets }},
	{Title: "With queues", Value: func(r connected) any { return r.QPs - r.Targets }},
	{Title: "SRQs", Value: func(r connected) any { return r.SRQs }},
	{Title: "CQs", Value: func(r connected) any { return r.CQs }},
	{Title: "Memory of QPs", Value: func(r connected) any { return r.Bytes.QPs }, Text: sheet.KiB},
}

// count connects n interfaces of each of two nodes, and counts the resources of one node.
func (k kind) count(fabric string, n int) (r connected, err error) {
	t, err := device.FindTransport(k.cfg.Components(fabric), k.transport, "")
	if err != nil {
		return r, err
	}
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	var nodes [2]*node
	for i := range nodes {
		if nodes[i], err = openNode(&t, n, &undo); err != nil {
			return r, err
		}
	}
	if err = connect(nodes[0], nodes[1]); err != nil {
		return r, err
	}
	if err = exchange(nodes); err != nil {
		return r, err
	}
	counted, _ := nodes[0].md.Context().Resources() // softhca counts
	return connected{k.label, n, len(nodes[0].eps), counted}, nil
}

// node contains the interfaces of a memory domain, with their endpoints.
type node struct {
	md     *ib.MD
	ifaces []uct.Iface
	eps    []uct.EP
	got    int   // received messages
	failed error // errors that an interface has reported for endpoints
}

// openNode opens n interfaces; undo closes them.
func openNode(t *device.Transport, n int, undo *cleanup.Stack) (*node, error) {
	md, err := t.Component.OpenMD(t.MD)
	if err != nil {
		return nil, err
	}
	undo.Add(md.Close)
	x := &node{md: md.(*ib.MD)}
	for range n {
		it, err := md.OpenIface(uct.IfaceParams{Transport: t.Resource.Transport, Device: t.Device,
			OnError: func(_ uct.EP, err error) { x.failed = errors.Join(x.failed, err) }})
		if err != nil {
			return nil, err
		}
		undo.Add(it.Close)
		x.ifaces = append(x.ifaces, it)
		if err := it.SetAMHandler(0, x); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// HandleAM implements uct.AMHandler.
func (x *node) HandleAM([]byte, uct.Desc) bool { x.got++; return false }

// connect connects each interface of one node with each interface of the other.
func connect(a, b *node) error {
	for _, x := range a.ifaces {
		for _, y := range b.ifaces {
			e, err := x.NewEP(uct.EPParams{})
			if err != nil {
				return err
			}
			f, err := y.NewEP(uct.EPParams{})
			if err != nil {
				return err
			}
			a.eps, b.eps = append(a.eps, e), append(b.eps, f)
			if err := errors.Join(join(e, y, f), join(f, x, e)); err != nil {
				return err
			}
		}
	}
	return nil
}

// join connects an endpoint with peer, which belongs to an interface.
func join(e uct.EP, it uct.Iface, peer uct.EP) error {
	return e.Ops().Connect.Connect(it.Ext().Address.DeviceAddr(nil), peer.Ops().Connect.EPAddr(nil))
}

// exchange sends a message over each endpoint, and waits until all have arrived: then endpoints
// release what they do not need.
func exchange(nodes [2]*node) error {
	for i, x := range nodes {
		for _, e := range x.eps {
			if err := e.Ops().AM.AMShort(0, 0, nil); err != nil {
				return err
			}
		}
		to := nodes[1-i]
		for to.got < len(to.eps) {
			if err := progress(nodes); err != nil {
				return err
			}
		}
	}
	return nil
}

// progress progresses all interfaces once.
func progress(nodes [2]*node) error {
	for _, x := range nodes {
		for _, it := range x.ifaces {
			it.Progress()
		}
		if x.failed != nil {
			return x.failed
		}
	}
	runtime.Gosched()
	return nil
}
