package instr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/self"
)

// openers are the layers without alternatives. A rig has both sides in one process, on one thread, and the software HCA
// executes one-sided operations in the doorbell: the count is the complete work of the initiator. On the loop fabric
// both sides share a device, on shm each opens its own; over self both are the same iface or worker.
var openers = map[Part]opener{
	Verbs:  openVerbs,
	AVerbs: openAVerbs,
	UCT:    openUCT,
	UCP:    openUCP,
}

// A completion is there at one of the first polls once the devices know each other, because
// everything completes in the doorbell. Handshakes take as long as other threads do, on a machine
// that may have others to run: patience bounds the wait.
const (
	firstPolls = 1 << 10 // before the clock is read; no counted operation lasts as long
	morePolls  = 16      // between two pauses
	pollPause  = 100 * time.Microsecond
	patience   = time.Minute
)

var (
	errStuck   = fmt.Errorf("no completion within %v", patience)
	errCorrupt = errors.New("the data did not arrive")
)

// polls is a loop that ends when no more event can be expected. Its body polls, and yields to other goroutines; from
// time to time polls yields the CPU, which a handshake may need.
func polls(yield func() bool) {
	for range firstPolls {
		if !yield() {
			return
		}
	}
	for start := time.Now(); time.Since(start) < patience; time.Sleep(pollPause) {
		for range morePolls {
			if !yield() {
				return
			}
		}
	}
}

// pair is a connection through one layer, with both sides in this process.
type pair[C layer.Conn] struct {
	near, far C // equals near if the transport connects an iface or a worker to itself
	undo      cleanup.Stack
}

// openPair opens and connects both sides. newLayer returns an opener that has opened nothing yet.
func openPair[C layer.Conn](newLayer func() layer.Opener, fabric, transport string) (_ *pair[C], err error) {
	p := &pair[C]{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.undo.Run())
		}
	}()
	params := layer.Config{Transport: transport, Fabric: fabric, MemLen: maxSize, Context: context.Background(),
		Loopback: loops(transport)}
	open := newLayer()
	if p.near, err = p.open(open, params); err != nil {
		return nil, err
	}
	p.far = p.near
	if !params.Loopback {
		if softhca.Fabric(fabric) != softhca.FabricLoop {
			open = newLayer() // it opens a device of its own
		}
		if p.far, err = p.open(open, params); err != nil {
			return nil, err
		}
	}
	return p, p.connect()
}

// open opens one side.
func (p *pair[C]) open(open layer.Opener, params layer.Config) (end C, err error) {
	c, err := open(params)
	if err != nil {
		return end, err
	}
	p.undo.Add(c.Close)
	return c.(C), nil
}

// connect connects each side to the other. Both must have returned their address before.
func (p *pair[C]) connect() error {
	near, err := p.near.Address()
	if err != nil {
		return err
	}
	far, err := p.far.Address()
	if err != nil {
		return err
	}
	if err := p.near.Connect(far); err != nil || layer.Conn(p.near) == layer.Conn(p.far) {
		return err
	}
	return p.far.Connect(near)
}

// Close implements rig.
func (p *pair[C]) Close() error { return p.undo.Run() }

// change makes the two memories differ from each other, and from the last repetition.
func (p *pair[C]) change() error {
	near, far := p.near.Local(), p.far.Memory()
	near[0]++
	far[0] = ^near[0]
	return nil
}

// compare compares the first n bytes of both memories, which a put or get has transferred.
func (p *pair[C]) compare(n int) error {
	if !bytes.Equal(p.near.Local()[:n], p.far.Memory()[:n]) {
		return errCorrupt
	}
	return nil
}

// progress progresses both sides, and yields if there was no work.
func (p *pair[C]) progress() int {
	n := p.near.Progress() + p.far.Progress()
	if n == 0 {
		runtime.Gosched()
	}
	return n
}

// want makes the repetition void if progress returned another number.
func want(got, want int) error {
	if got != want {
		return errVoid
	}
	return nil
}

// loops reports that both sides of a rig are one iface or worker: the transport connects to nothing else.
func loops(tl string) bool { return tl == self.Name }

// engineTick is a long interval of the device's engine. The default of one millisecond is once in many thousand polls;
// a stepped child runs a thousand times slower, so the engine would run in every poll. Handshakes wait for a few
// intervals.
const engineTick = 200 * time.Millisecond

// ofDefaults returns a layer with the default configuration, for openPair.
func ofDefaults(name string) func() layer.Opener {
	return func() layer.Opener { return layers.Config{Devices: devices}.Set().Open[name] }
}

// devices lists the device of rigs; each open of it is another device.
func devices(fabric string) ([]*verbs.Device, error) {
	d, err := softhca.NewDevice(softhca.Config{Fabric: softhca.Fabric(fabric), EngineTick: engineTick})
	return []*verbs.Device{d}, err
}

// unsupported is the reason why a rig skips a case.
func unsupported(c Case) error { return fmt.Errorf("%v: %w", c, errors.ErrUnsupported) }

// spec returns the operation of a layer that c repeats; ok is false for messages, and if there is none.
func (c Case) spec() (_ layer.Spec, ok bool) {
	s := layer.Spec{Size: c.Size, Window: 1}
	switch c.Op {
	case Put, PutZcopy, PutWindow, Flush, Busy:
		s.Kind = layer.Put
	case Get, GetZcopy, GetWindow:
		s.Kind = layer.Get
	case Add:
		s.Kind = layer.Add
	case FAdd, FAddWindow:
		s.Kind = layer.FAdd
	default:
		return s, false
	}
	if c.Op.windowed() {
		s.Window = windowLen
	}
	return s, true
}

// opOf creates the operation of the layer that c repeats.
func (p *pair[C]) opOf(c Case, variant layer.Variant) (layer.Op, error) {
	spec, ok := c.spec()
	if !ok {
		return nil, unsupported(c)
	}
	spec.Variant = variant
	return p.near.Op(spec)
}

// window posts a window of operations and flushes it.
func window(op layer.Op) func() error {
	return func() error {
		for range windowLen {
			if err := op.Post(); err != nil {
				return err
			}
		}
		return op.Flush()
	}
}
