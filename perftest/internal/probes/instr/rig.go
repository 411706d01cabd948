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

// openers are the layers as they are. A rig has both ends in one process, on one
// thread, and the software HCA executes one-sided operations in the doorbell: what
// is counted is all that the initiator does. On the loop fabric both ends share a
// device, on shm each opens its own; over self they are one.
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
	firstPolls = 1 << 10 // before the clock is read, of which an operation that is counted sees nothing
	morePolls  = 16      // between two pauses
	pollPause  = 100 * time.Microsecond
	patience   = time.Minute
)

var (
	errStuck   = fmt.Errorf("no completion within %v", patience)
	errCorrupt = errors.New("the data did not arrive")
)

// polls is a loop that ends when nothing will happen any more. Its body polls, and yields to
// other goroutines; now and then polls gives up the processor, which what connects may wait for.
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

// pair is a connection through one layer, with both ends in this process.
type pair[C layer.Conn] struct {
	near, far C // the same if the transport connects an iface or a worker to itself
	undo      cleanup.Stack
}

// openPair opens and connects both ends. newLayer returns the opener of a layer that has opened nothing yet.
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
			open = newLayer() // which opens a device of its own
		}
		if p.far, err = p.open(open, params); err != nil {
			return nil, err
		}
	}
	return p, p.connect()
}

// open opens one end.
func (p *pair[C]) open(open layer.Opener, params layer.Config) (end C, err error) {
	c, err := open(params)
	if err != nil {
		return end, err
	}
	p.undo.Add(c.Close)
	return c.(C), nil
}

// connect connects each end to the other. Both have given their address before.
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

// change makes the two memories differ, and from the last repetition.
func (p *pair[C]) change() error {
	near, far := p.near.Local(), p.far.Memory()
	near[0]++
	far[0] = ^near[0]
	return nil
}

// compare compares the first n bytes of both memories, which a put or get has moved.
func (p *pair[C]) compare(n int) error {
	if !bytes.Equal(p.near.Local()[:n], p.far.Memory()[:n]) {
		return errCorrupt
	}
	return nil
}

// progress progresses both ends, and lets others run if nothing was to do.
func (p *pair[C]) progress() int {
	n := p.near.Progress() + p.far.Progress()
	if n == 0 {
		runtime.Gosched()
	}
	return n
}

// want makes the repetition void if progress found something else.
func want(got, want int) error {
	if got != want {
		return errVoid
	}
	return nil
}

// loops reports that both ends of a rig are one iface or worker: the transport leads nowhere else.
func loops(tl string) bool { return tl == self.Name }

// engineTick makes the device's engine look in seldom. By default it does so each
// millisecond, which is once in many thousand polls; a child that is stepped runs a
// thousand times slower, and would meet it in every one. Handshakes wait for a few.
const engineTick = 200 * time.Millisecond

// ofDefaults is a layer with the default configuration, for openPair.
func ofDefaults(name string) func() layer.Opener {
	return func() layer.Opener { return layers.Config{Devices: devices}.Set().Open[name] }
}

// devices lists the device of rigs; each open of it is another device.
func devices(fabric string) ([]*verbs.Device, error) {
	d, err := softhca.NewDevice(softhca.Config{Fabric: softhca.Fabric(fabric), EngineTick: engineTick})
	return []*verbs.Device{d}, err
}

// unsupported is why a rig skips a case.
func unsupported(c Case) error { return fmt.Errorf("%v: %w", c, errors.ErrUnsupported) }

// spec is the operation of a layer that c repeats; ok is false if it is one of messages or none at all.
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

// opOf makes the operation of the layer that c repeats.
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
