// Package target is the passive side of a measurement: it opens the layers that the initiator requests, owns the
// memory, and checks its contents. Between requests it blocks in a read, so operations that complete meanwhile are
// one-sided. If the operation or the transport needs the target, it does its part instead, and checks for a request
// when it is idle.
package target

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/pattern"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
)

// maxLayers is the maximum number of open layers of one session.
const maxLayers = 16

// Options are options of a target. The zero value is for a target in a process of its own.
type Options struct {
	// HelloTimeout is the maximum wait for the first message; 0 means no limit.
	HelloTimeout time.Duration
	// Beside: the initiator is in this process.
	Beside bool
	// Device returns the device to open for the parameters of the initiator; nil means the one that they name.
	Device func(oob.Params) string
}

// Serve serves one initiator until it sends bye or disconnects, or until ctx ends. It closes c, which must be a socket.
// It returns ErrDisconnected if the initiator closes the connection without bye.
func Serve(ctx context.Context, c net.Conn, layers layer.Set, o Options) error {
	s := &session{conn: oob.NewConn(c), layers: layers, sides: map[string]*side{}, ctx: ctx, beside: o.Beside, device: o.Device}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	err := s.run(o.HelloTimeout)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, s.close())
}

// session is the state of one initiator.
type session struct {
	conn    *oob.Conn
	layers  layer.Set
	sides   map[string]*side
	ctx     context.Context // ends the session
	beside  bool
	device  func(oob.Params) string // see Options
	driving *side                   // layer driven since the last request other than State; nil for none
	driven  bool                    // since the last request to Drive, layers made progress
}

func (s *session) run(helloTimeout time.Duration) error {
	first, err := s.conn.Receive(helloTimeout)
	if errors.Is(err, oob.ErrVersion) {
		s.conn.Refuse(err, helloTimeout)
	}
	if err != nil {
		return sessionError(err)
	}
	if first.Verb != oob.Hello {
		return fmt.Errorf("%w: %s before hello", oob.ErrFrame, first.Verb)
	}
	if err := s.conn.Reply(oob.Reply{Value: uint64(os.Getpid())}, nil); err != nil {
		return sessionError(err)
	}
	return s.serve()
}

// serve replies to requests one by one. Between a drive and the next request it progresses the driven layer.
func (s *session) serve() error {
	for {
		req, err := s.conn.Receive(0)
		if err != nil {
			return sessionError(err)
		}
		reply, failure := s.handle(req)
		if req.Verb != oob.State {
			s.driven, s.driving = false, nil
		}
		if err := s.conn.Reply(reply, failure); err != nil {
			return sessionError(err)
		}
		switch {
		case req.Verb == oob.Bye:
			return nil
		case req.Verb == oob.Drive && failure == nil:
			s.driving = s.sides[req.Layer]
		}
		if s.driving == nil {
			continue
		}
		if err := s.drive(s.driving, time.Duration(req.Value)); err != nil {
			return fmt.Errorf("%s: %w", req.Layer, err)
		}
	}
}

const (
	// lookIdle is the number of consecutive idle polls between two checks for a request: longer than a message takes,
	// so that no check falls into a ping-pong.
	lookIdle = 256
	// lookBusy is the number of polls with events between two checks.
	lookBusy = 1 << 20
	// yieldIdle is the number of idle polls before the target yields the CPU to an initiator in this process; it divides
	// lookIdle.
	yieldIdle = 64
	// parkTime is the time for which a target parks before it polls for an initiator in this process.
	parkTime = time.Microsecond
)

// drive makes progress until a request has arrived. If one arrives within the delay, it makes none.
func (s *session) drive(e *side, delay time.Duration) error {
	if delay > 0 && s.conn.Await(delay) {
		return nil
	}
	s.driven = true
	if s.beside {
		// The initiator waits for the reply at a descriptor. With one CPU, the runtime polls descriptors if no
		// goroutine is ready, but only each 10 ms while one spins.
		time.Sleep(parkTime)
	}
	part, nap := e.driven(), s.napOf(e)
	for idle, busy := 0, 0; ; {
		n, err := part.Progress()
		switch {
		case err != nil:
			return err
		case n > 0:
			idle = 0
			if busy++; busy%lookBusy != 0 {
				continue
			}
		case nap != nil:
			if asked, err := nap(); asked || err != nil {
				return err
			}
			continue
		default:
			if idle++; idle%yieldIdle != 0 {
				continue
			}
		}
		if s.asked(idle) {
			return nil
		}
	}
}

// asked gives way to the initiator, and reports whether a request has arrived. It checks for one only after lookIdle idle
// polls, or if the latest poll was busy.
func (s *session) asked(idle int) bool {
	if s.beside {
		runtime.Gosched()
	}
	if idle%lookIdle != 0 {
		return false
	}
	layer.YieldThread()
	return s.conn.Ready()
}

// napOf returns a function that sleeps until e may have work or a request has arrived, and reports whether one has. It
// returns nil if e must poll.
func (s *session) napOf(e *side) func() (asked bool, err error) {
	if e.sleeper == nil {
		return nil
	}
	var asked bool
	var failed error
	sleep := func(fd uintptr) { asked, failed = e.sleeper.Sleep(int(fd)) }
	return func() (bool, error) {
		if s.conn.Control(sleep) != nil {
			return true, nil // reading reports that it is closed
		}
		return asked, failed
	}
}

// ErrDisconnected is the error if the initiator has closed the connection without bye, or has died.
var ErrDisconnected = errors.New("the initiator disconnected before the end of the session")

// sessionError returns the reason why a session ended without bye.
func sessionError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return ErrDisconnected
	}
	return err
}

func (s *session) handle(r oob.Request) (oob.Reply, error) {
	switch r.Verb {
	case oob.Hello:
		return oob.Reply{}, errors.New("already said hello")
	case oob.Bye:
		return oob.Reply{}, nil
	case oob.Rest:
		return oob.Reply{Value: one(s.driven)}, nil
	case oob.Open:
		return s.openLayer(r.Layer, *r.Params)
	}
	e, ok := s.sides[r.Layer]
	if !ok {
		return oob.Reply{}, errors.New("layer is not open")
	}
	if r.Verb == oob.Close {
		delete(s.sides, r.Layer)
		return oob.Reply{}, e.conn.Close()
	}
	return e.handle(r)
}

// one is 1 for true.
func one(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// side is the target's side of one layer.
type side struct {
	conn    layer.Conn
	sleeper layer.Sleeper // conn, if it must sleep while it has no work; else nil
	part    layer.Part    // part in the prepared operation; nil for none
}

// driven returns the part of the target while the initiator measures.
func (e *side) driven() progresser {
	if e.part != nil {
		return e.part
	}
	return bystander{e.conn}
}

// progresser is what drive needs of a layer.Part.
type progresser interface{ Progress() (int, error) }

// bystander is the progresser of operations in which the target has no part.
type bystander struct{ conn layer.Conn }

func (b bystander) Progress() (int, error) { return b.conn.Progress(), nil }

// handle serves the requests about an open layer.
func (e *side) handle(r oob.Request) (oob.Reply, error) {
	switch r.Verb {
	case oob.Connect:
		return oob.Reply{}, e.conn.Connect(r.Address)
	case oob.Prepare:
		return oob.Reply{}, e.prepare(r.Spec)
	case oob.Finish:
		return e.finish()
	case oob.Drive:
		return oob.Reply{}, nil
	case oob.State:
		text := layer.State(e.part, e.conn)
		return oob.Reply{State: text[:min(len(text), oob.MaxState)]}, nil
	}
	return Memory(e.conn.Memory(), r)
}

func (e *side) prepare(s *oob.Spec) (err error) {
	local := e.conn.Local()
	if s.Size > len(local) {
		return fmt.Errorf("%d bytes of a memory of %d", s.Size, len(local))
	}
	pattern.Fill(local[:s.Size], s.Seed)
	e.part, err = e.conn.Part(layer.Spec{Kind: layer.Kind(s.Kind), Size: s.Size, Window: s.Window,
		Variant: layer.Variant(s.Variant), Seed: s.Seed, Thorough: s.Thorough,
		Wildcard: s.Wildcard, Unexpected: s.Unexpected, Written: s.Written,
		Layouts: layer.Layouts{Send: layer.Layout(s.SendLayout), Recv: layer.Layout(s.RecvLayout)}})
	return err
}

func (e *side) finish() (oob.Reply, error) {
	if e.part == nil {
		return oob.Reply{}, errors.New("nothing was prepared")
	}
	n, err := e.part.Finish()
	e.part = nil
	return oob.Reply{Value: n}, err
}

// Memory serves the requests that only access memory: Fill, Check, SetWord and Word.
func Memory(mem []byte, r oob.Request) (oob.Reply, error) {
	switch r.Verb {
	case oob.Fill:
		return oob.Reply{}, fill(mem, r.Seed, r.Len)
	case oob.Check:
		return oob.Reply{}, check(mem, r.Seed, r.Len, r.Stamp)
	case oob.SetWord:
		binary.NativeEndian.PutUint64(mem, r.Value)
		return oob.Reply{}, nil
	case oob.Word:
		return oob.Reply{Value: binary.NativeEndian.Uint64(mem)}, nil
	}
	return oob.Reply{}, fmt.Errorf("unknown verb %q", r.Verb)
}

func (s *session) openLayer(name string, p oob.Params) (oob.Reply, error) {
	open, known := s.layers.Open[name]
	switch {
	case !known:
		return oob.Reply{}, fmt.Errorf("unknown layer; there are %v", s.layers.Names)
	case s.sides[name] != nil:
		return oob.Reply{}, errors.New("layer is open already")
	case len(s.sides) == maxLayers:
		return oob.Reply{}, fmt.Errorf("at most %d layers", maxLayers)
	}
	if s.device != nil {
		p.Device = s.device(p)
	}
	c, err := open(layer.Config{
		Transport: p.Transport, Device: p.Device, Fabric: p.Fabric,
		MemLen: max(p.MemLen, layer.WordLen), Memory: layer.Memory(p.Memory), Context: s.ctx, Beside: s.beside, Sleep: p.Sleep,
	})
	if err != nil {
		return oob.Reply{}, err
	}
	e := &side{conn: c}
	if p.Sleep {
		if e.sleeper, _ = c.(layer.Sleeper); e.sleeper == nil {
			return oob.Reply{}, errors.Join(errors.New("the layer cannot sleep"), c.Close())
		}
	}
	addr, err := c.Address()
	if err != nil {
		return oob.Reply{}, errors.Join(err, c.Close())
	}
	s.sides[name] = e
	return oob.Reply{Address: addr}, nil
}

// guardLen is the number of bytes after the first n that are filled and checked too, with a pattern of their own, so
// that an operation that writes too much is detected.
const (
	guardLen  = 4096
	guardSeed = 0x6775617264
)

func guard(mem []byte, n int) []byte { return mem[n:min(n+guardLen, len(mem))] }

func fill(mem []byte, seed uint64, n int) error {
	if n > len(mem) {
		return fmt.Errorf("%d bytes of a memory of %d", n, len(mem))
	}
	pattern.Fill(mem[:n], seed)
	pattern.Fill(guard(mem, n), guardSeed)
	return nil
}

// check also replaces correct stamps by the pattern.
func check(mem []byte, seed uint64, n int, stamp *byte) error {
	if n > len(mem) {
		return fmt.Errorf("%d bytes of a memory of %d", n, len(mem))
	}
	if stamp != nil && n > 0 {
		if err := layer.CheckStamp(mem[:n], *stamp); err != nil {
			return fmt.Errorf("data arrived wrong: %w", err)
		}
		mem[0], mem[n-1] = pattern.Byte(seed, 0), pattern.Byte(seed, n-1)
	}
	if err := pattern.Check(mem[:n], seed); err != nil {
		return fmt.Errorf("data arrived wrong: %w", err)
	}
	if err := pattern.Check(guard(mem, n), guardSeed); err != nil {
		return fmt.Errorf("bytes after the data were changed: %w", err)
	}
	return nil
}

// close closes the layers that the initiator left open, in any order: layers do not share objects.
func (s *session) close() error {
	errs := []error{s.conn.Close()}
	for _, e := range s.sides {
		errs = append(errs, e.conn.Close())
	}
	return errors.Join(errs...)
}
