package sp

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// lines are the channels between ranks of one process, by sender, receiver and tag.
type lines struct {
	ranks   int
	message [][][Tags]chan []byte
	barrier *allreduce
}

// inbox is the capacity of a channel: more messages than a rank can be ahead of a neighbor.
const inbox = 4

func newLines(ranks int) *lines {
	l := &lines{ranks: ranks, barrier: newAllreduce(ranks)}
	for range ranks {
		to := make([][Tags]chan []byte, ranks)
		for i := range to {
			for tag := range to[i] {
				to[i][tag] = make(chan []byte, inbox)
			}
		}
		l.message = append(l.message, to)
	}
	return l
}

// allreduce adds the values of all ranks.
type allreduce struct {
	mu    sync.Mutex
	all   *sync.Cond
	ranks int
	here  int
	round int
	sum   []float64
	total []float64 // of the previous round
}

func newAllreduce(ranks int) *allreduce {
	m := &allreduce{ranks: ranks}
	m.all = sync.NewCond(&m.mu)
	return m
}

func (m *allreduce) add(v []float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.here == 0 {
		m.sum = make([]float64, len(v))
	}
	for i, x := range v {
		m.sum[i] += x
	}
	round := m.round
	if m.here++; m.here == m.ranks {
		m.here, m.total = 0, m.sum
		m.round++
		m.all.Broadcast()
	}
	for m.round == round {
		m.all.Wait()
	}
	copy(v, m.total)
}

// line is the comm of a rank over lines.
type line struct {
	*lines
	rank int
	wait []func()
}

func (l *line) Rank() int { return l.rank }
func (l *line) Size() int { return l.ranks }

func (l *line) Isend(to, tag int, b []byte) error {
	l.message[l.rank][to][tag] <- append([]byte(nil), b...)
	return nil
}

func (l *line) Irecv(from, tag int, b []byte) error {
	l.wait = append(l.wait, func() { copy(b, <-l.message[from][l.rank][tag]) })
	return nil
}

func (l *line) WaitAll() error {
	for _, w := range l.wait {
		w()
	}
	l.wait = nil
	return nil
}

func (l *line) Sum(v []float64) error {
	l.barrier.add(v)
	return nil
}

func (l *line) Barrier() error {
	l.barrier.add(nil)
	return nil
}

// runTogether runs a class on goroutines and returns the results, which are verified.
func runTogether(t *testing.T, name string, ranks int) []Result {
	t.Helper()
	class, err := ParseClass(name)
	assert.NoError(t, err)
	l, results := newLines(ranks), make([]Result, ranks)
	var wait sync.WaitGroup
	for i := range ranks {
		wait.Go(func() {
			r, err := NewRank(class, &line{lines: l, rank: i})
			if !assert.NoError(t, err) {
				return
			}
			results[i], err = r.Run(t.Context(), nil)
			assert.NoError(t, err)
			assert.NoError(t, class.Verify(results[i].Norms))
		})
	}
	wait.Wait()
	return results
}
