package instr

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/ucplayer"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// ucpRig counts calls of ucp over one transport. If the layer lacks an operation, the rig makes the calls itself.
type ucpRig struct {
	*pair[*ucplayer.Conn]
	active ucpMessages
	tags   tagMessages
	worker *ucp.Worker // of the near side, as ep and key
	peer   *ucp.Worker
	ep     *ucp.EP
	key    *ucp.RKey
	raddr  uint64
	buf    []byte       // of the case
	params ucp.OpParams // with the memory of buf
	word   uint64       // result of atomics
	req    *ucp.Request // request of the counted operation; nil when it is complete
	post   func() error // one counted put
	atOnce bool         // puts and flushes complete in the call that posts them
}

// alternative returns the transport and the configuration of a name in switches or transports.
func alternative(name string) (transport string, cfg layers.Config, err error) {
	transport = transports[0]
	change := name
	if tl, after, both := strings.Cut(name, "+"); both {
		transport, change = tl, after
	} else if slices.Contains(transports, name) {
		transport, change = name, ""
	}
	switch change {
	case "", switchShared: // see share
	case switchResolve:
		cfg.UCP.Study.KeyResolve = ucp.ResolveAtOp
	case switchPollTx:
		cfg.UCT.IB.PollIdleTx = true
	case switchProgressAll:
		cfg.UCP.Study.ProgressIdle = true
	default:
		return "", cfg, fmt.Errorf("alternative %q: %w", name, errors.ErrUnsupported)
	}
	return transport, cfg, nil
}

func openUCP(fabric, name string) (rig, error) {
	transport, cfg, err := alternative(name)
	if err != nil {
		return nil, err
	}
	cfg.Devices = devices
	p, err := openPair[*ucplayer.Conn](func() layer.Opener {
		return ucplayer.New(cfg.UCP, componentsFor(transport, cfg)).Open
	}, fabric, transport)
	if err != nil {
		return nil, err
	}
	r := &ucpRig{pair: p, worker: p.near.Worker(), peer: p.far.Worker(), ep: p.near.EP(), key: p.near.Key(),
		atOnce: deviceless[transport]}
	r.raddr, r.buf = r.key.Addr(), p.near.Local()[:wordLen]
	_, r.params.Mem = p.near.Mems()
	r.post = r.put
	if name == switchShared {
		r.post = r.share()
	}
	if err := r.connect(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return r, nil
}

// componentsFor creates the components for a transport. Over rc_mlx5 the handshake uses ud_mlx5, because there is no
// ud.
func componentsFor(transport string, cfg layers.Config) device.Source {
	if transport != dv.RCName {
		return cfg.Components
	}
	return func(fabric string) []uct.Component {
		list := func() ([]*verbs.Device, error) { return devices(fabric) }
		return []uct.Component{cfg.UCT.IB.New(list, dv.RC(dv.RCConfig{}), dv.UD(dv.UDConfig{}))}
	}
}

// connect connects the lanes by a first put.
func (r *ucpRig) connect() error {
	return inTurn(r.put, r.finish, r.flushBoth, r.idle, func() error { return r.active.open(r) })()
}

// share makes the put one of several goroutines that share a worker; the others do nothing meanwhile.
func (r *ucpRig) share() func() error {
	ctx, shared := context.Background(), r.worker.Share()
	start := func() (*ucp.Request, error) { return r.ep.Put(r.buf, r.raddr, r.key, nil) }
	return func() error { return shared.Run(ctx, start) }
}

// idle progresses both sides until there is no more work.
func (r *ucpRig) idle() error {
	for range polls {
		if r.worker.Progress()+r.peer.Progress() == 0 {
			return nil
		}
		runtime.Gosched()
	}
	return errStuck
}

// steps implements rig. The buffers of Put and Get are passed without their Mem, so they are copied.
func (r *ucpRig) steps(c Case) (steps, error) {
	r.buf = r.near.Local()[:c.Size]
	switch c.Op {
	case AMShort, AMBcopy:
		return r.active.sends(r), nil
	case AMShortRecv, AMBcopyRecv:
		return r.active.receives(r), nil
	case Tag, TagPost, TagRecv, TagKept:
		return r.tags.steps(r, c.Op), nil
	case Rndv, RndvRecv, RndvDone:
		if !r.atOnce {
			return steps{}, fmt.Errorf("the data is not there in one progress: %w", unsupported(c))
		}
		return r.tags.steps(r, c.Op), nil
	case Put:
		return steps{before: r.change, op: r.post, after: r.verify}, nil
	case Get:
		return steps{before: r.change, op: r.get, after: r.verify}, nil
	case FAdd:
		return steps{op: r.fetchAdd, after: r.finish}, nil
	case Flush:
		return steps{before: r.put, op: r.flush}, nil
	case Idle:
		return steps{op: func() error { return want(r.worker.Progress(), 0) }}, nil
	case Busy:
		if r.atOnce {
			return steps{}, fmt.Errorf("no put has a completion later: %w", unsupported(c))
		}
		return steps{before: r.putAndFlush, op: r.progressOnce, after: r.finish}, nil
	}
	return r.layerSteps(c)
}

// layerSteps returns the steps of operations of the layer.
func (r *ucpRig) layerSteps(c Case) (steps, error) {
	op, err := r.opOf(c, layer.Auto)
	if err != nil {
		return steps{}, err
	}
	switch c.Op {
	case PutWindow, GetWindow:
		return steps{before: r.change, op: window(op), after: r.verify}, nil
	case FAddWindow:
		return steps{op: window(op)}, nil
	case Add:
		return steps{op: op.Post, after: r.flushBoth}, nil
	}
	return steps{before: r.change, op: op.Post, after: r.verify}, nil // PutZcopy, GetZcopy
}

func (r *ucpRig) put() (err error) {
	r.req, err = r.ep.Put(r.buf, r.raddr, r.key, nil)
	return err
}

func (r *ucpRig) get() (err error) {
	r.req, err = r.ep.Get(r.buf, r.raddr, r.key, nil)
	return err
}

func (r *ucpRig) fetchAdd() (err error) {
	r.req, err = r.ep.AtomicFetch(uct.AtomicAdd, wordLen, 1, &r.word, r.raddr, r.key)
	return err
}

// flush waits for the remote completion of all posted operations, as a polling caller does.
func (r *ucpRig) flush() error {
	req, err := r.ep.Flush()
	if req == nil || err != nil {
		return err
	}
	for range polls {
		if done, err := req.Test(); done {
			return err
		}
		runtime.Gosched()
	}
	return errStuck
}

// putAndFlush stores the request of a flush in req. There is none if the put had to wait.
func (r *ucpRig) putAndFlush() error {
	if err := r.put(); err != nil {
		return err
	}
	if err := r.finish(); err != nil {
		return err
	}
	req, err := r.ep.Flush()
	if err == nil && req == nil {
		return errVoid
	}
	r.req = req
	return err
}

func (r *ucpRig) progressOnce() error {
	r.worker.Progress()
	if !r.req.Done() {
		return errVoid
	}
	return nil
}

// finish waits for req, if it is not nil, and progresses both sides.
func (r *ucpRig) finish() error {
	if r.req == nil {
		return nil
	}
	for range polls {
		if done, err := r.req.Test(); done {
			r.req = nil
			return err
		}
		if r.peer.Progress() == 0 {
			runtime.Gosched()
		}
	}
	return errStuck
}

// flushBoth flushes and progresses both sides.
func (r *ucpRig) flushBoth() (err error) {
	if r.req, err = r.ep.Flush(); err != nil {
		return err
	}
	return r.finish()
}

// verify completes a put or get and compares the transferred data.
func (r *ucpRig) verify() error {
	return inTurn(r.finish, r.flushBoth, func() error { return r.compare(len(r.buf)) })()
}
