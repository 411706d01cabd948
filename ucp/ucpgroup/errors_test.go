package ucpgroup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

func TestComm_Refuses(t *testing.T) {
	x := newStepped(t, "sm", 2)
	c, ctx := x.groups[0].World(), t.Context()
	buf := make([]byte, 8)
	for name, err := range map[string]error{
		"to rank -1":         c.Send(ctx, -1, 0, buf),
		"to rank 2":          c.Send(ctx, 2, 0, buf),
		"tag -1":             c.SendSync(ctx, 1, -1, buf),
		"tag 2147483648":     second(c.Isend(1, MaxTag+1, buf, nil)),
		"from rank 2":        second(c.Irecv(2, 0, buf, nil)),
		"from rank -2":       second(c.Recv(ctx, -2, 0, buf)),
		"tag -2":             second(c.Recv(ctx, 0, -2, buf)),
		"wait for any":       third(WaitAny(ctx)),
		"wait for any: inva": third(WaitAny(ctx, nil, nil)),
	} {
		assert.ErrorIs(t, err, ucs.ErrInvalidParam, name)
		assert.ErrorContains(t, err, name)
	}
	w := x.groups[0].w
	for _, rank := range []int{-1, 1} {
		_, err := Connect(w, rank, [][]byte{w.Address()})
		assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	}
	_, err := Connect(w, 0, nil)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = Connect(openWorkers(t, "sm", 1)[0], 0, [][]byte{{1, 2, 3}})
	assert.ErrorIs(t, err, ucs.ErrInvalidAddr)
	require.NoError(t, x.groups[0].Err())
}

// TestCollective_Refuses: an invalid parameter of a collective operation fails the group.
func TestCollective_Refuses(t *testing.T) {
	ctx, buf := t.Context(), make([]byte, 8)
	for name, call := range map[string]func(c *Comm) error{
		"root 2":            func(c *Comm) error { return c.Bcast(ctx, 2, buf) },
		"root -1":           func(c *Comm) error { return c.Gather(ctx, -1, buf, nil) },
		"length 7":          func(c *Comm) error { return c.Alltoall(ctx, buf[:7], buf[:7]) },
		"all ranks, 8":      func(c *Comm) error { return second(c.Iallgather(buf, buf)) },
		"data whose length": func(c *Comm) error { return c.Scatter(ctx, 0, buf, buf) },
		"other length than": func(c *Comm) error { return Allreduce(ctx, c, make([]int, 2), make([]int, 3), Sum[int]) },
		"result of other":   func(c *Comm) error { return Reduce(ctx, c, 0, make([]int, 2), make([]int, 3), Sum[int]) },
		"color -5":          func(c *Comm) error { return second(c.Split(ctx, -5, 0)) },
		"result whose":      func(c *Comm) error { return c.Gather(ctx, 0, buf, buf) },
		"root 3":            func(c *Comm) error { return Reduce(ctx, c, 3, nil, make([]int, 2), Sum[int]) },
		"root 4":            func(c *Comm) error { return c.Scatter(ctx, 4, buf, buf) },
		"root -2":           func(c *Comm) error { return c.Gather(ctx, -2, buf, buf) },
		"length 4":          func(c *Comm) error { return c.Alltoall(ctx, buf[:4], buf) },
	} {
		c := newStepped(t, "sm", 2).groups[0].World()
		err := call(c)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam, name)
		assert.ErrorContains(t, err, name)
		assert.ErrorIs(t, c.g.Err(), ucs.ErrInvalidParam, name)
		assert.ErrorContains(t, c.g.Err(), "rank 0: ", name)
	}
}

func second[A any](_ A, err error) error { return err }

func third[A, B any](_ A, _ B, err error) error { return err }

func TestGroup_Limits(t *testing.T) {
	x := newStepped(t, "sm", 2)
	a, b := x.groups[0].World(), x.groups[1].World()
	in, err := b.Irecv(0, MaxTag, make([]byte, 1), nil)
	require.NoError(t, err)
	other, err := b.Irecv(0, 0, nil, nil)
	require.NoError(t, err)
	out, err := a.Isend(1, MaxTag, []byte{7}, nil)
	require.NoError(t, err)
	require.NoError(t, x.ended(in, out))
	require.True(t, other.Cancel())
	require.ErrorIs(t, x.ended(other), ucs.ErrCanceled)
	largest := sendTag(MaxComms-1, MaxRanks-1, MaxTag)
	assert.Equal(t, MaxRanks-1, sourceOf(largest))
	assert.Equal(t, Status{Source: -1, Tag: MaxTag, Len: 3}, a.statusOf(largest, 3))
	assert.Equal(t, ^uint64(0)&^collective, sendTag(MaxComms-1, MaxRanks-1, MaxTag))
}

// TestGroup_RankLeaves: operations that wait for a rank that has left fail, and others continue.
func TestGroup_RankLeaves(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		x := newStepped(t, tls, 3)
		require.NoError(t, x.connected())
		a, b := x.groups[0].World(), x.groups[1].World()
		kept, err := x.groups[2].World().Isend(0, 5, []byte("last"), nil)
		require.NoError(t, err)
		from2, err := a.Irecv(2, 1, nil, nil)
		require.NoError(t, err)
		any, err := a.Irecv(AnySource, 9, nil, nil)
		require.NoError(t, err)
		require.NoError(t, x.ended(kept))
		require.NoError(t, x.groups[2].w.Close())
		x.groups = x.groups[:2]
		err = x.ended(from2)
		var gone *RankError
		require.ErrorAs(t, err, &gone)
		require.Equal(t, 2, gone.Rank)
		require.ErrorIs(t, err, ucs.ErrPeerClosed)
		x.until(func() bool { return b.g.peers[2].gone != nil })
		require.ErrorIs(t, b.Send(t.Context(), 2, 0, nil), ucs.ErrPeerClosed)
		require.ErrorIs(t, third(b.Iprobe(2, 0)), ucs.ErrPeerClosed)

		buf := make([]byte, 4) // its message has arrived before
		st, err := a.Recv(t.Context(), 2, 5, buf)
		require.NoError(t, err)
		require.Equal(t, "last", string(buf[:st.Len]))
		later, err := a.Irecv(2, 5, buf, nil)
		require.NoError(t, err)
		require.ErrorIs(t, x.ended(later), ucs.ErrPeerClosed)

		require.False(t, any.Done(), "another rank may still send")
		out, err := b.Isend(0, 9, nil, nil)
		require.NoError(t, err)
		require.NoError(t, x.ended(any, out))
		require.NoError(t, a.g.Err())

		alone, err := a.Irecv(AnySource, 9, nil, nil)
		require.NoError(t, err)
		require.NoError(t, b.g.w.Close())
		x.groups = x.groups[:1]
		require.ErrorIs(t, x.ended(alone), ucs.ErrPeerClosed)
	})
}

// TestCollective_RankLeaves: a collective operation that waits for a rank that has left fails the group, on all ranks.
func TestCollective_RankLeaves(t *testing.T) {
	x := newStepped(t, "sm", 4)
	require.NoError(t, x.connected())
	var reqs []*Request
	for _, g := range x.groups[:3] {
		r, err := g.World().Ibarrier()
		require.NoError(t, err)
		reqs = append(reqs, r)
	}
	require.NoError(t, x.groups[3].w.Close())
	x.groups = x.groups[:3]
	for i, r := range reqs {
		err := x.ended(r)
		var gone *RankError
		require.ErrorAs(t, err, &gone)
		require.Equal(t, 3, gone.Rank, "on rank %d", i)
		require.ErrorIs(t, err, ucs.ErrPeerClosed)
		require.ErrorIs(t, x.groups[i].World().Send(t.Context(), 0, 0, nil), ucs.ErrPeerClosed)
	}
}

// TestGroup_Abort: operations of all other ranks fail with the reason.
func TestGroup_Abort(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		mistake := errors.New("no more paper")
		errs := make([]error, 4)
		_ = ranks(t, tls, len(errs), func(ctx context.Context, g *Group) (err error) {
			c := g.World()
			defer func() { errs[c.Rank()] = err }()
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			switch c.Rank() {
			case 0:
				_, err = c.Recv(ctx, 1, 1, make([]byte, 10))
			case 1:
				err = c.SendSync(ctx, 2, 1, make([]byte, 100_000))
			case 2:
				err = c.Barrier(ctx)
			default:
				g.Abort(mistake)
				return mistake
			}
			return err
		})
		for q, err := range errs[:3] {
			var gone *RankError
			require.ErrorAs(t, err, &gone, "rank %d", q)
			assert.Equal(t, 3, gone.Rank)
			assert.ErrorIs(t, err, ucs.ErrCanceled)
		}
	})
}

// TestCollective_Disagree: ranks with different lengths get an error.
func TestCollective_Disagree(t *testing.T) {
	for name, sizes := range map[string][2]int{"too long": {9, 8}, "too short": {7, 8}} {
		x := newStepped(t, "sm", 2)
		var reqs []*Request
		for q, g := range x.groups {
			r, err := g.World().Ibcast(0, make([]byte, sizes[q]))
			require.NoError(t, err)
			reqs = append(reqs, r)
		}
		x.until(func() bool { return x.groups[0].failed != nil && x.groups[1].failed != nil })
		require.NoError(t, x.ended(reqs[0]), "the root had completed")
		err := x.ended(reqs[1])
		require.True(t, errors.Is(err, ucs.ErrTruncated) || errors.Is(err, ucs.ErrInvalidParam), "%s: %v", name, err)
		var at *RankError
		require.ErrorAs(t, x.groups[0].Err(), &at)
		require.Equal(t, 1, at.Rank)
	}
}

// TestContextEnds: calls return when their context is canceled, and do not use their buffers any more. A canceled
// collective operation fails the group.
func TestContextEnds(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		x := newStepped(t, tls, 2)
		require.NoError(t, x.connected())
		a, b := x.groups[0].World(), x.groups[1].World()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := a.Recv(ctx, 1, 1, make([]byte, 8))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, a.SendSync(ctx, 1, 1, make([]byte, 1000)), context.Canceled)
		_, err = a.Probe(ctx, AnySource, AnyTag)
		require.ErrorIs(t, err, context.Canceled)
		_, err = a.Sendrecv(ctx, 1, 2, nil, 1, 2, nil)
		require.ErrorIs(t, err, context.Canceled)
		r, err := a.Irecv(1, 3, nil, nil)
		require.NoError(t, err)
		_, err = r.Wait(ctx)
		require.ErrorIs(t, err, context.Canceled)
		_, _, err = WaitAny(ctx, r)
		require.ErrorIs(t, err, context.Canceled)
		reqs := []*Request{nil, r}
		require.ErrorIs(t, WaitAll(ctx, reqs...), context.Canceled)
		require.Equal(t, r, reqs[1])
		require.NoError(t, a.g.Err())

		waits, err := b.Irecv(0, 4, nil, nil)
		require.NoError(t, err)
		require.ErrorIs(t, a.Barrier(ctx), context.Canceled)
		for _, r := range []*Request{r, waits} {
			err := x.ended(r)
			require.ErrorContains(t, err, "rank 0: ")
			require.ErrorIs(t, err, ucs.ErrCanceled)
		}
	})
}

func TestWaitAny(t *testing.T) {
	x := newStepped(t, "sm", 1)
	c := x.groups[0].World()
	first, err := c.Irecv(0, 1, nil, nil)
	require.NoError(t, err)
	second, err := c.Irecv(0, 2, make([]byte, 3), nil)
	require.NoError(t, err)
	require.NoError(t, c.Send(t.Context(), 0, 2, []byte("abc")))
	reqs := []*Request{nil, first, second}
	i, st, err := WaitAny(t.Context(), reqs...)
	require.NoError(t, err)
	require.Equal(t, 2, i)
	require.Equal(t, Status{0, 2, 3}, st)
	require.Nil(t, reqs[2])
	require.NoError(t, c.Send(t.Context(), 0, 1, nil))
	require.NoError(t, WaitAll(t.Context(), reqs...))
	require.Nil(t, reqs[1])
	done, _, err := (*Request)(nil).Test()
	require.True(t, done)
	require.NoError(t, err)
	require.False(t, (*Request)(nil).Cancel())
}

// TestWaitAny_Collective: the wait for any of several operations makes progress with those of several steps.
func TestWaitAny_Collective(t *testing.T) {
	require.NoError(t, ranks(t, "sm", 5, func(ctx context.Context, g *Group) error {
		never, err := g.World().Irecv(AnySource, 1, nil, nil)
		if err != nil {
			return err
		}
		r, err := g.World().Ibarrier()
		if err != nil {
			return err
		}
		if i, _, err := WaitAny(ctx, never, r); err != nil || i != 1 {
			return fmt.Errorf("operation %d has ended: %w", i, err)
		}
		never.Cancel()
		if _, _, err = never.Test(); !errors.Is(err, ucs.ErrCanceled) {
			return fmt.Errorf("canceled: %w", err)
		}
		return nil
	}))
}

// TestComms: communicators of some of the ranks, in another order, are not confused with others, and free their
// contexts.
func TestComms(t *testing.T) {
	require.NoError(t, ranks(t, "sm", 6, func(ctx context.Context, g *Group) error {
		w := g.World()
		dup, err := w.Dup(ctx)
		if err != nil {
			return err
		}
		half, err := w.Split(ctx, w.Rank()%2, -w.Rank())
		if err != nil {
			return err
		}
		none, err := w.Split(ctx, min(w.Rank()-1, 0), 0)
		if err != nil || (none == nil) != (w.Rank() == 0) {
			return fmt.Errorf("%v %w", none, err)
		}
		if half.Size() != 3 || half.WorldRank(half.Rank()) != w.Rank() || half.Rank() != 2-w.Rank()/2 {
			return fmt.Errorf("rank %d of %d is %d", half.Rank(), half.Size(), w.Rank())
		}
		sum := []int{w.Rank()}
		if err := Allreduce(ctx, half, nil, sum, Sum[int]); err != nil || sum[0] != 6+3*(w.Rank()%2) {
			return fmt.Errorf("sum %d: %w", sum[0], err)
		}
		// The same message on each: receives in another order.
		next, before := (w.Rank()+1)%6, (w.Rank()+5)%6
		for i, c := range []*Comm{w, dup} {
			if err := c.Send(ctx, next, 1, []byte{byte(i)}); err != nil {
				return err
			}
		}
		for i, c := range []*Comm{dup, w} {
			b := make([]byte, 1)
			if _, err := c.Recv(ctx, before, 1, b); err != nil || int(b[0]) != 1-i {
				return fmt.Errorf("got %d: %w", b[0], err)
			}
		}
		used := dup.context
		for _, c := range []*Comm{dup, half, none, w} {
			if c != nil {
				c.Free()
			}
		}
		if err := dup.Send(ctx, 0, 0, nil); !errors.Is(err, ucs.ErrClosed) {
			return fmt.Errorf("of a freed communicator: %w", err)
		}
		again, err := w.Dup(ctx)
		if err != nil || again.context != used {
			return fmt.Errorf("context %d after %d: %w", again.context, used, err)
		}
		return nil
	}))
}

func TestComms_TooMany(t *testing.T) {
	require.NoError(t, ranks(t, "self", 1, func(ctx context.Context, g *Group) error {
		for range MaxComms - 1 {
			if _, err := g.World().Dup(ctx); err != nil {
				return err
			}
		}
		more, err := g.World().Dup(ctx)
		assert.ErrorIs(t, err, ucs.ErrNoMemory)
		assert.Nil(t, more)
		more, err = g.World().Split(ctx, 0, 0)
		assert.ErrorIs(t, err, ucs.ErrNoMemory)
		assert.Nil(t, more)
		return g.Err()
	}))
}

// TestContextSet: contexts are allocated and freed independently.
func TestContextSet(t *testing.T) {
	var x contextSet
	for c := range uint16(MaxComms) {
		got, ok := x.lowestFree()
		require.True(t, ok)
		require.Equal(t, c, got)
		x.take(c)
	}
	_, ok := x.lowestFree()
	require.False(t, ok)
	for c := range uint16(MaxComms) {
		x.free(c)
		got, ok := x.lowestFree()
		require.True(t, ok)
		require.Equal(t, c, got)
		x.take(c)
	}
}

// failingBootstrap fails in one of its methods.
type failingBootstrap struct {
	Bootstrap
	put, fence, get error
}

func (b failingBootstrap) Put(ctx context.Context, key string, value []byte) error {
	return cmp.Or(b.put, b.Bootstrap.Put(ctx, key, value))
}

func (b failingBootstrap) Fence(ctx context.Context) error {
	return cmp.Or(b.fence, b.Bootstrap.Fence(ctx))
}

func (b failingBootstrap) Get(ctx context.Context, rank int, key string) ([]byte, error) {
	if b.get != nil {
		return nil, b.get
	}
	return b.Bootstrap.Get(ctx, rank, key)
}

// TestNew_BootstrapFails: New returns the error of the bootstrap.
func TestNew_BootstrapFails(t *testing.T) {
	broken := errors.New("no such key-value space")
	for name, b := range map[string]failingBootstrap{
		"put": {put: broken}, "fence": {fence: broken}, "get": {get: broken},
	} {
		b.Bootstrap = InProcess(1)[0]
		g, err := New(t.Context(), openWorkers(t, "self", 1)[0], b)
		assert.ErrorIs(t, err, broken, name)
		assert.Nil(t, g, name)
	}
}

// TestSendrecv_Refused: if the send is rejected, the receive is canceled.
func TestSendrecv_Refused(t *testing.T) {
	x := newStepped(t, "sm", 2)
	a, b := x.groups[0].World(), x.groups[1].World()
	ended, cancel := context.WithCancel(t.Context()) // no wait
	cancel()
	buf := []byte{1}
	_, err := a.Sendrecv(ended, 2, 1, nil, 1, 1, buf)
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = a.Sendrecv(ended, 1, 1, nil, 2, 1, buf)
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	out, err := b.Isend(0, 1, []byte{2}, nil)
	require.NoError(t, err)
	require.NoError(t, x.ended(out))
	in := make([]byte, 1)
	r, err := a.Irecv(1, 1, in, nil)
	require.NoError(t, err)
	require.NoError(t, x.ended(r))
	assert.Equal(t, []byte{2}, in, "no other receive took the message")
	assert.Equal(t, []byte{1}, buf)
}

// TestCollective_CutOff: data that arrives after a collective operation was canceled is not written to its buffers.
func TestCollective_CutOff(t *testing.T) {
	for _, n := range []int{8, 1 << 20} { // eager and rendezvous
		x := newStepped(t, "sm", 2)
		require.NoError(t, x.connected())
		a, b := x.groups[0].World(), x.groups[1].World()
		into := make([]byte, n)
		r, err := b.Ibcast(0, into)
		require.NoError(t, err)
		require.False(t, r.Done())
		r.abandon()
		assert.Nil(t, b.g.first, "the group has removed it")
		from := bytes.Repeat([]byte{7}, n)
		_, err = a.Ibcast(0, from)
		require.NoError(t, err)
		x.until(func() bool {
			_, _, unexpected := b.g.w.TagProbe(collectiveTag(worldContext, 0, 0), ^uint64(0), false)
			return unexpected || into[n-1] != 0
		})
		assert.Equal(t, make([]byte, n), into)
	}
}

// TestCollective_Freed: a collective operation of a freed communicator is rejected here, and the group does not fail.
func TestCollective_Freed(t *testing.T) {
	require.NoError(t, ranks(t, "sm", 2, func(ctx context.Context, g *Group) error {
		dup, err := g.World().Dup(ctx)
		if err != nil {
			return err
		}
		dup.Free()
		one, two := make([]byte, 1), make([]byte, 2)
		nums := make([]int, 1)
		for name, err := range map[string]error{
			"barrier":    dup.Barrier(ctx),
			"ibarrier":   second(dup.Ibarrier()),
			"bcast":      dup.Bcast(ctx, 0, one),
			"ibcast":     second(dup.Ibcast(0, one)),
			"gather":     dup.Gather(ctx, 0, one, two),
			"igather":    second(dup.Igather(0, one, two)),
			"scatter":    dup.Scatter(ctx, 0, two, one),
			"iscatter":   second(dup.Iscatter(0, two, one)),
			"allgather":  dup.Allgather(ctx, one, two),
			"iallgather": second(dup.Iallgather(one, two)),
			"alltoall":   dup.Alltoall(ctx, two, two),
			"ialltoall":  second(dup.Ialltoall(two, two)),
			"reduce":     Reduce(ctx, dup, 0, nil, nums, Sum[int]),
			"ireduce":    second(Ireduce(dup, 0, nil, nums, Sum[int])),
			"allreduce":  Allreduce(ctx, dup, nil, nums, Sum[int]),
			"iallreduce": second(Iallreduce(dup, nil, nums, Sum[int])),
			"send":       dup.Send(ctx, 0, 0, nil),
			"ssend":      dup.SendSync(ctx, 0, 0, nil),
			"isend":      second(dup.Isend(0, 0, nil, nil)),
			"issend":     second(dup.IsendSync(0, 0, nil, nil)),
			"recv":       second(dup.Recv(ctx, 0, 0, nil)),
			"irecv":      second(dup.Irecv(0, 0, nil, nil)),
			"sendrecv":   second(dup.Sendrecv(ctx, 0, 0, nil, 0, 0, nil)),
			"probe":      second(dup.Probe(ctx, 0, 0)),
			"iprobe":     third(dup.Iprobe(0, 0)),
			"dup":        second(dup.Dup(ctx)),
			"split":      second(dup.Split(ctx, 0, 0)),
		} {
			assert.ErrorIs(t, err, ucs.ErrClosed, name)
		}
		assert.NoError(t, g.Err())
		return g.World().Barrier(ctx)
	}))
}

// TestCollective_GroupClosed: a collective operation that some ranks have not started when the group closes is
// canceled.
func TestCollective_GroupClosed(t *testing.T) {
	var open *Request
	require.NoError(t, ranks(t, "sm", 2, func(ctx context.Context, g *Group) error {
		dup, err := g.World().Dup(ctx)
		if err == nil && g.World().Rank() == 0 {
			open, err = dup.Ibarrier()
		}
		return err
	}))
	require.True(t, open.Done())
	_, err := open.take()
	require.ErrorIs(t, err, ucs.ErrCanceled)
}

// TestGroup_Closed: operations in progress when a group closes are canceled, and later ones are rejected.
func TestGroup_Closed(t *testing.T) {
	var open *Request
	require.NoError(t, ranks(t, "self", 1, func(_ context.Context, g *Group) (err error) {
		open, err = g.World().Irecv(AnySource, AnyTag, nil, nil)
		return err
	}))
	require.True(t, open.Done())
	_, err := open.take()
	require.ErrorIs(t, err, ucs.ErrCanceled)
	require.ErrorIs(t, second(open.g.World().Isend(0, 0, nil, nil)), ucs.ErrClosed)
	require.ErrorIs(t, open.g.World().Barrier(t.Context()), ucs.ErrClosed)
	require.ErrorIs(t, open.g.Err(), ucs.ErrClosed)
	require.NoError(t, open.g.Close(t.Context()))
}

func TestInProcess_Leave(t *testing.T) {
	boots := InProcess(3)
	waiting := make(chan error)
	for _, b := range boots[:2] {
		go func() { waiting <- b.Fence(t.Context()) }()
	}
	require.NoError(t, boots[2].Close())
	for range 2 {
		require.ErrorIs(t, <-waiting, ucs.ErrPeerClosed)
	}
	require.NoError(t, boots[2].Close())
	_, err := boots[0].Get(t.Context(), 1, "nothing")
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, InProcess(2)[0].Fence(ctx), context.Canceled)
}

// FuzzNotice: a notice of any bytes has valid ranks and a reason, or is invalid.
func FuzzNotice(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 0, 0, 0, 12})
	f.Add([]byte{0, 0, 0, 0, 9, 0, 0, 0, 12})
	f.Add([]byte{0, 0, 0, 0, 2, 0, 0, 0, 12}) // the first invalid rank
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 12})
	f.Add([]byte{0, 0, 0, 0, 1, 0, 0, 0, 0})
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, data []byte) {
		g := &Group{peers: make([]peer, 2)}
		from, gone := g.parseNotice(data)
		if gone == nil {
			return
		}
		require.Less(t, from, 2)
		require.Less(t, gone.Rank, 2)
		require.Error(t, gone.Err)
	})
}

// TestErrors_Told: the reason of a notice is that of its sender, and of several reasons always the same one is chosen.
func TestErrors_Told(t *testing.T) {
	var several error
	for i := len(wireReasons) - 1; i >= 0; i-- {
		st := wireReasons[i]
		require.Equal(t, st, wireStatus(&RankError{1, st.Err()}))
		several = errors.Join(several, st.Err())
		require.Equal(t, st, wireStatus(several))
	}
	require.Equal(t, ucs.StatusInternal, wireStatus(errors.New("other")))
}

// TestConnect_Ranks: a group has from 1 to MaxRanks ranks.
func TestConnect_Ranks(t *testing.T) {
	w := openWorkers(t, "self", 1)[0]
	for n, want := range map[int]error{0: ucs.ErrInvalidParam, MaxRanks: ucs.ErrInvalidAddr, MaxRanks + 1: ucs.ErrInvalidParam} {
		_, err := Connect(w, 0, make([][]byte, n)) // the addresses are invalid
		assert.ErrorIs(t, err, want, "%d ranks", n)
		if want == ucs.ErrInvalidParam {
			assert.ErrorContains(t, err, fmt.Sprint("ranks ", n))
		}
	}
}

// TestAbort_AtOnce: when this rank aborts, its operations fail before it makes progress.
func TestAbort_AtOnce(t *testing.T) {
	c := newStepped(t, "sm", 2).groups[0].World()
	in, err := c.Irecv(1, 1, nil, nil)
	require.NoError(t, err)
	barrier, err := c.Ibarrier()
	require.NoError(t, err)
	c.g.Abort(ucs.ErrTimedOut)
	assert.True(t, in.Done())
	assert.True(t, barrier.Done())
	for _, r := range []*Request{in, barrier} {
		_, err := r.take()
		assert.ErrorIs(t, err, ucs.ErrTimedOut)
	}
}

// TestClose_ContextEnds: a group that waits for its endpoints to close returns the error of its context.
func TestClose_ContextEnds(t *testing.T) {
	x := newStepped(t, "tcp", 2)
	require.NoError(t, x.connected())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := x.groups[0]
	_, err := a.World().Isend(1, 1, make([]byte, 1<<20), nil) // the other rank posts no receive for it
	require.NoError(t, err)
	assert.ErrorIs(t, a.closeAll(ctx, ucp.CloseFlush), context.Canceled)
}

// TestRequest_NamesTheRank: the error of an operation of a failed endpoint has the rank, also before package ucp has
// called OnError.
func TestRequest_NamesTheRank(t *testing.T) {
	x := newStepped(t, "sm", 2)
	require.NoError(t, x.connected())
	g := x.groups[0]
	require.NoError(t, x.groups[1].w.Close())
	x.groups = x.groups[:1]
	x.until(func() bool { return g.peers[1].gone != nil })
	for name, fail := range map[string]func() error{
		"send":    func() error { return g.world.sendError(1, ucs.ErrEPFailed) },
		"request": func() error { return g.newRequest(g.world, kindSend, 1).failure(ucs.ErrEPFailed) },
	} {
		g.peers[1].gone = nil
		var gone *RankError
		require.ErrorAs(t, fail(), &gone, name)
		assert.Equal(t, 1, gone.Rank, name)
		assert.ErrorIs(t, gone, ucs.ErrPeerClosed, name)
	}
}

// TestComm_Parts: a communicator has its group, and the endpoints of its ranks in their order.
func TestComm_Parts(t *testing.T) {
	g := newStepped(t, "sm", 3).groups[1]
	c := newComm(g, 7, 2, []int32{2, 0, 1})
	assert.Same(t, g, c.Group())
	assert.Same(t, g.w, c.Group().Worker())
	assert.Same(t, g.world, g.World())
	assert.Equal(t, []int{2, 3}, []int{c.Rank(), c.Size()})
	for rank, world := range []int{2, 0, 1} {
		assert.Equal(t, world, c.WorldRank(rank))
		assert.Equal(t, rank, c.rankOf(world))
		assert.Same(t, g.peers[world].ep, c.EP(rank))
	}
	assert.Equal(t, -1, c.rankOf(3))
}
