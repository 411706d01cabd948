package ucpgroup

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// machine runs the schedules of n ranks without workers. A message is copied as late as possible: when its
// receiver waits for it. Until then its sender waits too, as for a rendezvous. So it finds buffers that a schedule
// changes too early, and ranks that wait for each other.
type machine struct {
	t     *testing.T
	ranks []*modelRank
	sent  map[[2]int][]*modelMessage // by sender and receiver, not received yet
	cost
}

// cost is the cost of an operation.
type cost struct {
	messages int // of all ranks
	bytes    int // in them
	rounds   int // maximum of the ranks: waits for at least one message, including the end of the schedule
}

type modelRank struct {
	s      *schedule
	at     int // the next step
	sends  []*modelMessage
	recvs  []step
	rounds int
}

type modelMessage struct {
	buf      []byte
	received bool
}

// modelComms returns the communicators of n ranks without workers.
func modelComms(n int) []*Comm {
	comms := make([]*Comm, n)
	for q := range comms {
		comms[q] = newComm(&Group{rank: q, peers: make([]peer, n)}, worldContext, q, allRanks(n))
	}
	return comms
}

// runModel runs an operation whose schedules begin makes, and returns its cost.
func runModel(t *testing.T, n int, begin func(c *Comm) (*schedule, error)) cost {
	t.Helper()
	m := &machine{t: t, sent: map[[2]int][]*modelMessage{}}
	for _, c := range modelComms(n) {
		s, err := begin(c)
		require.NoError(t, err)
		m.ranks = append(m.ranks, &modelRank{s: s})
	}
	for running := n; running > 0; {
		before := running
		moved := false
		running = 0
		for q, r := range m.ranks {
			moved = m.run(q, r) || moved
			if r.at <= len(r.s.steps) {
				running++
			}
		}
		require.True(t, moved || running < before, "the ranks wait for each other")
	}
	for _, r := range m.ranks {
		m.rounds = max(m.rounds, r.rounds)
	}
	return m.cost
}

// run executes the steps of a rank up to a wait that is not complete, and reports whether it did anything. A rank that
// has completed is behind the last step.
func (m *machine) run(me int, r *modelRank) (moved bool) {
	for r.at <= len(r.s.steps) {
		if r.at == len(r.s.steps) || r.s.steps[r.at].kind == stepWait {
			took, over := m.wait(me, r)
			if moved = moved || took; !over {
				return moved
			}
		} else {
			m.do(me, r, r.s.steps[r.at])
		}
		r.at, moved = r.at+1, true
	}
	return moved
}

// do executes a step that is no wait.
func (m *machine) do(me int, r *modelRank, x step) {
	switch x.kind {
	case stepSend:
		msg := &modelMessage{buf: x.buf}
		to := [2]int{me, x.peer}
		m.sent[to] = append(m.sent[to], msg)
		r.sends = append(r.sends, msg)
		m.messages++
		m.bytes += len(x.buf)
	case stepRecv:
		r.recvs = append(r.recvs, x)
	case stepCopy:
		require.Len(m.t, x.from, len(x.buf), "rank %d: a copy of another length", me)
		require.False(m.t, len(x.buf) > 0 && &x.buf[0] == &x.from[0], "rank %d: a copy onto itself", me)
		copy(x.buf, x.from)
	case stepFold:
		r.s.fold(x.buf, x.from)
	}
}

// wait receives the messages that were sent to a rank. It reports whether there were any, and whether the rank waits
// for no more.
func (m *machine) wait(me int, r *modelRank) (took, over bool) {
	waits := len(r.sends)+len(r.recvs) > 0
	left := r.recvs[:0]
	for _, x := range r.recvs {
		from := [2]int{x.peer, me}
		if len(m.sent[from]) == 0 {
			left = append(left, x)
			continue
		}
		msg := m.sent[from][0]
		m.sent[from] = m.sent[from][1:]
		require.Len(m.t, msg.buf, len(x.buf), "from rank %d to rank %d", x.peer, me)
		copy(x.buf, msg.buf)
		msg.received, took = true, true
	}
	r.recvs = left
	for _, msg := range r.sends {
		if !msg.received {
			return took, false
		}
	}
	if len(left) > 0 {
		return took, false
	}
	r.sends = nil
	if waits {
		r.rounds++
	}
	return took, true
}

// schedule makes the schedule of rank q.
func (x *task) schedule(c *Comm, q int) (*schedule, error) {
	switch x.name {
	case "bcast":
		return c.bcast(x.root, x.recv[q])
	case "gather":
		return c.gather(x.root, x.send[q], x.recv[q])
	case "scatter":
		return c.scatter(x.root, x.send[q], x.recv[q])
	case "allgather":
		return c.allgather(x.send[q], x.recv[q])
	case "alltoall":
		return c.alltoall(x.send[q], x.recv[q])
	case "reduce":
		return reduce(c, x.root, x.nums[q], x.sums[q], Sum[int64])
	case "allreduce":
		return allreduce(c, x.nums[q], x.sums[q], Sum[int64])
	}
	return c.barrier()
}

// runTask runs an operation in the model, and checks the results.
func runTask(t *testing.T, x *task) cost {
	t.Helper()
	n := len(x.recv)
	took := runModel(t, n, func(c *Comm) (*schedule, error) { return x.schedule(c, c.rank) })
	for q := range n {
		require.NoError(t, x.check(q), "%d ranks, root %d", n, x.root)
	}
	return took
}

// TestModel_Results: each operation gives each rank the right result, at any number of ranks and root and around
// the limits between algorithms.
func TestModel_Results(t *testing.T) {
	testenv.SkipRace(t, "one goroutine has all ranks")
	const most = 200_000 // bytes of all ranks, so that the test is fast
	rng := rand.New(rand.NewPCG(3, 4))
	for n := 1; n <= 17; n++ {
		for _, kind := range kinds {
			sizes := []int{0, 1, 257, 1600, 16_000, 33_000, 93_000}
			for _, size := range sizes {
				if size*n > most {
					continue
				}
				for _, root := range []int{0, n / 2, n - 1} {
					count := size / 4
					runTask(t, newTask(rng, kind, n, root, size, count))
				}
			}
		}
	}
}

// TestModel_Cost: the number of ranks and the length decide which algorithm runs, exactly at its limits. Each
// sends as many messages and bytes, in as many rounds, as it is known to need.
func TestModel_Cost(t *testing.T) {
	testenv.SkipRace(t, "one goroutine has all ranks")
	const kib = 1 << 10
	for _, tt := range []struct {
		kind    string
		n, size int // of a part in bytes; of bcast, of all parts; of reductions, of 8-byte numbers
		want    cost
	}{
		{"barrier", 1, 0, cost{0, 0, 0}},
		{"barrier", 5, 0, cost{15, 0, 3}},
		{"barrier", 8, 0, cost{24, 0, 3}},

		{"bcast", 1, 100, cost{0, 0, 0}},
		{"bcast", 7, 7 * 4 * kib, cost{6, 6 * 28 * kib, 2}},                         // binomial tree: few ranks
		{"bcast", 8, 12 * kib, cost{7, 7 * 12 * kib, 2}},                            // binomial tree: short
		{"bcast", 8, 12*kib + 8, cost{31, (12 + 7*8) * (12*kib + 8) / 8, 5}},        // parts along a tree, then doubling
		{"bcast", 8, 512*kib - 8, cost{31, (12 + 7*8) * (512*kib - 8) / 8, 5}},      // the same
		{"bcast", 8, 512 * kib, cost{63, (12 + 7*8) * 64 * kib, 9}},                 // parts along a tree, then a ring
		{"bcast", 9, 9 * 2 * kib, cost{8 + 72, (13 + 72) * 2 * kib, 10}},            // the same: no power of two
		{"gather", 4, 92160, cost{3, 4 * 92160, 2}},                                 // binomial tree
		{"gather", 4, 92161, cost{3, 3 * 92161, 1}},                                 // directly
		{"scatter", 4, 92160, cost{3, 4 * 92160, 2}},                                // binomial tree
		{"scatter", 4, 92161, cost{3, 3 * 92161, 1}},                                // directly
		{"allgather", 5, 16 * kib, cost{15, 5 * 4 * 16 * kib, 3}},                   // Bruck
		{"allgather", 5, 16*kib + 1, cost{20, 5 * 4 * (16*kib + 1), 4}},             // ring
		{"allgather", 4, 128*kib - 1, cost{8, 4 * 3 * (128*kib - 1), 2}},            // doubling
		{"allgather", 4, 128 * kib, cost{12, 4 * 3 * 128 * kib, 3}},                 // ring
		{"alltoall", 7, 256, cost{42, 42 * 256, 1}},                                 // all at a time: few ranks
		{"alltoall", 8, 256, cost{24, 8 * 12 * 256, 3}},                             // Bruck
		{"alltoall", 8, 257, cost{56, 56 * 257, 1}},                                 // all at a time
		{"alltoall", 33, 257, cost{33 * 32, 33 * 32 * 257, 1}},                      // the same, as many as may be
		{"alltoall", 34, 257, cost{34 * 33, 34 * 33 * 257, 2}},                      // in two rounds
		{"alltoall", 4, 32 * kib, cost{12, 12 * 32 * kib, 1}},                       // all at a time
		{"alltoall", 4, 32*kib + 1, cost{12, 12 * (32*kib + 1), 3}},                 // pairs
		{"reduce", 4, 256, cost{3, 3 * 2 * kib, 2}},                                 // binomial tree
		{"reduce", 4, 260, cost{11, (4*3 + 4) * 65 * 8, 4}},                         // halving, then a tree
		{"reduce", 300, 299, cost{299, 299 * 299 * 8, 9}},                           // binomial tree: fewer numbers than ranks
		{"reduce", 300, 300, cost{44 + 256*8 + 255 + 1, 0, 0}},                      // halving, then a tree
		{"allreduce", 4, 256, cost{8, 8 * 2 * kib, 2}},                              // doubling
		{"allreduce", 4, 260, cost{16, 4 * 2 * 3 * 65 * 8, 4}},                      // halving, then doubling
		{"allreduce", 5, 256, cost{10, 10 * 2 * kib, 4}},                            // doubling of four ranks
		{"allreduce", 5, 64*kib - 4, cost{18, (2*4 + 4*2*3) * (64*kib - 4) * 2, 6}}, // halving, then doubling of four ranks
		{"allreduce", 5, 64 * kib, cost{40, 2 * 4 * 64 * kib * 8, 8}},               // ring
		{"allreduce", 4, 64 * kib, cost{16, 4 * 2 * 3 * 16 * kib * 8, 4}},           // halving, then doubling: a power of two
		{"allreduce", 300, 299, cost{2*44 + 256*8, (2*44 + 256*8) * 299 * 8, 10}},   // doubling: fewer numbers than ranks
		{"allreduce", 300, 512, cost{2*44 + 256*16, (2*44 + 2*255) * 512 * 8, 18}},  // halving, then doubling
	} {
		t.Run(fmt.Sprintf("%s of %d, %d", tt.kind, tt.n, tt.size), func(t *testing.T) {
			size := tt.size
			if tt.kind == "bcast" {
				size /= tt.n
			}
			got := runTask(t, newTask(rand.New(rand.NewPCG(5, 6)), tt.kind, tt.n, 0, size, tt.size))
			if tt.want.bytes == 0 {
				got.bytes = 0
			}
			if tt.want.rounds == 0 {
				got.rounds = 0
			}
			assert.Equal(t, tt.want, got)
		})
	}
}
