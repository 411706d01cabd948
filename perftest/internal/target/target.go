// Package target is the passive side of a measurement: it opens what the
// initiator asks for, keeps the memory, and says what is in it. Between requests
// it is blocked in a read, so whatever completes meanwhile is one-sided.
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

	"github.com/gucx/gucx/perftest/internal/layer"
	"github.com/gucx/gucx/perftest/internal/oob"
	"github.com/gucx/gucx/perftest/internal/pattern"
)

// maxLayers bounds how many layers one session keeps open.
const maxLayers = 16

// Serve answers one initiator until it says bye, hangs up, or ctx ends; it closes
// c. A hang-up without bye is io.ErrUnexpectedEOF. helloTimeout bounds the wait
// for the first message; 0 means no limit.
func Serve(ctx context.Context, c net.Conn, layers layer.Set, helloTimeout time.Duration) error {
	s := &session{conn: oob.NewConn(c), layers: layers, open: map[string]layer.Conn{}, ctx: ctx}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	err := s.run(helloTimeout)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, s.close())
}

// session is the state of one initiator.
type session struct {
	conn   *oob.Conn
	layers layer.Set
	open   map[string]layer.Conn
	ctx    context.Context // ends the session
}

// arrival is what the reader hands over: a request, or why there are no more.
type arrival struct {
	req oob.Request
	err error
}

func (s *session) run(helloTimeout time.Duration) error {
	first, err := s.conn.Receive(helloTimeout)
	if err != nil {
		return lastWord(err)
	}
	if first.Verb != oob.Hello {
		return fmt.Errorf("%w: %s before hello", oob.ErrFrame, first.Verb)
	}
	if err := s.conn.Answer(oob.Reply{Value: uint64(os.Getpid())}, nil); err != nil {
		return err
	}
	return s.serve()
}

// serve answers requests one by one; between a drive and the next request it
// progresses the driven layer.
func (s *session) serve() error {
	requests, answered := make(chan arrival), make(chan struct{})
	defer close(answered)
	go s.read(requests, answered)
	var driven layer.Conn
	for {
		a := wait(requests, driven)
		driven = nil
		if a.err != nil {
			return lastWord(a.err)
		}
		reply, failure := s.handle(a.req)
		if err := s.conn.Answer(reply, failure); err != nil {
			return err
		}
		if a.req.Verb == oob.Bye {
			return nil
		}
		if a.req.Verb == oob.Drive && failure == nil {
			driven = s.open[a.req.Layer]
		}
		answered <- struct{}{}
	}
}

// read receives requests, the next one only when the last is answered.
func (s *session) read(requests chan<- arrival, answered <-chan struct{}) {
	for ok := true; ok; _, ok = <-answered {
		r, err := s.conn.Receive(0)
		select {
		case requests <- arrival{r, err}:
		case <-answered:
			return
		}
		if err != nil {
			return
		}
	}
}

// wait blocks for the next request, progressing driven meanwhile if there is one.
func wait(requests <-chan arrival, driven layer.Conn) arrival {
	if driven == nil {
		return <-requests
	}
	for {
		select {
		case a := <-requests:
			return a
		default:
			if driven.Progress() == 0 {
				runtime.Gosched()
			}
		}
	}
}

// lastWord is why a session ended without bye.
func lastWord(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (s *session) handle(r oob.Request) (oob.Reply, error) {
	switch r.Verb {
	case oob.Hello:
		return oob.Reply{}, errors.New("already said hello")
	case oob.Bye:
		return oob.Reply{}, nil
	case oob.Open:
		return s.openLayer(r.Layer, *r.Params)
	}
	c, ok := s.open[r.Layer]
	if !ok {
		return oob.Reply{}, errors.New("layer is not open")
	}
	return s.handleOpen(c, r)
}

// handleOpen serves the requests about an open layer.
func (s *session) handleOpen(c layer.Conn, r oob.Request) (oob.Reply, error) {
	switch r.Verb {
	case oob.Connect:
		return oob.Reply{}, c.Connect(r.Address)
	case oob.Drive:
		return oob.Reply{}, nil
	case oob.Fill:
		return oob.Reply{}, fill(c.Memory(), r.Seed, r.Len)
	case oob.Check:
		return oob.Reply{}, check(c.Memory(), r.Seed, r.Len)
	case oob.SetWord:
		binary.NativeEndian.PutUint64(c.Memory(), r.Value)
		return oob.Reply{}, nil
	case oob.Word:
		return oob.Reply{Value: binary.NativeEndian.Uint64(c.Memory())}, nil
	case oob.Close:
		delete(s.open, r.Layer)
		return oob.Reply{}, c.Close()
	}
	return oob.Reply{}, fmt.Errorf("unknown verb %q", r.Verb)
}

func (s *session) openLayer(name string, p oob.Params) (oob.Reply, error) {
	open, known := s.layers.Open[name]
	switch {
	case !known:
		return oob.Reply{}, fmt.Errorf("unknown layer; there are %v", s.layers.Names)
	case s.open[name] != nil:
		return oob.Reply{}, errors.New("layer is open already")
	case len(s.open) == maxLayers:
		return oob.Reply{}, fmt.Errorf("at most %d layers", maxLayers)
	}
	c, err := open(layer.Config{
		Transport: p.Transport, Device: p.Device, Fabric: p.Fabric,
		MemLen: max(p.MemLen, layer.WordLen), Context: s.ctx,
	})
	if err != nil {
		return oob.Reply{}, err
	}
	addr, err := c.Address()
	if err != nil {
		return oob.Reply{}, errors.Join(err, c.Close())
	}
	s.open[name] = c
	return oob.Reply{Address: addr}, nil
}

// guardLen bytes after the first n are filled and checked too, with a pattern of
// their own, so that an operation that writes too much is seen.
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

func check(mem []byte, seed uint64, n int) error {
	if n > len(mem) {
		return fmt.Errorf("%d bytes of a memory of %d", n, len(mem))
	}
	if err := pattern.Check(mem[:n], seed); err != nil {
		return fmt.Errorf("data arrived wrong: %w", err)
	}
	if err := pattern.Check(guard(mem, n), guardSeed); err != nil {
		return fmt.Errorf("bytes after the data were changed: %w", err)
	}
	return nil
}

// close closes what the initiator left open, in no order that matters: layers do
// not share objects.
func (s *session) close() error {
	errs := []error{s.conn.Close()}
	for _, c := range s.open {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
