package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// mortal is a pair whose second end can be killed.
func mortal(t *testing.T) (p *pair, kill func()) {
	world := &queued{world: memtp.NewWorld()}
	set := tlsets.Set{Name: "queues", Open: func(testing.TB) (a, b []uct.Component) {
		return []uct.Component{world}, []uct.Component{world}
	}}
	p = newPair(t, set, tupleq).both()
	return p, func() { world.world.Kill(world.mds[1]) }
}

// TestTuple_ReceiverDies: messages that wait for receives of a peer fail once, with the reason, when it dies, in any
// state.
func TestTuple_ReceiverDies(t *testing.T) {
	for _, closing := range []bool{false, true} {
		p, kill := mortal(t)
		p.openTuple(7)
		p.openTuple(8)
		ended := 0
		var sends []*Request
		for k := range 6 {
			s, err := p.a.ep.TagSend(7+uint64(k%2), pattern(1000, k), &OpParams{OnDone: func(err error) { ended++ }})
			require.NoError(t, err)
			require.NotNil(t, s)
			sends = append(sends, s)
		}
		p.settle()
		if closing { // the receiver closes a queue, and does not report the result
			r, err := p.b.w.TagRecv(make([]byte, 10), 7, 0xf, nil, nil)
			require.NoError(t, err)
			for range 3 {
				p.b.w.Progress()
			}
			defer r.Release()
		}
		kill()
		for _, s := range sends {
			p.until(s.Done)
			if err := s.err(); !closing || err != nil {
				assert.ErrorIs(t, err, ucs.ErrConnReset)
			}
			s.Release()
		}
		p.settle()
		assert.Equal(t, len(sends), ended, "OnDone is called once for each")
		assert.ErrorIs(t, p.a.ep.Err(), ucs.ErrEPFailed)
		_, err := p.a.ep.TagSend(7, []byte{1}, nil)
		assert.ErrorIs(t, err, ucs.ErrEPFailed)
	}
}

// TestTuple_SenderDies: receives in the queue of a dead sender match messages of others.
func TestTuple_SenderDies(t *testing.T) {
	p, kill := mortal(t)
	p.b, p.a = p.a, p.b // b is killed: it is the sender
	p.openTuple(7)
	got := [][]byte{make([]byte, 100), make([]byte, 100)}
	var recvs []*Request
	for _, buf := range got {
		r, err := p.b.w.TagRecv(buf, 7, exact, nil, nil)
		require.NoError(t, err)
		recvs = append(recvs, r)
	}
	kill()
	p.until(func() bool { return p.b.ep.Err() != nil })
	self, err := p.b.w.NewEP(p.b.w.Address(), EPConfig{})
	require.NoError(t, err)
	for k, r := range recvs {
		s, err := self.TagSend(7, pattern(100, k), nil)
		require.NoError(t, err)
		require.NoError(t, p.finish(r, nil))
		require.NoError(t, p.finish(s, nil))
		requireBytes(t, pattern(100, k), got[k])
	}
	left, _ := p.b.w.tuples.in.Queues()
	for e := range p.b.w.eps.All() {
		if e.peer == self.peer && e.msgs != nil {
			left -= e.msgs.tuple.queues
		}
	}
	assert.Zero(t, left, "queues of the dead peer")
}

// TestTuple_Closes: an EP that closes waits for messages in queues, or fails them. Receives remain posted.
func TestTuple_Closes(t *testing.T) {
	overQueues(t, func(t *testing.T, p *pair) {
		p.openTuple(7)
		s, err := p.a.ep.TagSend(7, pattern(100, 1), nil)
		require.NoError(t, err)
		c, err := p.a.ep.Close(CloseFlush)
		require.NoError(t, err)
		p.settle()
		require.False(t, c.Done(), "the message was not received")
		got := make([]byte, 100)
		r, err := p.b.w.TagRecv(got, 7, exact, nil, nil)
		require.NoError(t, p.finish(r, err))
		require.NoError(t, p.finish(s, nil))
		require.NoError(t, p.finish(c, nil))
		requireBytes(t, pattern(100, 1), got)

		p.connect()
		p.openTuple(7)
		s, err = p.a.ep.TagSend(7, pattern(100, 2), nil)
		require.NoError(t, err)
		require.NoError(t, p.finish(p.a.ep.Close(CloseForce)))
		require.ErrorIs(t, p.finish(s, nil), ucs.ErrCanceled)
		r, err = p.b.w.TagRecv(got, 7, exact, nil, nil)
		require.NoError(t, err)
		p.settle()
		require.False(t, r.Done(), "the message was canceled")
		p.connect()
		s, err = p.a.ep.TagSend(7, pattern(100, 3), nil)
		require.NoError(t, err)
		require.NoError(t, p.finish(r, nil))
		require.NoError(t, p.finish(s, nil))
		requireBytes(t, pattern(100, 3), got)
	})
}

// TestTuple_WorkerCloses: receives in queues fail when the worker closes.
func TestTuple_WorkerCloses(t *testing.T) {
	overQueues(t, func(t *testing.T, p *pair) {
		p.openTuple(7)
		ended := 0
		for range 3 {
			r, err := p.b.w.TagRecv(make([]byte, 10), 7, exact, nil, &OpParams{OnDone: func(err error) {
				assert.ErrorIs(t, err, ucs.ErrCanceled)
				ended++
			}})
			require.NoError(t, err)
			r.Release()
		}
		require.NoError(t, p.b.w.Close())
		assert.Equal(t, 3, ended)
	})
}

// TestTuple_Hostile: invalid messages about queues affect only their sender.
func TestTuple_Hostile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newPair(t, queues(), tupleq).both()
		p.openTuple(1)
		got, sent := make([]byte, 64), pattern(64, 3)
		rt.Repeat(map[string]func(*rapid.T){
			"tell": func(rt *rapid.T) {
				number := rapid.Uint32Range(0, 12).Draw(rt, "number")
				value := rapid.OneOf(rapid.Uint64Range(0, 4), rapid.Uint64()).Draw(rt, "value")
				kind := wire.TupleKind(rapid.Uint32Range(1, 8).Draw(rt, "kind"))
				if p.a.ep.Err() == nil {
					p.a.ep.messaging().tuple.SendControl(rapid.Uint64Range(0, 3).Draw(rt, "tag"), kind, number, value)
				}
			},
			"there": func(rt *rapid.T) { tryTag(p.a.ep, rapid.Uint64Range(0, 3).Draw(rt, "tag"), sent) },
			"back":  func(rt *rapid.T) { tryTag(p.b.ep, rapid.Uint64Range(0, 3).Draw(rt, "tag"), sent) },
			"receive": func(rt *rapid.T) {
				r, err := p.b.w.TagRecv(got, rapid.Uint64Range(0, 3).Draw(rt, "tag"), exact, nil, nil)
				if err == nil && r != nil {
					r.Release()
				}
			},
			"progress": func(*rapid.T) { p.settle() },
		})
		require.NoError(rt, p.a.w.Close())
		require.NoError(rt, p.b.w.Close())
	})
}

// tryTag sends a message that may be rejected.
func tryTag(e *EP, tag uint64, data []byte) {
	if r, err := e.TagSend(tag, data, nil); err == nil && r != nil {
		r.Release()
	}
}
