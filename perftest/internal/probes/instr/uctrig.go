package instr

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/uctlayer"
	"github.com/gucx/gucx/uct"
)

// uctRig counts calls of the uct contract on one transport. If the layer lacks an operation, the rig makes the calls
// itself.
type uctRig struct {
	*pair[*uctlayer.Conn]
	tl    string
	iface uct.Iface // of the near side, as ep
	ep    uct.EP
	am    messages
	raddr uint64
	key   uct.RKey
	buf   []byte // of the case
	comp  uct.Completion
	done  bool // comp has been called
}

// openUCT opens the rig over a transport, or with an alternative.
func openUCT(fabric, name string) (rig, error) {
	tl, cfg, err := alternative(name)
	if err != nil {
		return nil, err
	}
	cfg.Devices = devices
	p, err := openPair[*uctlayer.Conn](func() layer.Opener { return cfg.Set().Open[uctlayer.Name] }, fabric, tl)
	if err != nil {
		return nil, err
	}
	r := &uctRig{pair: p, tl: tl, iface: p.near.Iface(), ep: p.near.EP()}
	r.raddr, r.key = p.near.Remote()
	r.comp.Func = func(*uct.Completion) { r.done = true }
	if err := r.am.open(r); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return r, nil
}

// steps implements rig. Puts are short or bcopy, and gets bcopy, as in UCP for memory without a handle.
func (r *uctRig) steps(c Case) (steps, error) {
	r.buf = r.near.Local()[:c.Size]
	switch {
	case c.Op.message():
		return r.am.steps(r, c)
	case c.Op == Idle:
		return steps{op: func() error { return want(r.iface.Progress(), 0) }}, nil
	}
	op, err := r.opOf(c, r.variant(c))
	if err != nil {
		return steps{}, err
	}
	verify := func() error { return r.compare(c.Size) }
	switch c.Op {
	case Put, Get, PutZcopy, GetZcopy:
		return steps{before: r.change, op: op.Post, after: inTurn(op.Flush, verify)}, nil
	case PutWindow, GetWindow:
		return steps{before: r.change, op: window(op), after: verify}, nil
	case FAddWindow:
		return steps{op: window(op)}, nil
	case Add, FAdd:
		return steps{op: op.Post, after: op.Flush}, nil
	case Flush:
		return steps{before: op.Post, op: r.flush}, nil
	}
	// Busy
	if deviceless[r.tl] {
		return steps{}, fmt.Errorf("no put has a completion later: %w", unsupported(c))
	}
	return steps{before: inTurn(op.Post, r.postFlush), op: r.progressOnce, after: r.wait}, nil
}

// variant returns the variant by which c transfers its bytes.
func (r *uctRig) variant(c Case) layer.Variant {
	switch c.Op {
	case Put, Flush, Busy:
		if c.Size <= r.iface.Attr().Put.MaxShort {
			return layer.Short
		}
		return layer.Bcopy
	case Get:
		return layer.Bcopy
	case PutZcopy, GetZcopy, PutWindow, GetWindow:
		return layer.Zcopy
	}
	return layer.Auto
}

// Pack implements uct.Packer. Its lookup of the memory counts for the transport.
func (r *uctRig) Pack(dst []byte) int { return copy(dst, r.near.Local()[:len(r.buf)]) }

// arm prepares comp for one operation.
func (r *uctRig) arm() { r.done, r.comp.Count, r.comp.Status = false, 1, 0 }

// flush waits for the remote completion of all posted operations.
func (r *uctRig) flush() error {
	r.arm()
	pending, err := r.ep.Flush(&r.comp)
	if err != nil || !pending {
		return err
	}
	return r.wait()
}

// wait progresses until comp has been called.
func (r *uctRig) wait() error {
	for range polls {
		if r.done {
			return r.comp.Status.Err()
		}
		if r.iface.Progress() == 0 {
			runtime.Gosched()
		}
	}
	return errStuck
}

// postFlush posts a flush; the caller waits for its completion.
func (r *uctRig) postFlush() error {
	r.arm()
	pending, err := r.ep.Flush(&r.comp)
	if err == nil && !pending {
		return errVoid
	}
	return err
}

func (r *uctRig) progressOnce() error {
	r.iface.Progress()
	if !r.done {
		return errVoid
	}
	return nil
}
