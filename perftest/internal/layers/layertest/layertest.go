// Package layertest is a layer for tests: a connection joins two sides in one process by plain
// memory. It can also inject faults, to test that perftest detects them.
package layertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
)

// Fault is a fault of a connection.
type Fault int

// Faults.
const (
	None       Fault = iota
	Drop             // all operations after the first few are lost
	Corrupt          // the last byte of a transfer is wrong
	Overrun          // one byte too many is written
	FailPost         // Post fails after the first few
	HangFlush        // Flush waits forever, unless it is stopped; see Hanging
	StallFlush       // the same after the first few operations
	RefuseOpen       // opening fails
	RefuseOp         // no operation is supported
	NeedDrive        // Flush waits for the target's progress
	FailPart         // the part of the target fails
)

// faultFrom is the operation at which Drop, FailPost and StallFlush begin.
const faultFrom = 5

// Set returns one layer without fault for each name.
func Set(names ...string) layer.Set {
	s := layer.Set{Names: names, Open: map[string]layer.Opener{}}
	for _, n := range names {
		s.Open[n] = Opener(None)
	}
	return s
}

// Opener returns an opener of sides that can connect to each other and have fault.
func Opener(fault Fault) layer.Opener {
	r := &registry{sides: map[uint64]*side{}}
	return func(cfg layer.Config) (layer.Conn, error) {
		if fault == RefuseOpen {
			return nil, errors.New("no such device")
		}
		return r.add(cfg, fault), nil
	}
}

// Hanging is Opener(HangFlush), and calls began when a Flush begins to hang.
func Hanging(began func()) layer.Opener {
	r := &registry{sides: map[uint64]*side{}, began: began}
	return func(cfg layer.Config) (layer.Conn, error) { return r.add(cfg, HangFlush), nil }
}

type registry struct {
	mu    sync.Mutex
	sides map[uint64]*side
	last  uint64
	began func() // of HangFlush; may be nil
}

func (r *registry) add(cfg layer.Config, fault Fault) *side {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	e := &side{registry: r, id: r.last, cfg: cfg, fault: fault,
		mem: make([]byte, cfg.MemLen), local: make([]byte, cfg.MemLen)}
	r.sides[e.id] = e
	return e
}

type side struct {
	registry   *registry
	id         uint64
	cfg        layer.Config
	fault      Fault
	mem, local []byte
	peer       *side
	driven     atomic.Uint64
	got        uint64 // operations received from the peer
	partErr    error  // the first fault in them
}

func (e *side) Address() ([]byte, error) { return binary.BigEndian.AppendUint64(nil, e.id), nil }

func (e *side) Connect(peer []byte) error {
	if len(peer) != 8 {
		return errors.New("address not valid")
	}
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	p, ok := e.registry.sides[binary.BigEndian.Uint64(peer)]
	if !ok {
		return errors.New("destination is unreachable")
	}
	e.peer = p
	return nil
}

func (e *side) Memory() []byte    { return e.mem }
func (e *side) Local() []byte     { return e.local }
func (e *side) Transport() string { return "copy" }

// Progress counts its calls, so that a peer can wait for it.
func (e *side) Progress() int {
	e.driven.Add(1)
	return 0
}

// State implements layer.Stater.
func (e *side) State() string { return fmt.Sprintf("memory of %d bytes\n", len(e.mem)) }

func (e *side) Close() error {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	delete(e.registry.sides, e.id)
	return nil
}

func (e *side) Op(s layer.Spec) (layer.Op, error) {
	if err := s.Check(len(e.mem)); err != nil {
		return nil, err
	}
	if e.fault == RefuseOp {
		return nil, errors.ErrUnsupported
	}
	return &op{side: e, spec: s, idle: layer.NewIdle(e.cfg)}, nil
}

// Part has no work: the operations of the peer do it.
func (e *side) Part(s layer.Spec) (layer.Part, error) {
	if err := s.Check(len(e.mem)); err != nil || !s.Kind.TwoSided() {
		return nil, err
	}
	e.got, e.partErr = 0, nil
	return part{e}, nil
}

// part counts the operations of the peer.
type part struct{ end *side }

func (p part) Progress() (int, error) {
	if p.end.fault == FailPart {
		return 0, errors.New("target has failed")
	}
	return 0, nil
}

func (p part) Finish() (uint64, error) { return p.end.got, p.end.partErr }

type op struct {
	*side
	spec   layer.Spec
	posted uint64
	result uint64
	idle   layer.Idle
}

func (o *op) Result() uint64 { return o.result }

// Poll implements layer.Op.
func (o *op) Poll() error { return o.idle.Poll() }

func (o *op) Flush() error {
	driven := o.peer.driven.Load()
	if began := o.registry.began; began != nil {
		began()
	}
	for o.fault == HangFlush || o.fault == StallFlush && o.posted > faultFrom || o.fault == FailPart && o.spec.Kind.TwoSided() || o.fault == NeedDrive && o.peer.driven.Load() == driven {
		if err := o.idle.Poll(); err != nil {
			return err
		}
	}
	return nil
}

func (o *op) Post() error {
	o.posted++
	if o.posted > faultFrom && o.fault == FailPost {
		return errors.New("endpoint has failed")
	}
	if o.posted > faultFrom && o.fault == Drop {
		return nil
	}
	switch {
	case o.spec.Kind == layer.Put:
		o.transfer(o.peer.mem, o.local)
	case o.spec.Kind == layer.Get:
		o.transfer(o.local, o.peer.mem)
	case o.spec.Kind.Atomic():
		o.atomic()
	case o.spec.Kind == layer.PutPing:
		o.ping()
	case o.spec.Kind.TwoSided():
		o.message()
	}
	return nil
}

// ping writes to the peer, and writes what the peer would reply.
func (o *op) ping() {
	layer.Stamp(o.local[:o.spec.Size], byte(o.posted))
	layer.Stamp(o.peer.local[:o.spec.Size], byte(o.posted))
	o.transfer(o.peer.mem, o.local)
	o.transfer(o.mem, o.peer.local)
	o.peer.got++
}

func (o *op) message() {
	o.peer.got++
	if o.fault == Corrupt {
		o.peer.partErr = layer.ErrData
	}
}

func (o *op) transfer(dst, src []byte) {
	n := o.spec.Size
	copy(dst[:n], src[:n])
	if o.fault == Corrupt {
		dst[n-1]++
	}
	if o.fault == Overrun {
		dst[n]++
	}
}

func (o *op) atomic() {
	word := binary.NativeEndian.Uint64(o.peer.mem)
	binary.NativeEndian.PutUint64(o.peer.mem, word+1)
	if o.spec.Kind != layer.Add {
		o.result = word
	}
}
