package footprint

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// observed is a component that stores the last opened memory domain.
type observed struct {
	uct.Component
	md *ib.MD
}

// OpenMD implements uct.Component.
func (o *observed) OpenMD(name string) (uct.MD, error) {
	md, err := o.Component.OpenMD(name)
	if err == nil {
		o.md = md.(*ib.MD)
	}
	return md, err
}

// resources returns the resources of the domain.
func (o *observed) resources() verbs.Resources {
	r, _ := o.md.Context().Resources()
	return r
}

// job is a hub and its peers: workers of one process, over rc, with ud for handshakes.
type job struct {
	component *observed
	hub       *ucp.Worker
	peers     []*ucp.Worker
	eps       []*ucp.EP
	undo      cleanup.Stack
}

// workers counts the resources of the endpoints of a hub to n peers; it sends to one of them.
func workers(when string, n int) (r Row, err error) {
	j := &job{}
	defer func() { err = errors.Join(err, j.undo.Run()) }()
	if err := j.open(ucp.ConnectMode(when), n); err != nil {
		return r, err
	}
	before, start := heap(), j.component.resources()
	for _, p := range j.peers {
		ep, err := j.hub.NewEP(p.Address(), ucp.EPConfig{})
		if err != nil {
			return r, err
		}
		j.eps = append(j.eps, ep)
	}
	connected := 1
	if ucp.ConnectMode(when) == ucp.ConnectEager {
		connected = n
	}
	if err := j.exchange(start.QPs + connected); err != nil {
		return r, err
	}
	after, now := heap(), j.component.resources()
	return Row{Layer: "ucp", Transport: rc.Name, Connect: when, Peers: n, QPs: now.QPs - start.QPs, Heap: after - before,
		QPBytes: now.Bytes.QPs - start.Bytes.QPs, Bytes: now.Bytes.Total() - start.Bytes.Total()}, nil
}

// open opens the hub and its peers, each with a context of its own.
func (j *job) open(when ucp.ConnectMode, n int) error {
	dev, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricShm})
	if err != nil {
		return err
	}
	list := func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }
	j.component = &observed{Component: ib.New(list, rc.Transport(rc.Config{}), ud.Transport(ud.Config{}))}
	peers, err := j.context(ucp.Config{})
	if err != nil {
		return err
	}
	for range n {
		w, err := j.worker(peers)
		if err != nil {
			return err
		}
		j.peers = append(j.peers, w)
	}
	ctx, err := j.context(ucp.Config{Connect: when})
	if err != nil {
		return err
	}
	j.hub, err = j.worker(ctx)
	return err
}

func (j *job) context(cfg ucp.Config) (*ucp.Context, error) {
	ctx, err := ucp.NewContext(cfg, j.component)
	if err != nil {
		return nil, err
	}
	j.undo.Add(ctx.Close)
	return ctx, nil
}

func (j *job) worker(ctx *ucp.Context) (*ucp.Worker, error) {
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return nil, err
	}
	j.undo.Add(w.Close)
	return w, nil
}

// patience is the maximum time of handshakes on a busy machine.
const patience = time.Minute

// exchange sends a message to the first peer, and progresses all workers until it arrives and the hub has the expected
// number of queue pairs.
func (j *job) exchange(qps int) error {
	buf, in := make([]byte, 8), make([]byte, 8)
	recv, err := j.peers[0].TagRecv(in, 1, ^uint64(0), nil, nil)
	if err != nil {
		return err
	}
	send, err := j.eps[0].TagSend(1, buf, nil)
	if err != nil {
		return err
	}
	for start := time.Now(); time.Since(start) < patience; {
		n := j.hub.Progress()
		for _, p := range j.peers {
			n += p.Progress()
		}
		done := (recv == nil || recv.Done()) && (send == nil || send.Done())
		if done && n == 0 && j.component.resources().QPs >= qps {
			return nil
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
	return fmt.Errorf("%d queue pairs after %v, want %d", j.component.resources().QPs, patience, qps)
}
