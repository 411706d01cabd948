package ucpgroup

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/gucx/gucx/ucs"
)

// Bootstrap lets ranks exchange addresses before they can send messages: a table that all ranks
// write to, and a fence. One goroutine owns it.
type Bootstrap interface {
	// Rank returns the rank of this process, from 0.
	Rank() int
	// Size returns the number of ranks.
	Size() int
	// Put publishes a value under a key of this rank. It may be called once for each key. It copies value. Before the next
	// fence it is undefined whether other ranks get the value.
	Put(ctx context.Context, key string, value []byte) error
	// Fence returns when every rank has called it. Get then returns the values that were put before the
	// fence. If ctx is done first, Fence, Put and Get return its error, and the
	// bootstrap is not usable any more.
	Fence(ctx context.Context) error
	// Get returns a value that a rank has put. The error wraps ErrInvalidParam if there is none.
	Get(ctx context.Context, rank int, key string) ([]byte, error)
	// Close ends the use of the bootstrap: the launcher does not wait for this rank any more. The
	// group is not affected.
	Close() error
}

// InProcess returns the bootstraps of n ranks that are goroutines of this process. If a rank
// closes its bootstrap, the fences of the others fail with
// ErrPeerClosed.
func InProcess(n int) []Bootstrap {
	t := &table{n: n, values: map[tableKey][]byte{}, round: newRound()}
	list := make([]Bootstrap, n)
	for q := range list {
		list[q] = &member{t: t, rank: q}
	}
	return list
}

// table is the common state of the bootstraps of InProcess.
type table struct {
	mu      sync.Mutex
	n       int
	values  map[tableKey][]byte
	arrived int // number of ranks that wait at the fence
	round   *round
	left    bool // a rank has closed its bootstrap
}

// round is one fence.
type round struct {
	over chan struct{} // closed when all ranks have called Fence, or one has closed its bootstrap
	err  error         // written before over is closed
}

func newRound() *round { return &round{over: make(chan struct{})} }

type tableKey struct {
	rank int
	key  string
}

// member is the bootstrap of one rank.
type member struct {
	t      *table
	rank   int
	closed bool
}

// Rank implements Bootstrap.
func (m *member) Rank() int { return m.rank }

// Size implements Bootstrap.
func (m *member) Size() int { return m.t.n }

// Put implements Bootstrap.
func (m *member) Put(_ context.Context, key string, value []byte) error {
	m.t.mu.Lock()
	defer m.t.mu.Unlock()
	m.t.values[tableKey{m.rank, key}] = slices.Clone(value)
	return nil
}

// Fence implements Bootstrap.
func (m *member) Fence(ctx context.Context) error {
	x, err := m.t.arrive()
	if err != nil {
		return err
	}
	select {
	case <-x.over:
		return x.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// arrive counts a rank at the fence.
func (t *table) arrive() (*round, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left {
		return nil, errLeft
	}
	x := t.round
	if t.arrived++; t.arrived == t.n {
		close(x.over)
		t.arrived, t.round = 0, newRound()
	}
	return x, nil
}

var errLeft = fmt.Errorf("fence: a rank has left: %w", ucs.ErrPeerClosed)

// Get implements Bootstrap.
func (m *member) Get(_ context.Context, rank int, key string) ([]byte, error) {
	m.t.mu.Lock()
	defer m.t.mu.Unlock()
	v, ok := m.t.values[tableKey{rank, key}]
	if !ok {
		return nil, fmt.Errorf("key %q of rank %d: %w", key, rank, ucs.ErrInvalidParam)
	}
	return slices.Clone(v), nil
}

// Close implements Bootstrap.
func (m *member) Close() error {
	m.t.mu.Lock()
	defer m.t.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	if !m.t.left {
		m.t.left = true
		m.t.round.err = errLeft
		close(m.t.round.over)
	}
	return nil
}
