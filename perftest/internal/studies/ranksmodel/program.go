package ranksmodel

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/perftest/internal/studies/ranks"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

// Test is an operation that ranks repeat together.
type Test struct {
	Name string
	// messages is the number of consecutive messages of a round; 0 means 1. pairs: only ranks 0 and 1 are timed.
	messages int
	pairs    bool
	prepare  func(x *rank, size int) (round func() error, check func() error)
}

// window is the number of outstanding messages in tests of bandwidth, as in the micro-benchmarks of OSU.
const window = 64

// Tests are all tests, in the order of the paper.
func Tests() []Test {
	return []Test{
		{Name: "pingpong", messages: 2, pairs: true, prepare: pingPong},
		{Name: "bw", messages: window, pairs: true, prepare: bandwidth(false)},
		{Name: "bibw", messages: 2 * window, pairs: true, prepare: bandwidth(true)},
		{Name: "allgather", prepare: allgather},
		{Name: "scatter", prepare: scatter},
		{Name: "gather", prepare: gather},
		{Name: "alltoall", prepare: alltoall},
		{Name: "allreduce", prepare: allreduce},
		{Name: "bcast", prepare: bcast},
	}
}

// Names returns the names of the tests.
func Names() (names []string) {
	for _, t := range Tests() {
		names = append(names, t.Name)
	}
	return names
}

// ParseTest returns the test with a name.
func ParseTest(name string) (Test, error) {
	for _, t := range Tests() {
		if t.Name == name {
			return t, nil
		}
	}
	return Test{}, fmt.Errorf("test %q: in virtual time there are %s", name, strings.Join(Names(), ", "))
}

// Tags of messages, and the root of collective operations.
const (
	tag    = 1
	ackTag = 2
	root   = 0
)

// expectAll compares parts from all ranks.
func expectAll(b []byte, n, to, size int) error {
	for q := range n {
		if err := ranks.CheckPayload(b, q, q, to, size); err != nil {
			return err
		}
	}
	return nil
}

func nothing() error { return nil }

// pingPong: ranks 0 and 1 send to each other in turn.
func pingPong(x *rank, size int) (round, check func() error) {
	me, peer := x.comm.Rank(), 1-x.comm.Rank()
	if me > 1 {
		return nothing, nothing
	}
	out, in := ranks.Payload(me, peer, size), make([]byte, size)
	send := func() error { return x.wait(x.comm.Isend(peer, tag, out, nil)) }
	receive := func() error { return x.wait(x.comm.Irecv(peer, tag, in, nil)) }
	first, second := send, receive
	if me == 1 {
		first, second = receive, send
	}
	return func() error {
		if err := first(); err != nil {
			return err
		}
		return second()
	}, func() error { return ranks.CheckPayload(in, 0, peer, me, size) }
}

// bandwidth sends a window from rank 0 to rank 1, which acknowledges it with a short message; both: rank 1 sends a
// window at the same time.
func bandwidth(both bool) func(x *rank, size int) (round, check func() error) {
	return func(x *rank, size int) (round, check func() error) {
		me, peer := x.comm.Rank(), 1-x.comm.Rank()
		if me > 1 {
			return nothing, nothing
		}
		sends, receives := me == 0 || both, me == 1 || both
		out, in, ack := ranks.Payload(me, peer, size), make([]byte, window*size), make([]byte, 1)
		round = func() error {
			var pending []*ucpgroup.Request
			add := func(q *ucpgroup.Request, err error) error { pending = append(pending, q); return err }
			for i := range window {
				if receives {
					if err := add(x.comm.Irecv(peer, tag, in[i*size:(i+1)*size], nil)); err != nil {
						return err
					}
				}
				if sends {
					if err := add(x.comm.Isend(peer, tag, out, nil)); err != nil {
						return err
					}
				}
			}
			for _, q := range pending {
				if err := x.wait(q, nil); err != nil {
					return err
				}
			}
			if me == 1 {
				return x.wait(x.comm.Isend(peer, ackTag, ack, nil))
			}
			return x.wait(x.comm.Irecv(peer, ackTag, ack, nil))
		}
		return round, func() error {
			for i := 0; receives && i < window; i++ {
				if err := ranks.CheckPayload(in, i, peer, me, size); err != nil {
					return err
				}
			}
			return nil
		}
	}
}

func allgather(x *rank, size int) (round, check func() error) {
	n := x.comm.Size()
	out, in := ranks.Payload(x.comm.Rank(), 0, size), make([]byte, n*size)
	return func() error { return x.wait(x.comm.Iallgather(out, in)) }, func() error { return expectAll(in, n, 0, size) }
}

// toAll returns a part for each rank.
func toAll(x *rank, size int) (b []byte) {
	for q := range x.comm.Size() {
		b = append(b, ranks.Payload(x.comm.Rank(), q, size)...)
	}
	return b
}

func scatter(x *rank, size int) (round, check func() error) {
	var out []byte
	if x.comm.Rank() == root {
		out = toAll(x, size)
	}
	in := make([]byte, size)
	return func() error { return x.wait(x.comm.Iscatter(root, out, in)) },
		func() error { return ranks.CheckPayload(in, 0, root, x.comm.Rank(), size) }
}

func gather(x *rank, size int) (round, check func() error) {
	out := ranks.Payload(x.comm.Rank(), root, size)
	if x.comm.Rank() != root {
		return func() error { return x.wait(x.comm.Igather(root, out, nil)) }, nothing
	}
	n := x.comm.Size()
	in := make([]byte, n*size)
	return func() error { return x.wait(x.comm.Igather(root, out, in)) }, func() error { return expectAll(in, n, root, size) }
}

func alltoall(x *rank, size int) (round, check func() error) {
	n := x.comm.Size()
	out, in := toAll(x, size), make([]byte, n*size)
	return func() error { return x.wait(x.comm.Ialltoall(out, in)) },
		func() error { return expectAll(in, n, x.comm.Rank(), size) }
}

func bcast(x *rank, size int) (round, check func() error) {
	b := make([]byte, size)
	if x.comm.Rank() == root {
		b = ranks.Payload(root, 0, size)
	}
	return func() error { return x.wait(x.comm.Ibcast(root, b)) }, func() error { return ranks.CheckPayload(b, 0, root, 0, size) }
}

func allreduce(x *rank, size int) (round, check func() error) {
	out := make([]float64, max(size/8, 1))
	for i := range out {
		out[i] = float64(x.comm.Rank() + i)
	}
	in := make([]float64, len(out))
	return func() error { return x.wait(ucpgroup.Iallreduce(x.comm, out, in, ucpgroup.Sum[float64])) }, func() error {
		n := x.comm.Size()
		for i, v := range in {
			if want := float64(n*(n-1)/2 + n*i); v != want {
				return fmt.Errorf("%w: sum %d is %v instead of %v", ranks.ErrData, i, v, want)
			}
		}
		return nil
	}
}
