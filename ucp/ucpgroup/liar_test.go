package ucpgroup

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

func badMessages(w *ucp.Worker) uint64 {
	return maps.Collect(w.Stats().Snapshot().All())["worker.bad_messages"]
}

// forgedNotice is the notice of rank from about rank gone.
func forgedNotice(from, gone int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(from))
	b = binary.LittleEndian.AppendUint32(b, uint32(gone))
	return append(b, byte(ucs.StatusConnReset))
}

// TestNotice_Forged: a notice counts only if it is from the worker of the rank that it names as its sender. One from a
// worker outside the group, or from another rank, is rejected, and the group continues.
func TestNotice_Forged(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		x := newStepped(t, tls, 3)
		require.NoError(t, x.connected())
		g := x.groups[0]
		outside := openWorkers(t, tls, 1)[0]
		ep, err := outside.NewEP(g.w.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		liars := map[*ucp.Worker]*ucp.EP{outside: ep, x.groups[2].w: x.groups[2].World().EP(0)}
		for w, ep := range liars {
			for from := range 2 {
				for gone := range 3 {
					bad := badMessages(g.w)
					r, err := ep.SendActive(NoticeID, nil, forgedNotice(from, gone), nil)
					require.NoError(t, err)
					testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
						w.Progress()
						g.Progress()
						return (r == nil || r.Done()) && badMessages(g.w) == bad+1
					})
					if r != nil {
						r.Release()
					}
					require.NoError(t, g.Err(), fmt.Sprintf("rank %d says that rank %d is gone", from, gone))
				}
			}
		}
		require.NoError(t, x.connected(), "all ranks still reach each other")
		for _, g := range x.groups {
			require.NoError(t, g.Err())
		}
		x.groups[2].Abort(ucs.ErrCanceled) // a notice about its sender counts
		x.until(func() bool { return g.Err() != nil })
	})
}

// forgedSends are the protocols of a tagged message, with the length of its data.
var forgedSends = map[string]struct {
	n    int
	sync bool
}{
	"short":       {n: 8},
	"copied":      {n: 2000},
	"fragments":   {n: 14_000},
	"announced":   {n: 300_000},
	"synchronous": {n: 8, sync: true},
}

// liars are EPs to rank 0 of workers that must not send for rank 1: a worker outside the group, and rank 2.
func (x *stepped) liars(tls string) map[string]*ucp.EP {
	outside := openWorkers(x.t, tls, 1)[0]
	ep, err := outside.NewEP(x.groups[0].w.Address(), ucp.EPConfig{})
	require.NoError(x.t, err)
	return map[string]*ucp.EP{"outside": ep, "rank 2": x.groups[2].World().EP(0)}
}

// sendForged sends a message and waits until rank 0 has rejected it.
func (x *stepped) sendForged(ep *ucp.EP, tag uint64, n int, sync bool) {
	t, g := x.t, x.groups[0]
	bad := badMessages(g.w)
	send := ep.TagSend
	if sync {
		send = ep.TagSendSync
	}
	r, err := send(tag, make([]byte, n), nil)
	require.NoError(t, err)
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		ep.Worker().Progress()
		for _, g := range x.groups {
			g.Progress()
		}
		return (r == nil || r.Done()) && badMessages(g.w) > bad
	})
	if r != nil {
		r.Release()
	}
	require.NoError(t, g.Err())
}

// TestTag_Forged: a message with the source of another rank matches no receive, is counted, and has no other effect,
// from a worker outside the group and from another rank.
func TestTag_Forged(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		x := newStepped(t, tls, 3)
		require.NoError(t, x.connected())
		a, b := x.groups[0].World(), x.groups[1].World()
		for name, ep := range x.liars(tls) {
			for kind, f := range forgedSends {
				for _, posted := range []bool{true, false} {
					buf, data := make([]byte, f.n), bytes.Repeat([]byte{7}, f.n)
					var in *Request
					var err error
					if posted {
						in, err = a.Irecv(AnySource, AnyTag, buf, nil)
						require.NoError(t, err)
					}
					x.sendForged(ep, sendTag(worldContext, 1, 5), f.n, f.sync)
					out, err := b.Isend(0, 5, data, nil)
					require.NoError(t, err)
					if !posted {
						in, err = a.Irecv(AnySource, AnyTag, buf, nil)
						require.NoError(t, err)
					}
					x.until(in.Done)
					st, err := in.take()
					require.NoError(t, err)
					require.Equal(t, Status{Source: 1, Tag: 5, Len: f.n}, st, "%s, %s", name, kind)
					require.True(t, bytes.Equal(data, buf), "%s, %s: not what rank 1 has sent", name, kind)
					require.NoError(t, x.ended(out))
				}
			}
		}
		require.NoError(t, x.connected(), "all ranks still reach each other")
	})
}

// TestTag_ForgedFast: a rank sends correct messages, so that its connection is cached as that of the last message. It
// cannot send with the source of another rank.
func TestTag_ForgedFast(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		x := newStepped(t, tls, 3)
		require.NoError(t, x.connected())
		a, c := x.groups[0].World(), x.groups[2].World()
		for range 3 {
			for _, tag := range []uint64{sendTag(worldContext, 1, 5), sendTag(worldContext, 7, 5), sendTag(worldContext, MaxRanks-1, 5)} {
				buf := make([]byte, 8)
				in, err := a.Irecv(AnySource, 5, buf, nil)
				require.NoError(t, err)
				x.sendForged(c.EP(0), tag, 8, false)
				require.False(t, in.Done())
				out, err := c.Isend(0, 5, []byte("honestly"), nil)
				require.NoError(t, err)
				x.until(in.Done)
				st, err := in.take()
				require.NoError(t, err)
				require.Equal(t, Status{Source: 2, Tag: 5, Len: 8}, st)
				require.Equal(t, "honestly", string(buf))
				require.NoError(t, x.ended(out))
			}
		}
	})
}

// TestTag_ForgedEarly: a message with the source of a rank that arrives before the group is made is dropped then. A
// message of the rank itself is received.
func TestTag_ForgedEarly(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		workers := openWorkers(t, tls, 3)
		addrs := [][]byte{workers[0].Address(), workers[1].Address()}
		b, err := Connect(workers[1], 1, addrs)
		require.NoError(t, err)
		ep, err := workers[2].NewEP(addrs[0], ucp.EPConfig{})
		require.NoError(t, err)
		sizes := []int{8, 2000, 300_000}
		var sent []*ucp.Request
		for i, n := range sizes {
			r, err := ep.TagSend(sendTag(worldContext, 1, 10+i), make([]byte, n), nil)
			require.NoError(t, err)
			if r != nil {
				sent = append(sent, r)
			}
		}
		_, err = b.World().Isend(0, 5, []byte("first"), nil)
		require.NoError(t, err)
		for _, tag := range []int{5, 10, 11, 12} {
			testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
				for _, w := range workers {
					w.Progress()
				}
				_, _, ok := workers[0].TagProbe(sendTag(worldContext, 1, tag), ^uint64(0), false)
				return ok
			})
		}
		a, err := Connect(workers[0], 0, addrs)
		require.NoError(t, err)
		require.Equal(t, uint64(len(sizes)), badMessages(workers[0]))
		x := &stepped{t: t, groups: []*Group{a, b}}
		buf := make([]byte, 5)
		in, err := a.World().Irecv(1, 5, buf, nil)
		require.NoError(t, err)
		require.NoError(t, x.ended(in))
		require.Equal(t, "first", string(buf))
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
			workers[2].Progress()
			a.Progress()
			for _, r := range sent {
				if !r.Done() {
					return false
				}
			}
			return true
		})
		for _, r := range sent {
			r.Release()
		}
	})
}

// TestComm_Foreign: a rank that sends in a communicator without it fails the group, with that rank as the reason.
func TestComm_Foreign(t *testing.T) {
	const context = 9
	x := newStepped(t, "sm", 3)
	require.NoError(t, x.connected())
	a := newComm(x.groups[0], context, 0, []int32{0, 1})
	in, err := a.Irecv(AnySource, 1, make([]byte, 1), nil)
	require.NoError(t, err)
	_, err = newComm(x.groups[2], context, 0, []int32{2, 0}).Isend(1, 1, []byte{1}, nil)
	require.NoError(t, err)
	err = x.ended(in)
	require.ErrorIs(t, err, ucs.ErrRemoteInvalid)
	var gone *RankError
	require.ErrorAs(t, x.groups[0].Err(), &gone)
	require.Equal(t, 2, gone.Rank)
}
