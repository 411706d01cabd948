package ranks

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gucx/gucx/ucp/ucpgroup"
)

// ErrData is the error if a rank has received wrong data.
var ErrData = errors.New("wrong data")

// Test is an operation that ranks repeat together.
type Test struct {
	Name string
	// sized: the test transfers data.
	sized bool
	// hops is the number of consecutive messages of a round; the time of one is reported; 0 means 1.
	hops func(n int) int
	// ranks is the number of timed ranks, from rank 0; 0 means all.
	ranks int
	// least is the minimum number of ranks.
	least int
	// prepare returns the function that a rank runs in each round with that many bytes, and the check of its result.
	prepare func(c *ucpgroup.Comm, size int) (round round, check func() error)
}

// round is one repetition.
type round func(ctx context.Context) error

// Tests are all tests.
func Tests() []Test {
	return []Test{
		{Name: "pingpong", sized: true, ranks: 1, least: 2, hops: func(int) int { return 2 }, prepare: pingPong},
		{Name: "ring", sized: true, ranks: 1, least: 2, hops: func(n int) int { return n }, prepare: ring},
		{Name: "bw", sized: true, ranks: 1, least: 2, hops: func(int) int { return window }, prepare: bandwidth(1, false)},
		{Name: "bibw", sized: true, ranks: 1, least: 2, hops: func(int) int { return 2 * window }, prepare: bandwidth(1, true)},
		{Name: "mbw_mr", sized: true, ranks: 1, least: 2, hops: func(int) int { return window }, prepare: bandwidth(0, false)},
		{Name: "barrier", prepare: barrier},
		{Name: "bcast", sized: true, prepare: bcast},
		{Name: "gather", sized: true, prepare: gather},
		{Name: "scatter", sized: true, prepare: scatter},
		{Name: "allgather", sized: true, prepare: allgather},
		{Name: "alltoall", sized: true, prepare: alltoall},
		{Name: "reduce", sized: true, prepare: reduce},
		{Name: "allreduce", sized: true, prepare: allreduce},
	}
}

// Names returns the names of the tests for a number of ranks.
func Names(ranks int) (names []string) {
	for _, t := range Tests() {
		if t.least <= ranks {
			names = append(names, t.Name)
		}
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
	return Test{}, fmt.Errorf("test %q: there are %s", name, strings.Join(Names(2), ", "))
}

// tag is the tag of messages.
const tag = 1

// root is the root of collective operations.
const root = 0

// Payload returns the data that one rank sends to another: size bytes.
func Payload(from, to, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(from*31 + to*17 + i)
	}
	return b
}

// CheckPayload compares part i of b, of size bytes, with the data that one rank sends to another. Errors: ErrData.
func CheckPayload(b []byte, i, from, to, size int) error {
	for k, v := range b[i*size : (i+1)*size] {
		if v != byte(from*31+to*17+k) {
			return fmt.Errorf("%w: byte %d from rank %d", ErrData, k, from)
		}
	}
	return nil
}

// pingPong: ranks 0 and 1 send to each other in turn. The others do nothing.
func pingPong(c *ucpgroup.Comm, size int) (round, func() error) {
	me, peer := c.Rank(), 1-c.Rank()
	if me > 1 {
		return func(context.Context) error { return nil }, func() error { return nil }
	}
	out, in := Payload(me, peer, size), make([]byte, size)
	return func(ctx context.Context) (err error) {
		if me == 0 {
			err = c.Send(ctx, peer, tag, out)
		}
		if err == nil {
			_, err = c.Recv(ctx, peer, tag, in)
		}
		if err == nil && me == 1 {
			err = c.Send(ctx, peer, tag, out)
		}
		return err
	}, func() error { return CheckPayload(in, 0, peer, me, size) }
}

// ring: a message is passed from rank 0 to the next rank, until it is back.
func ring(c *ucpgroup.Comm, size int) (round, func() error) {
	n, me := c.Size(), c.Rank()
	before, next := (me-1+n)%n, (me+1)%n
	out, in := Payload(me, next, size), make([]byte, size)
	return func(ctx context.Context) (err error) {
		if me == 0 {
			err = c.Send(ctx, next, tag, out)
		}
		if err == nil {
			_, err = c.Recv(ctx, before, tag, in)
		}
		if err == nil && me != 0 {
			err = c.Send(ctx, next, tag, out)
		}
		return err
	}, func() error { return CheckPayload(in, 0, before, me, size) }
}

func barrier(c *ucpgroup.Comm, _ int) (round, func() error) {
	return c.Barrier, func() error { return nil }
}

func bcast(c *ucpgroup.Comm, size int) (round, func() error) {
	b := make([]byte, size)
	if c.Rank() == root {
		b = Payload(root, 0, size)
	}
	return func(ctx context.Context) error { return c.Bcast(ctx, root, b) },
		func() error { return CheckPayload(b, 0, root, 0, size) }
}

func gather(c *ucpgroup.Comm, size int) (round, func() error) {
	out := Payload(c.Rank(), root, size)
	if c.Rank() != root {
		return func(ctx context.Context) error { return c.Gather(ctx, root, out, nil) }, func() error { return nil }
	}
	in := make([]byte, c.Size()*size)
	return func(ctx context.Context) error { return c.Gather(ctx, root, out, in) },
		func() error { return expectAll(c, in, size, root) }
}

// expectAll compares parts from all ranks.
func expectAll(c *ucpgroup.Comm, b []byte, size, to int) error {
	for q := range c.Size() {
		if err := CheckPayload(b, q, q, to, size); err != nil {
			return err
		}
	}
	return nil
}

func scatter(c *ucpgroup.Comm, size int) (round, func() error) {
	var out []byte
	if c.Rank() == root {
		out = toAll(c, size)
	}
	in := make([]byte, size)
	return func(ctx context.Context) error { return c.Scatter(ctx, root, out, in) },
		func() error { return CheckPayload(in, 0, root, c.Rank(), size) }
}

// toAll returns a part for each rank.
func toAll(c *ucpgroup.Comm, size int) (b []byte) {
	for q := range c.Size() {
		b = append(b, Payload(c.Rank(), q, size)...)
	}
	return b
}

func allgather(c *ucpgroup.Comm, size int) (round, func() error) {
	out, in := Payload(c.Rank(), 0, size), make([]byte, c.Size()*size)
	return func(ctx context.Context) error { return c.Allgather(ctx, out, in) },
		func() error { return expectAll(c, in, size, 0) }
}

func alltoall(c *ucpgroup.Comm, size int) (round, func() error) {
	out, in := toAll(c, size), make([]byte, c.Size()*size)
	return func(ctx context.Context) error { return c.Alltoall(ctx, out, in) },
		func() error { return expectAll(c, in, size, c.Rank()) }
}

// numbers returns the numbers of a rank: as many as size bytes contain, at least one.
func numbers(c *ucpgroup.Comm, size int) []float64 {
	v := make([]float64, max(size/8, 1))
	for i := range v {
		v[i] = float64(c.Rank() + i)
	}
	return v
}

// expectSums checks the sums of all ranks' numbers, which are exact in a float64.
func expectSums(c *ucpgroup.Comm, sums []float64) error {
	n := c.Size()
	for i, v := range sums {
		if want := float64(n*(n-1)/2 + n*i); v != want {
			return fmt.Errorf("%w: sum %d is %v instead of %v", ErrData, i, v, want)
		}
	}
	return nil
}

func reduce(c *ucpgroup.Comm, size int) (round, func() error) {
	out := numbers(c, size)
	in := make([]float64, len(out))
	return func(ctx context.Context) error { return ucpgroup.Reduce(ctx, c, root, out, in, ucpgroup.Sum[float64]) },
		func() error {
			if c.Rank() != root {
				return nil
			}
			return expectSums(c, in)
		}
}

func allreduce(c *ucpgroup.Comm, size int) (round, func() error) {
	out := numbers(c, size)
	in := make([]float64, len(out))
	return func(ctx context.Context) error { return ucpgroup.Allreduce(ctx, c, out, in, ucpgroup.Sum[float64]) },
		func() error { return expectSums(c, in) }
}
