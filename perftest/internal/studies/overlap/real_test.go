package overlap

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/peers/children"
)

// served runs a node on the other side of a pipe. Its Close closes the connection and returns the error of the
// node.
type served struct {
	conn net.Conn
	done chan error
}

func (s *served) Close() error { return errors.Join(s.conn.Close(), <-s.done) }

func startNode(ctx context.Context) children.Start {
	return func() (net.Conn, io.Closer, error) {
		here, there := net.Pipe()
		s := &served{here, make(chan error, 1)}
		go func() { s.done <- ServeNode(ctx, there) }()
		return here, s, nil
	}
}

// Nodes that communicate only through their connections measure each side and protocol.
func TestReal(t *testing.T) {
	s := Study{Protocols: Protocols(), Sides: Sides(), Sizes: []int{8, 4 * EagerLimit}, Iterations: 3, Warmup: 1}
	rows, refused, err := s.Run(t.Context(), Real(startNode(t.Context())), nil)
	require.NoError(t, err)
	assert.Empty(t, refused)
	require.Len(t, rows, s.Cases())
	for _, r := range rows {
		assert.Positive(t, r.Base)
		assert.Positive(t, r.Work)
		assert.Greater(t, float64(r.Iteration), enough*float64(r.Base))
		assert.Positive(t, r.Process)
		assert.LessOrEqual(t, r.Program, r.Process, "the time of a thread exceeds that of its process")
	}
}

// When a node dies, the other one and the measurement end.
func TestReal_NodeDies(t *testing.T) {
	n := 0
	start := func() (net.Conn, io.Closer, error) {
		n++
		if n == 1 {
			return startNode(t.Context())()
		}
		here, there := net.Pipe()
		done := make(chan error, 1)
		go func() {
			line := children.NewLine(there)
			node := &realNode{ctx: t.Context()}
			var j job
			err := line.Receive(&j)
			if err == nil {
				err = line.Reply(node.open(j))
			}
			done <- errors.Join(err, there.Close(), node.undo.Run())
		}()
		return here, closer(func() error { return errors.Join(here.Close(), <-done) }), nil
	}
	s := Study{Protocols: protocols(t, "rget"), Sides: []Side{Isend}, Sizes: []int{8}, Iterations: 1}
	_, _, err := s.Run(t.Context(), Real(start), nil)
	require.ErrorIs(t, err, children.ErrGone)
}

type closer func() error

func (c closer) Close() error { return c() }

// The result is the best of the disturbed runs.
func TestBest(t *testing.T) {
	p := &scripted{times: []Times{{Iteration: 9, Program: 1}, {Iteration: 7, Program: 2}, {Iteration: 8}}}
	s := Study{Rounds: 3}
	got, err := s.best(t.Context(), p, Exchange{})
	require.NoError(t, err)
	assert.Equal(t, Times{Iteration: 7, Program: 2}, got)
	_, err = s.best(t.Context(), p, Exchange{})
	require.ErrorIs(t, err, io.EOF)
}

// scripted is a pair with given times.
type scripted struct{ times []Times }

func (p *scripted) Run(context.Context, Exchange) (Times, error) {
	if len(p.times) == 0 {
		return Times{}, io.EOF
	}
	t := p.times[0]
	p.times = p.times[1:]
	return t, nil
}

func (p *scripted) Close() error { return nil }

// The work is a number of rounds: twice as many for twice the time.
func TestWorkLoop(t *testing.T) {
	var l workLoop
	l.calibrate()
	assert.Positive(t, l.perMicro)
	l.run(0)
	before := l.sum
	l.run(1000)
	assert.NotEqual(t, before, l.sum)
}
