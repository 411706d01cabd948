package ucp

import (
	"context"
	"iter"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
)

// sourceBits are the bits of a tag that identify its sender in these tests.
const sourceBits = 0xff << 32

func sourced(e *EP, bits uint64) iter.Seq2[*EP, uint64] {
	return func(yield func(*EP, uint64) bool) { yield(e, bits) }
}

// TestRestrictTags_Params: invalid rules are rejected, and the previous rule remains.
func TestRestrictTags_Params(t *testing.T) {
	p := newPair(t, faketp.Set("like tcp", faketp.LikeTCP()), Config{}).both()
	w, e := p.b.w, p.b.ep
	require.NoError(t, w.RestrictTags(sourceBits, sourced(e, 1<<32)))
	twice := func(yield func(*EP, uint64) bool) { _ = yield(e, 1<<32) && yield(e, 2<<32) }
	for name, err := range map[string]error{
		"full mask":    w.RestrictTags(math.MaxUint64, sourced(e, 1)),
		"no sources":   w.RestrictTags(sourceBits, nil),
		"no mask":      w.RestrictTags(0, sourced(e, 0)),
		"other bits":   w.RestrictTags(sourceBits, sourced(e, 1)),
		"other worker": w.RestrictTags(sourceBits, sourced(p.a.ep, 1<<32)),
		"two sources":  w.RestrictTags(sourceBits, twice),
	} {
		require.ErrorIs(t, err, ucs.ErrInvalidParam, name)
	}
	require.Equal(t, uint64(1<<32), w.tag.sources.bits[e.peer.Addr.Key])
	require.NoError(t, w.RestrictTags(0, nil))
	require.Zero(t, w.tag.sources)
}

// sourcedPair is a pair whose b permits a to send tags with one source only.
func sourcedPair(t *testing.T, set tlsets.Set, cfg Config) *pair {
	p := newPair(t, set, cfg).both()
	require.NoError(t, p.b.w.RestrictTags(sourceBits, sourced(p.b.ep, 1<<32)))
	return p
}

// TestRestrictTags_Sizes: messages of all sizes with the right source are received. Others are not, and each is
// counted. If such a send is synchronous or uses rendezvous, it completes.
func TestRestrictTags_Sizes(t *testing.T) {
	for _, set := range lieSets() {
		t.Run(set.Name, func(t *testing.T) {
			p := sourcedPair(t, set, Config{})
			for i, size := range tagSizes {
				bad := p.b.w.stats.badMessages.Load()
				r := p.tagSend(2<<32|7, pattern(size, i))
				s, err := p.a.ep.TagSendSync(7, pattern(size, i), nil)
				require.NoError(t, err)
				p.until(func() bool { return p.b.w.stats.badMessages.Load() >= bad+2 && s.Done() && (r == nil || r.Done()) })
				require.ErrorIs(t, s.take(), ucs.ErrCanceled)
				require.NoError(t, p.finish(r, nil))
				require.Zero(t, p.b.w.tag.table.Unexpected())
				p.tag(1<<32|7, size, i)
			}
			require.NoError(t, p.b.w.RestrictTags(0, nil))
			p.tag(2<<32|7, 8, 1)
		})
	}
}

// TestRestrictTags_Credit: rejected messages return their credit, and use no memory of this worker.
func TestRestrictTags_Credit(t *testing.T) {
	p := sourcedPair(t, faketp.Set("like tcp", faketp.LikeTCP()), Config{})
	bad := p.b.w.stats.badMessages.Load()
	for range 1000 {
		require.NoError(t, p.finish(p.tagSend(7, pattern(1000, 1)), nil))
		p.step()
	}
	p.until(func() bool { return p.b.w.stats.badMessages.Load() == bad+1000 })
	require.Zero(t, p.b.w.tag.table.Unexpected())
	require.Zero(t, p.b.ep.msgs.Held)
	p.tag(1<<32, 100, 1)
}

// TestRestrictTags_Queries: a peer without credit gets queries for its own source only. It cannot offer a message with
// another source.
func TestRestrictTags_Queries(t *testing.T) {
	p := sourcedPair(t, faketp.Set("like tcp", faketp.LikeTCP()), Config{EagerWindow: 1 << 10})
	var waiting []*Request
	for i := range 200 {
		for _, source := range []uint64{1, 2} {
			if r := p.tagSend(source<<32|uint64(i), pattern(500, i)); r != nil {
				waiting = append(waiting, r)
			}
		}
		p.step()
	}
	for i := range 200 {
		i = 199 - i
		buf, info := make([]byte, 500), &TagInfo{}
		require.NoError(t, p.finish(p.b.w.TagRecv(buf, uint64(i), exact&^sourceBits, info, nil)))
		require.Equal(t, 1<<32|uint64(i), info.Tag)
		requireBytes(t, pattern(500, i), buf)
	}
	for _, r := range waiting {
		if !r.Done() {
			r.Cancel()
		}
		_ = p.finish(r, nil)
	}
}

// TestRestrictTags_Tuples: a peer gets tuple queues for tags with its own source only.
func TestRestrictTags_Tuples(t *testing.T) {
	overQueues(t, func(t *testing.T, p *pair) {
		p.b.dial(t, &p.a)
		require.NoError(t, p.b.w.RestrictTags(sourceBits, sourced(p.b.ep, 1<<32)))
		p.openTuple(1<<32 | 7)
		bad := p.b.w.stats.badMessages.Load()
		for range 20 {
			require.NoError(t, p.finish(p.tagSend(2<<32|7, pattern(64, 1)), nil))
			p.step()
		}
		p.until(func() bool { return p.b.w.stats.badMessages.Load() >= bad+20 })
		require.EqualValues(t, 1, p.b.stat("opened"))
		p.tag(1<<32|7, 300, 1)
	})
}

// TestListen_UnprovenSendsNothing: a dialer has the id of its EP from the ACCEPT. Messages with that id are dropped
// until the dialer has proven that it is the worker of its address.
func TestListen_UnprovenSendsNothing(t *testing.T) {
	p := newPair(t, faketp.Set("like tcp", faketp.LikeTCP()), Config{})
	l := p.b.listen(t, "unix", abstractName(), ListenConfig{})
	sent := false
	peer, err := p.a.w.dial(t.Context(), "unix", l.Addr().String(), &DialConfig{}, func(ctx context.Context, done func() bool) error {
		return p.within(ctx, func() bool {
			for e := range p.b.w.connecting.listening.expected {
				bad := p.b.w.stats.badMessages.Load()
				p.b.w.handleTag((&wire.Head{Word: 7, EP: e.id}).Append(nil))
				require.Equal(t, bad+1, p.b.w.stats.badMessages.Load())
				sent = true
			}
			return done()
		})
	})
	require.NoError(t, err)
	require.True(t, sent)
	require.Zero(t, p.b.w.tag.table.Unexpected())
	p.a.ep = peer.EP
	p.tag(7, 8, 1)
}
