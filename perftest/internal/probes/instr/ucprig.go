package instr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/self"
	"github.com/gucx/gucx/uct/sm"
)

// ucpRig counts calls of ucp, with rc or rc_mlx5 for operations and ud or ud_mlx5 for the handshake, or over a
// transport without a device.
type ucpRig struct {
	active ucpMessages
	tags   tagMessages
	worker *ucp.Worker
	peer   *ucp.Worker
	ep     *ucp.EP
	near   *ucp.Mem
	far    *ucp.Mem
	key    *ucp.RKey
	raddr  uint64
	buf    []byte       // of the case
	params ucp.OpParams // with the memory of buf
	word   uint64       // result of atomics
	req    *ucp.Request // of the counted operation; nil when it has ended
	post   func() error // a put, as it is counted
	atOnce bool         // puts and flushes end while they are posted
	undo   cleanup.Stack
}

// alternatives are the settings behind the names in switches.
var alternatives = map[string]struct {
	ucp    ucp.Config
	ib     ib.Config
	direct bool // rc_mlx5 and ud_mlx5 instead of rc and ud
}{
	"":                {},
	switchResolve:     {ucp: ucp.Config{Study: ucp.Study{KeyResolve: ucp.ResolveAtOp}}},
	switchPollTx:      {ib: ib.Config{PollIdleTx: true}},
	switchProgressAll: {ucp: ucp.Config{Study: ucp.Study{ProgressIdle: true}}},
	switchShared:      {}, // see share
	dv.RCName:         {direct: true},

	overDirect + switchResolve:     {direct: true, ucp: ucp.Config{Study: ucp.Study{KeyResolve: ucp.ResolveAtOp}}},
	overDirect + switchPollTx:      {direct: true, ib: ib.Config{PollIdleTx: true}},
	overDirect + switchProgressAll: {direct: true, ucp: ucp.Config{Study: ucp.Study{ProgressIdle: true}}},

	sm.Name:   {}, // transports, with components of their own
	self.Name: {},
}

func openUCP(fabric, alternative string) (_ rig, err error) {
	r := &ucpRig{atOnce: deviceless[alternative] != nil}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.undo.Run())
		}
	}()
	cfg, ok := alternatives[alternative]
	if !ok {
		return nil, fmt.Errorf("alternative %q: %w", alternative, errors.ErrUnsupported)
	}
	ctxs := make([]*ucp.Context, ends(fabric, alternative))
	for i := range ctxs {
		component, err := overIB(fabric, cfg.ib, cfg.direct)
		if open := deviceless[alternative]; open != nil {
			component, err = open(), nil
		}
		if err != nil {
			return nil, err
		}
		if ctxs[i], err = r.openContext(cfg.ucp, component); err != nil {
			return nil, err
		}
	}
	if err = r.openEnds(ctxs[0], ctxs[len(ctxs)-1], loops(alternative)); err != nil {
		return nil, err
	}
	r.post = r.put
	if alternative == switchShared {
		r.post = r.share()
	}
	return r, r.connect()
}

// openEnds opens a worker and memory of each end; one worker if it sends to itself.
func (r *ucpRig) openEnds(near, far *ucp.Context, one bool) (err error) {
	if r.worker, err = r.openWorker(near); err != nil {
		return err
	}
	if r.peer = r.worker; !one {
		if r.peer, err = r.openWorker(far); err != nil {
			return err
		}
	}
	if r.near, err = r.alloc(near); err != nil {
		return err
	}
	r.far, err = r.alloc(far)
	return err
}

// share makes the put of one goroutine of several, while the others do something else.
func (r *ucpRig) share() func() error {
	ctx, shared := context.Background(), r.worker.Share()
	start := func() (*ucp.Request, error) { return r.ep.Put(r.buf, r.raddr, r.key, nil) }
	return func() error { return shared.Run(ctx, start) }
}

// overIB makes the component of a new device.
func overIB(fabric string, cfg ib.Config, direct bool) (uct.Component, error) {
	dev, err := device(fabric)
	if err != nil {
		return nil, err
	}
	list := func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }
	if direct {
		return cfg.New(list, dv.RC(dv.RCConfig{}), dv.UD(dv.UDConfig{})), nil
	}
	return cfg.New(list, rc.Transport(rc.Config{}), ud.Transport(ud.Config{})), nil
}

func (r *ucpRig) openContext(cfg ucp.Config, component uct.Component) (*ucp.Context, error) {
	ctx, err := ucp.NewContext(cfg, component)
	if err != nil {
		return nil, err
	}
	r.undo.Add(ctx.Close)
	return ctx, nil
}

func (r *ucpRig) openWorker(ctx *ucp.Context) (*ucp.Worker, error) {
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return nil, err
	}
	r.undo.Add(w.Close)
	return w, nil
}

func (r *ucpRig) alloc(ctx *ucp.Context) (*ucp.Mem, error) {
	mem, err := ctx.MemAlloc(maxSize)
	if err != nil {
		return nil, err
	}
	r.undo.Add(mem.Close)
	return mem, nil
}

// connect makes the EP, and its lanes by a first put.
func (r *ucpRig) connect() (err error) {
	if r.ep, err = r.worker.NewEP(r.peer.Address(), ucp.EPConfig{}); err != nil {
		return err
	}
	if r.key, err = r.ep.Unpack(r.far.Pack()); err != nil {
		return err
	}
	r.undo.Add(func() error { r.key.Close(); return nil })
	r.raddr, r.buf = r.far.Addr(), r.near.Bytes()[:wordLen]
	if err = r.put(); err != nil {
		return err
	}
	if err = r.finish(); err != nil {
		return err
	}
	return errors.Join(r.flushBoth(), r.idle(), r.active.open(r))
}

// idle progresses both ends until nothing is left to do.
func (r *ucpRig) idle() error {
	for range polls {
		if r.worker.Progress()+r.peer.Progress() == 0 {
			return nil
		}
		runtime.Gosched()
	}
	return errStuck
}

// Close implements rig. The EP is closed first, while both ends progress.
func (r *ucpRig) Close() error {
	var err error
	if r.req, err = r.ep.Close(ucp.CloseFlush); err == nil {
		err = errors.Join(r.finish(), r.idle())
	}
	return errors.Join(err, r.undo.Run())
}

// steps implements rig. The buffers of Put and Get are given without their Mem: they copy.
func (r *ucpRig) steps(c Case) (steps, error) {
	r.buf, r.params.Mem = r.near.Bytes()[:c.Size], r.near
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
	case PutZcopy:
		return steps{before: r.change, op: r.putZcopy, after: r.verify}, nil
	case GetZcopy:
		return steps{before: r.change, op: r.getZcopy, after: r.verify}, nil
	case PutWindow:
		return steps{before: r.change, op: r.window(r.putZcopy), after: r.verify}, nil
	case GetWindow:
		return steps{before: r.change, op: r.window(r.getZcopy), after: r.verify}, nil
	case FAddWindow:
		return steps{op: r.window(r.fetchAddImplicit)}, nil
	case Add:
		return steps{op: r.add, after: r.flushBoth}, nil
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
	return steps{}, unsupported(c)
}

func (r *ucpRig) put() (err error) {
	r.req, err = r.ep.Put(r.buf, r.raddr, r.key, nil)
	return err
}

func (r *ucpRig) get() (err error) {
	r.req, err = r.ep.Get(r.buf, r.raddr, r.key, nil)
	return err
}

func (r *ucpRig) putZcopy() error { return r.ep.PutImplicit(r.buf, r.raddr, r.key, &r.params) }

func (r *ucpRig) getZcopy() error { return r.ep.GetImplicit(r.buf, r.raddr, r.key, &r.params) }

func (r *ucpRig) add() error {
	return r.ep.AtomicPost(uct.AtomicAdd, wordLen, 1, r.raddr, r.key)
}

func (r *ucpRig) fetchAdd() (err error) {
	r.req, err = r.ep.AtomicFetch(uct.AtomicAdd, wordLen, 1, &r.word, r.raddr, r.key)
	return err
}

func (r *ucpRig) fetchAddImplicit() error {
	return r.ep.AtomicFetchImplicit(uct.AtomicAdd, wordLen, 1, &r.word, r.raddr, r.key)
}

// window posts a window of operations and blocks until it is flushed.
func (r *ucpRig) window(post func() error) func() error {
	ctx := context.Background()
	return func() error {
		for range windowLen {
			if err := post(); err != nil {
				return err
			}
		}
		return r.ep.FlushWait(ctx)
	}
}

// flush waits for the remote completion of everything issued, as a caller does that
// polls.
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

// putAndFlush leaves the request of a flush in req. There is none if the put had to wait.
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

// finish waits for req, if there is one, and progresses both ends.
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

// flushBoth flushes and progresses both ends.
func (r *ucpRig) flushBoth() (err error) {
	if r.req, err = r.ep.Flush(); err != nil {
		return err
	}
	return r.finish()
}

func (r *ucpRig) change() error {
	change(r.near.Bytes(), r.far.Bytes())
	return nil
}

// verify completes a put or get and compares what it moved.
func (r *ucpRig) verify() error {
	if err := r.finish(); err != nil {
		return err
	}
	if err := r.flushBoth(); err != nil {
		return err
	}
	if !bytes.Equal(r.buf, r.far.Bytes()[:len(r.buf)]) {
		return errCorrupt
	}
	return nil
}
