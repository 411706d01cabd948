package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// mortal is a pair whose second end can be killed.
func mortal(t *testing.T, cfg ucp.Config) (p *ucppair.Pair, kill func()) {
	world := &queued{world: memtp.NewWorld()}
	set := tlsets.Set{Name: "queues", Open: func(testing.TB) (a, b []uct.Component) {
		return []uct.Component{world}, []uct.Component{world}
	}}
	p = ucppair.New(t, set, cfg).Both()
	return p, func() { world.world.Kill(world.mds[1]) }
}

// TestTuple_ReceiverDies: messages that wait for receives of a peer fail once, with the reason, when it dies, in any
// state.
func TestTuple_ReceiverDies(t *testing.T) {
	for _, closing := range []bool{false, true} {
		p, kill := mortal(t, tupleq)
		openTuple(p, 7)
		openTuple(p, 8)
		ended := 0
		var sends []*ucp.Request
		for k := range 6 {
			s, err := p.A.EP.TagSend(7+uint64(k%2), testenv.Pattern(1000, k), &ucp.OpParams{OnDone: func(err error) { ended++ }})
			require.NoError(t, err)
			require.NotNil(t, s)
			sends = append(sends, s)
		}
		settleQueues(p)
		if closing { // the receiver closes a queue, and does not report the result
			r, err := p.B.W.TagRecv(make([]byte, 10), 7, 0xf, nil, nil)
			require.NoError(t, err)
			for range 3 {
				p.B.W.Progress()
			}
			defer r.Release()
		}
		kill()
		for _, s := range sends {
			p.Until(s.Done)
			if err := s.Result(); !closing || err != nil {
				assert.ErrorIs(t, err, ucs.ErrConnReset)
			}
			s.Release()
		}
		settleQueues(p)
		assert.Equal(t, len(sends), ended, "OnDone is called once for each")
		assert.ErrorIs(t, p.A.EP.Err(), ucs.ErrEPFailed)
		_, err := p.A.EP.TagSend(7, []byte{1}, nil)
		assert.ErrorIs(t, err, ucs.ErrEPFailed)
	}
}

// TestTuple_SenderDies: receives in the queue of a dead sender match messages of others.
func TestTuple_SenderDies(t *testing.T) {
	p, kill := mortal(t, tupleq)
	p.B, p.A = p.A, p.B // b is killed: it is the sender
	openTuple(p, 7)
	got := [][]byte{make([]byte, 100), make([]byte, 100)}
	var recvs []*ucp.Request
	for _, buf := range got {
		r, err := p.B.W.TagRecv(buf, 7, exact, nil, nil)
		require.NoError(t, err)
		recvs = append(recvs, r)
	}
	kill()
	p.Until(func() bool { return p.B.EP.Err() != nil })
	self, err := p.B.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	for k, r := range recvs {
		s, err := self.TagSend(7, testenv.Pattern(100, k), nil)
		require.NoError(t, err)
		require.NoError(t, p.Finish(r, nil))
		require.NoError(t, p.Finish(s, nil))
		testenv.RequireBytes(t, testenv.Pattern(100, k), got[k])
	}
	left, _ := p.B.W.TupleQueues().Queues()
	for e := range p.B.W.EPs().All() {
		if e.Peer() == self.Peer() && e.Messages() != nil {
			left -= e.Messages().TupleQueues()
		}
	}
	assert.Zero(t, left, "queues of the dead peer")
}

// TestTuple_Closes: an EP that closes waits for messages in queues, or fails them. Receives remain posted.
func TestTuple_Closes(t *testing.T) {
	overQueues(t, func(t *testing.T, p *ucppair.Pair) {
		openTuple(p, 7)
		s, err := p.A.EP.TagSend(7, testenv.Pattern(100, 1), nil)
		require.NoError(t, err)
		c, err := p.A.EP.Close(ucp.CloseFlush)
		require.NoError(t, err)
		settleQueues(p)
		require.False(t, c.Done(), "the message was not received")
		got := make([]byte, 100)
		r, err := p.B.W.TagRecv(got, 7, exact, nil, nil)
		require.NoError(t, p.Finish(r, err))
		require.NoError(t, p.Finish(s, nil))
		require.NoError(t, p.Finish(c, nil))
		testenv.RequireBytes(t, testenv.Pattern(100, 1), got)

		p.Connect()
		openTuple(p, 7)
		s, err = p.A.EP.TagSend(7, testenv.Pattern(100, 2), nil)
		require.NoError(t, err)
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseForce)))
		require.ErrorIs(t, p.Finish(s, nil), ucs.ErrCanceled)
		r, err = p.B.W.TagRecv(got, 7, exact, nil, nil)
		require.NoError(t, err)
		settleQueues(p)
		require.False(t, r.Done(), "the message was canceled")
		p.Connect()
		s, err = p.A.EP.TagSend(7, testenv.Pattern(100, 3), nil)
		require.NoError(t, err)
		require.NoError(t, p.Finish(r, nil))
		require.NoError(t, p.Finish(s, nil))
		testenv.RequireBytes(t, testenv.Pattern(100, 3), got)
	})
}

// TestTuple_WorkerCloses: receives in queues fail when the worker closes.
func TestTuple_WorkerCloses(t *testing.T) {
	overQueues(t, func(t *testing.T, p *ucppair.Pair) {
		openTuple(p, 7)
		ended := 0
		for range 3 {
			r, err := p.B.W.TagRecv(make([]byte, 10), 7, exact, nil, &ucp.OpParams{OnDone: func(err error) {
				assert.ErrorIs(t, err, ucs.ErrCanceled)
				ended++
			}})
			require.NoError(t, err)
			r.Release()
		}
		require.NoError(t, p.B.W.Close())
		assert.Equal(t, 3, ended)
	})
}

// TestTuple_Hostile: invalid messages about queues affect only their sender.
func TestTuple_Hostile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := ucppair.New(t, queues(), tupleq).Both()
		openTuple(p, 1)
		got, sent := make([]byte, 64), testenv.Pattern(64, 3)
		rt.Repeat(map[string]func(*rapid.T){
			"tell": func(rt *rapid.T) {
				number := rapid.Uint32Range(0, 12).Draw(rt, "number")
				value := rapid.OneOf(rapid.Uint64Range(0, 4), rapid.Uint64()).Draw(rt, "value")
				kind := wire.TupleKind(rapid.Uint32Range(1, 8).Draw(rt, "kind"))
				if p.A.EP.Err() == nil {
					p.A.EP.Messaging().TupleLink().Tell(rapid.Uint64Range(0, 3).Draw(rt, "tag"), kind, number, value)
				}
			},
			"there": func(rt *rapid.T) { tryTag(p.A.EP, rapid.Uint64Range(0, 3).Draw(rt, "tag"), sent) },
			"back":  func(rt *rapid.T) { tryTag(p.B.EP, rapid.Uint64Range(0, 3).Draw(rt, "tag"), sent) },
			"receive": func(rt *rapid.T) {
				r, err := p.B.W.TagRecv(got, rapid.Uint64Range(0, 3).Draw(rt, "tag"), exact, nil, nil)
				if err == nil && r != nil {
					r.Release()
				}
			},
			"progress": func(*rapid.T) { settleQueues(p) },
		})
		require.NoError(rt, p.A.W.Close())
		require.NoError(rt, p.B.W.Close())
	})
}

// tryTag sends a message that may be rejected.
func tryTag(e *ucp.EP, tag uint64, data []byte) {
	if r, err := e.TagSend(tag, data, nil); err == nil && r != nil {
		r.Release()
	}
}
