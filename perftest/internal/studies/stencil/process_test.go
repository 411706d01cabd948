package stencil

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/peers/children"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// served runs a rank on the other side of a pipe. Its Close closes the connection and returns the error of the
// rank.
type served struct {
	conn net.Conn
	done chan error
}

func (s *served) Close() error { return errors.Join(s.conn.Close(), <-s.done) }

func start(ctx context.Context) children.Start {
	return func() (net.Conn, io.Closer, error) {
		here, there := net.Pipe()
		s := &served{here, make(chan error, 1)}
		go func() { s.done <- ServeRank(ctx, there) }()
		return here, s, nil
	}
}

// Ranks that communicate only through their connections compute the same grid and need the same objects as ranks
// of one process.
func TestProcesses(t *testing.T) {
	for _, h := range [][2]int{{4, 1}, {2, 2}, {1, 4}} {
		for _, c := range []endpoint.Category{endpoint.MPIEverywhere, endpoint.Static, endpoint.MPIThreads} {
			t.Run(fmt.Sprintf("%d.%d/%v", h[0], h[1], c), func(t *testing.T) {
				b := bench(h[0], h[1])
				cfg := msgrate.Config{Plan: c.Plan(h[1]), Inline: c != endpoint.Static}
				want, err := b.Measure(t.Context(), mlx5.Config{}, cfg)
				require.NoError(t, err)
				p := &Processes{Problem: b.Problem, Start: start(t.Context())}
				got, err := p.Measure(t.Context(), mlx5.Config{}, cfg)
				require.NoError(t, err)
				assert.Equal(t, want.Rates.Messages, got.Rates.Messages)
				assert.Len(t, got.Rates.PerThread, 8)
				want.Resources.Bytes, got.Resources.Bytes = verbs.ResourceBytes{}, verbs.ResourceBytes{} // the bytes include connections
				assert.Equal(t, want.Resources, got.Resources)
			})
		}
	}
}

func TestProcesses_Errors(t *testing.T) {
	p := &Processes{Problem: bench(3, 1).Problem, Start: start(t.Context())}
	_, err := p.Measure(t.Context(), mlx5.Config{}, msgrate.Config{})
	require.ErrorContains(t, err, "8 rows for 6 ranks")
	p.Problem = bench(1, 2).Problem
	_, err = p.Measure(t.Context(), mlx5.Config{}, msgrate.Config{Plan: endpoint.Plan{Context: 2, CQ: 3}})
	require.ErrorContains(t, err, "3 threads share a CQ")
	gone := errors.New("gone")
	p.Start = func() (net.Conn, io.Closer, error) { return nil, nil, gone }
	_, err = p.Measure(t.Context(), mlx5.Config{}, msgrate.Config{})
	require.ErrorIs(t, err, gone)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	p.Start = start(t.Context())
	_, err = p.Measure(ctx, mlx5.Config{}, msgrate.Config{})
	require.ErrorIs(t, err, gone)
}

// When a rank dies, the waiting ranks and the measurement end.
func TestProcesses_RankDies(t *testing.T) {
	p := &Processes{Problem: bench(2, 2).Problem}
	n := 0
	p.Start = func() (net.Conn, io.Closer, error) {
		n++
		if n != 3 {
			return start(t.Context())()
		}
		here, there := net.Pipe()
		w := &worker{line: children.NewLine(there), rig: &msgrate.RealTime{Fabric: softhca.FabricShm}}
		done := make(chan error, 1)
		go func() { done <- errors.Join(w.open(), there.Close()) }()
		return here, closer(func() error { return errors.Join(here.Close(), <-done, w.undo.Run()) }), nil
	}
	_, err := p.Measure(t.Context(), mlx5.Config{}, msgrate.Config{Plan: endpoint.Dynamic.Plan(2)})
	require.ErrorContains(t, err, "process 2: ")
	require.ErrorIs(t, err, children.ErrGone)
}

type closer func() error

func (c closer) Close() error { return c() }
