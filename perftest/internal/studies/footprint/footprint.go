// Package footprint counts the resources of endpoints in a process: objects of the device, bytes on the Go heap, and
// bytes of queues outside it.
package footprint

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Row is the resources of the endpoints to a number of peers.
type Row struct {
	Layer     string `json:"layer"` // uct or ucp
	Transport string `json:"transport"`
	Connect   string `json:"connect,omitempty"` // when endpoints of ucp connect
	Peers     int    `json:"peers"`
	QPs       int    `json:"qps"`
	// Heap is the growth of the Go heap by the endpoints, including the memory of the software HCA.
	Heap int64 `json:"heap"`
	// QPBytes is the memory of queue pairs, Bytes that of all verbs objects; queues are outside the heap.
	QPBytes int64 `json:"qp_bytes"`
	Bytes   int64 `json:"bytes"`
}

// Study selects what to count: Transports for endpoints of uct, Connect for those of ucp.
type Study struct {
	Transports []string
	Connect    []string
	Peers      []int
}

// Transports lists the transports whose endpoints can be counted.
func Transports() []string { return []string{rc.Name, dv.RCName, ud.Name, dv.UDName} }

// Maximum numbers of peers: uct opens only endpoints, ucp also a worker for each peer.
const (
	maxPeers   = 4096
	maxWorkers = 128
)

// Check returns an error for an invalid study.
func (s *Study) Check() error {
	for _, tl := range s.Transports {
		if !slices.Contains(Transports(), tl) {
			return fmt.Errorf("transport %q: there are %s", tl, strings.Join(Transports(), ", "))
		}
	}
	limit := maxPeers
	if len(s.Connect) > 0 {
		limit = maxWorkers
	}
	for _, n := range s.Peers {
		if n < 1 || n > limit {
			return fmt.Errorf("%d peers: want 1 to %d", n, limit)
		}
	}
	if len(s.Peers) == 0 || len(s.Transports)+len(s.Connect) == 0 {
		return errors.New("nothing to count")
	}
	return nil
}

// Cases returns the number of rows.
func (s *Study) Cases() int { return (len(s.Transports) + len(s.Connect)) * len(s.Peers) }

// Run counts everything. step is called before each row.
func (s *Study) Run(ctx context.Context, step func(label string, peers int)) (rows []Row, err error) {
	count := func(label string, n int, f func() (Row, error)) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		step(label, n)
		r, err := f()
		if err != nil {
			return fmt.Errorf("%s, %d peers: %w", label, n, err)
		}
		rows = append(rows, r)
		return nil
	}
	for _, n := range s.Peers {
		for _, tl := range s.Transports {
			if err := count(tl, n, func() (Row, error) { return endpoints(tl, n) }); err != nil {
				return rows, err
			}
		}
		for _, when := range s.Connect {
			if err := count(when, n, func() (Row, error) { return workers(when, n) }); err != nil {
				return rows, err
			}
		}
	}
	return rows, nil
}

// component returns the transports on a new device.
func component() (uct.Component, error) {
	dev, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricShm})
	if err != nil {
		return nil, err
	}
	list := func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }
	return ib.New(list, rc.Transport(rc.Config{}), dv.RC(dv.RCConfig{}), ud.Transport(ud.Config{}), dv.UD(dv.UDConfig{})), nil
}

// heap returns the number of bytes on the Go heap.
func heap() int64 {
	runtime.GC()
	runtime.GC() // the memory that the first one has swept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// endpoints counts n endpoints of an interface. All connect to one interface, and those of rc to one endpoint: the
// state of an endpoint does not depend on that.
func endpoints(tl string, n int) (r Row, err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	c, err := component()
	if err != nil {
		return r, err
	}
	var ends [2]side
	for i := range ends {
		if ends[i], err = openSide(c, tl, &undo); err != nil {
			return r, err
		}
	}
	near, far := ends[0], ends[1]
	var peer uct.EP
	if near.iface.Attr().Caps.Has(uct.CapConnectEP) {
		if peer, err = far.iface.NewEP(uct.EPParams{}); err != nil {
			return r, err
		}
		undo.Add(peer.Close)
	}
	before, start := heap(), near.resources()
	for range n {
		ep, err := connect(near, far, peer)
		if err != nil {
			return r, err
		}
		undo.Add(ep.Close)
	}
	after, now := heap(), near.resources()
	return Row{Layer: "uct", Transport: tl, Peers: n, QPs: now.QPs, Heap: after - before,
		QPBytes: now.Bytes.QPs - start.Bytes.QPs, Bytes: now.Bytes.Total() - start.Bytes.Total()}, nil
}

// side is an interface on a memory domain of its own.
type side struct {
	md    *ib.MD
	iface uct.Iface
}

func openSide(c uct.Component, tl string, undo *cleanup.Stack) (e side, err error) {
	all, err := c.MDs()
	if err != nil {
		return e, err
	}
	md, err := c.OpenMD(all[0].Name)
	if err != nil {
		return e, err
	}
	undo.Add(md.Close)
	e.md = md.(*ib.MD)
	res, err := md.Resources()
	if err != nil {
		return e, err
	}
	i := slices.IndexFunc(res, func(u uct.Resource) bool { return u.Transport == tl })
	if i < 0 {
		return e, fmt.Errorf("no transport %s: %w", tl, errors.ErrUnsupported)
	}
	if e.iface, err = md.OpenIface(uct.IfaceParams{Transport: tl, Device: res[i].Device}); err != nil {
		return e, err
	}
	undo.Add(e.iface.Close)
	return e, nil
}

// resources returns the resources of the domain; the software HCA counts them.
func (e side) resources() verbs.Resources {
	r, _ := e.md.Context().Resources()
	return r
}

// connect opens an endpoint of near to peer, or to the interface of far if peer is nil.
func connect(near, far side, peer uct.EP) (uct.EP, error) {
	addr := far.iface.Ext().Address
	if peer == nil {
		return near.iface.NewEP(uct.EPParams{DeviceAddr: addr.DeviceAddr(nil), IfaceAddr: addr.IfaceAddr(nil)})
	}
	ep, err := near.iface.NewEP(uct.EPParams{})
	if err != nil {
		return nil, err
	}
	if err := ep.Ops().Connect.Connect(addr.DeviceAddr(nil), peer.Ops().Connect.EPAddr(nil)); err != nil {
		return nil, errors.Join(err, ep.Close())
	}
	return ep, nil
}
