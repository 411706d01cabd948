package msgrate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/peers/children"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
	"github.com/gucx/gucx/perftest/internal/studies/rclink"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// served runs a server on the other side of a pipe. Its Close closes the connection and returns the error of the
// server.
type served struct {
	conn net.Conn
	done chan error
}

func serveOn(server func(net.Conn) error) *served {
	here, there := net.Pipe()
	s := &served{here, make(chan error, 1)}
	go func() { s.done <- server(there) }()
	return s
}

func (s *served) Close() error { return errors.Join(s.conn.Close(), <-s.done) }

func TestRemote(t *testing.T) {
	rig := &RealTime{Remote: func() (Target, error) {
		s := serveOn(ServeTarget)
		return NewRemote(s.conn, s), nil
	}}
	o, err := Measure(t.Context(), rig, mlx5.Config{}, Config{Threads: 3, Messages: 640, Plan: endpoint.Dynamic.Plan(3)})
	require.NoError(t, err)
	assert.Equal(t, uint64(3*640), o.Counts.WQEs)
}

func TestRemote_Errors(t *testing.T) {
	s := serveOn(ServeTarget)
	r := NewRemote(s.conn, s)
	_, err := r.Memory()
	require.ErrorContains(t, err, "no memory yet")
	_, err = r.Accept(make([]rclink.Addr, 1), maxLanding+1)
	require.ErrorContains(t, err, "too many")
	require.NoError(t, r.Close())
	_, err = r.Memory()
	require.Error(t, err)
}

// TestRemote_FailsIfProcessIsGone: the error names a target that dies during a request or before one.
func TestRemote_FailsIfProcessIsGone(t *testing.T) {
	for name, serve := range map[string]func(net.Conn) error{
		"before": func(c net.Conn) error { return c.Close() },
		"in a request": func(c net.Conn) error {
			_, err := c.Read(make([]byte, 1<<10))
			return errors.Join(err, c.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			here, there, err := oob.Pipe()
			require.NoError(t, err)
			s := &served{here, make(chan error, 1)}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				s.done <- serve(there)
			}()
			if name == "before" {
				<-ended
			}
			r := NewRemote(s.conn, s)
			_, err = r.Memory()
			assert.ErrorIs(t, err, children.ErrGone)
			assert.ErrorIs(t, r.Close(), children.ErrGone)
		})
	}
}

// TestServeTarget_EndsWithInitiator: a target returns without an error when its initiator is gone, at any point.
func TestServeTarget_EndsWithInitiator(t *testing.T) {
	for name, sent := range map[string]string{"nothing": "", "half a request": `{"Len":`, "a request": "{}\n"} {
		t.Run(name, func(t *testing.T) {
			here, there, err := oob.Pipe()
			require.NoError(t, err)
			_, err = io.WriteString(here, sent)
			require.NoError(t, err)
			require.NoError(t, here.Close())
			assert.NoError(t, ServeTarget(there))
		})
	}
}

func workers(ctx context.Context) func() (net.Conn, io.Closer, error) {
	return func() (net.Conn, io.Closer, error) {
		s := serveOn(func(c net.Conn) error {
			return ServeWorker(ctx, c, func(f softhca.Fabric) Rig { return &RealTime{Fabric: f} })
		})
		return s.conn, s, nil
	}
}

func TestProcesses(t *testing.T) {
	p := &Processes{Count: 2, Fabric: softhca.FabricLoop, Start: workers(t.Context())}
	o, err := p.Measure(t.Context(), mlx5.Config{}, Config{Threads: 4, Messages: 640, Plan: endpoint.Dynamic.Plan(2)})
	require.NoError(t, err)
	assert.Positive(t, o.Rates.Total)
	assert.Len(t, o.Rates.PerThread, 4)
	assert.Equal(t, 4, o.Config.Threads)
	assert.Equal(t, []int{2, 4, 2 * (8 + 2)}, []int{o.Resources.Contexts, o.Resources.QPs, o.Resources.UARPages})
	assert.Equal(t, uint64(4*640), o.Counts.WQEs)
	assert.Positive(t, o.Rates.Elapsed)
}

// TestProcesses_EndWithInitiator: a worker stops when its initiator is gone.
func TestProcesses_EndWithInitiator(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	start := func() (net.Conn, io.Closer, error) {
		s := serveOn(func(c net.Conn) error {
			return ServeWorker(t.Context(), c, func(f softhca.Fabric) Rig {
				cancel(why)
				return &RealTime{Fabric: f}
			})
		})
		return s.conn, s, nil
	}
	p := &Processes{Count: 1, Fabric: softhca.FabricLoop, Start: start}
	_, err := p.Measure(ctx, mlx5.Config{}, Config{Threads: 2, Messages: 1 << 40})
	require.ErrorIs(t, err, why)
}

// noReader is one side of a connection whose other side is gone; only writes detect that yet.
type noReader struct{ net.Conn }

func (noReader) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestServeWorker_EndsWithInitiator: a worker that cannot reply returns without an error.
func TestServeWorker_EndsWithInitiator(t *testing.T) {
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- ServeWorker(t.Context(), noReader{there}, func(f softhca.Fabric) Rig { return &RealTime{Fabric: f} })
	}()
	require.NoError(t, json.NewEncoder(here).Encode(job{Config: Config{Messages: 64}, Fabric: softhca.FabricLoop}))
	assert.NoError(t, <-served)
	require.NoError(t, here.Close())
}

func TestProcesses_Errors(t *testing.T) {
	p := &Processes{Count: 2, Fabric: softhca.FabricLoop, Start: workers(t.Context())}
	_, err := p.Measure(t.Context(), mlx5.Config{}, Config{Threads: 3})
	require.ErrorContains(t, err, "3 threads in 2 processes")
	_, err = p.Measure(t.Context(), mlx5.Config{}, Config{Threads: 2, Depth: 65})
	require.ErrorContains(t, err, "must be a multiple")
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err = p.Measure(ctx, mlx5.Config{}, Config{Threads: 2, Messages: 64})
	require.ErrorIs(t, err, why)
}
