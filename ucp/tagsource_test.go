package ucp_test

import (
	"context"
	"iter"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
)

// sourceBits are the bits of a tag that identify its sender in these tests.
const sourceBits = 0xff << 32

func sourced(e *ucp.EP, bits uint64) iter.Seq2[*ucp.EP, uint64] {
	return func(yield func(*ucp.EP, uint64) bool) { yield(e, bits) }
}

// TestRestrictTags_Params: invalid rules are rejected, and the previous rule remains.
func TestRestrictTags_Params(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like tcp", faketp.LikeTCP()), ucp.Config{}).Both()
	w, e := p.B.W, p.B.EP
	require.NoError(t, w.RestrictTags(sourceBits, sourced(e, 1<<32)))
	twice := func(yield func(*ucp.EP, uint64) bool) { _ = yield(e, 1<<32) && yield(e, 2<<32) }
	for name, err := range map[string]error{
		"full mask":    w.RestrictTags(math.MaxUint64, sourced(e, 1)),
		"no sources":   w.RestrictTags(sourceBits, nil),
		"no mask":      w.RestrictTags(0, sourced(e, 0)),
		"other bits":   w.RestrictTags(sourceBits, sourced(e, 1)),
		"other worker": w.RestrictTags(sourceBits, sourced(p.A.EP, 1<<32)),
		"two sources":  w.RestrictTags(sourceBits, twice),
	} {
		require.ErrorIs(t, err, ucs.ErrInvalidParam, name)
	}
	bits, restricted := w.TagSourceOf(e.Peer().Addr.Key)
	require.True(t, restricted)
	require.Equal(t, uint64(1<<32), bits)
	require.Equal(t, 1, w.TagSources())
	require.NoError(t, w.RestrictTags(0, nil))
	bits, restricted = w.TagSourceOf(e.Peer().Addr.Key)
	require.False(t, restricted)
	require.Zero(t, bits)
	require.Zero(t, w.TagSources())
}

// sourcedPair is a pair whose b permits a to send tags with one source only.
func sourcedPair(t *testing.T, set tlsets.Set, cfg ucp.Config) *ucppair.Pair {
	p := ucppair.New(t, set, cfg).Both()
	require.NoError(t, p.B.W.RestrictTags(sourceBits, sourced(p.B.EP, 1<<32)))
	return p
}

// TestRestrictTags_Sizes: messages of all sizes with the right source are received. Others are not, and each is
// counted. If such a send is synchronous or uses rendezvous, it completes.
func TestRestrictTags_Sizes(t *testing.T) {
	for _, set := range lieSets() {
		t.Run(set.Name, func(t *testing.T) {
			p := sourcedPair(t, set, ucp.Config{})
			for i, size := range tagSizes {
				bad := p.B.W.BadMessages().Load()
				r := tagSend(p, 2<<32|7, testenv.Pattern(size, i))
				s, err := p.A.EP.TagSendSync(7, testenv.Pattern(size, i), nil)
				require.NoError(t, err)
				p.Until(func() bool { return p.B.W.BadMessages().Load() >= bad+2 && s.Done() && (r == nil || r.Done()) })
				require.ErrorIs(t, s.Take(), ucs.ErrCanceled)
				require.NoError(t, p.Finish(r, nil))
				require.Zero(t, p.B.W.Tags().Unexpected())
				passTag(p, 1<<32|7, size, i)
			}
			require.NoError(t, p.B.W.RestrictTags(0, nil))
			passTag(p, 2<<32|7, 8, 1)
		})
	}
}

// TestRestrictTags_Credit: rejected messages return their credit, and use no memory of this worker.
func TestRestrictTags_Credit(t *testing.T) {
	p := sourcedPair(t, faketp.Set("like tcp", faketp.LikeTCP()), ucp.Config{})
	bad := p.B.W.BadMessages().Load()
	for range 1000 {
		require.NoError(t, p.Finish(tagSend(p, 7, testenv.Pattern(1000, 1)), nil))
		p.Step()
	}
	p.Until(func() bool { return p.B.W.BadMessages().Load() == bad+1000 })
	require.Zero(t, p.B.W.Tags().Unexpected())
	require.Zero(t, p.B.EP.Messages().Held)
	passTag(p, 1<<32, 100, 1)
}

// TestRestrictTags_Queries: a peer without credit gets queries for its own source only. It cannot offer a message with
// another source.
func TestRestrictTags_Queries(t *testing.T) {
	p := sourcedPair(t, faketp.Set("like tcp", faketp.LikeTCP()), ucp.Config{EagerWindow: 1 << 10})
	var waiting []*ucp.Request
	for i := range 200 {
		for _, source := range []uint64{1, 2} {
			if r := tagSend(p, source<<32|uint64(i), testenv.Pattern(500, i)); r != nil {
				waiting = append(waiting, r)
			}
		}
		p.Step()
	}
	for i := range 200 {
		i = 199 - i
		buf, info := make([]byte, 500), &ucp.TagInfo{}
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, uint64(i), exact&^sourceBits, info, nil)))
		require.Equal(t, 1<<32|uint64(i), info.Tag)
		testenv.RequireBytes(t, testenv.Pattern(500, i), buf)
	}
	for _, r := range waiting {
		if !r.Done() {
			r.Cancel()
		}
		_ = p.Finish(r, nil)
	}
}

// TestRestrictTags_Tuples: a peer gets tuple queues for tags with its own source only.
func TestRestrictTags_Tuples(t *testing.T) {
	overQueues(t, func(t *testing.T, p *ucppair.Pair) {
		p.B.Dial(t, &p.A)
		require.NoError(t, p.B.W.RestrictTags(sourceBits, sourced(p.B.EP, 1<<32)))
		openTuple(p, 1<<32|7)
		bad := p.B.W.BadMessages().Load()
		for range 20 {
			require.NoError(t, p.Finish(tagSend(p, 2<<32|7, testenv.Pattern(64, 1)), nil))
			p.Step()
		}
		p.Until(func() bool { return p.B.W.BadMessages().Load() >= bad+20 })
		require.EqualValues(t, 1, tupleStat(p.B.W, "opened"))
		passTag(p, 1<<32|7, 300, 1)
	})
}

// TestListen_UnprovenSendsNothing: a dialer has the id of its EP from the ACCEPT. Messages with that id are dropped
// until the dialer has proven that it is the worker of its address.
func TestListen_UnprovenSendsNothing(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like tcp", faketp.LikeTCP()), ucp.Config{})
	l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{})
	sent := false
	peer, err := p.A.W.DialWith(t.Context(), "unix", l.Addr().String(), &ucp.DialConfig{}, func(ctx context.Context, done func() bool) error {
		return progressing(p)(ctx, func() bool {
			for _, e := range p.B.W.ExpectedEPs() {
				bad := p.B.W.BadMessages().Load()
				p.B.W.Handler(wire.AMTag)((&wire.Head{Word: 7, EP: e.ID()}).Append(nil), nil)
				require.Equal(t, bad+1, p.B.W.BadMessages().Load())
				sent = true
			}
			return done()
		})
	})
	require.NoError(t, err)
	require.True(t, sent)
	require.Zero(t, p.B.W.Tags().Unexpected())
	p.A.EP = peer.EP
	passTag(p, 7, 8, 1)
}
