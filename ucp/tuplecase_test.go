package ucp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// posting counts messages and bytes of transports, and the buffers of messages in queues.
type posting struct {
	messages, sends int
	from, to        []*byte
}

// layer returns a layer in which p counts.
func (p *posting) layer() wrap.Hooks {
	return wrap.Hooks{
		EP: func(e *wrap.EP) {
			e.Intercept(p)
			e.Has.Queues = &watchedQueuer{e.Has.Queues, p}
		},
	}
}

// Before implements wrap.Interceptor.
func (p *posting) Before(uct.Variant) error { return nil }

// After implements wrap.Interceptor.
func (p *posting) After(v uct.Variant, _ int, err error) {
	switch {
	case err != nil:
	case v == uct.QueueZcopy:
		p.sends++
	default:
		p.messages++
	}
}

type watchedQueuer struct {
	uct.Queuer
	p *posting
}

func (w *watchedQueuer) NewQueue(depth int) (uct.Queue, error) {
	q, err := w.Queuer.NewQueue(depth)
	return &watchedQueue{q, w.p}, err
}

type watchedQueue struct {
	uct.Queue
	p *posting
}

func (q *watchedQueue) Post(r *uct.QueueRecv, iov []uct.IOV) error {
	q.p.to = append(q.p.to, &iov[0].Buf[0])
	return q.Queue.Post(r, iov)
}

func (s *watchedQueuer) Attach(number uint32) (uct.QueueConn, error) {
	c, err := s.Queuer.Attach(number)
	return &watchedConn{c, s.p}, err
}

type watchedConn struct {
	uct.QueueConn
	p *posting
}

func (c *watchedConn) SendZcopy(iov []uct.IOV, done *uct.Completion) (bool, error) {
	c.p.from = append(c.p.from, &iov[0].Buf[0])
	return c.QueueConn.SendZcopy(iov, done)
}

// TestTuple_SendsNoControlMessage: with an open queue a message is one send from the buffer of the sender to the buffer
// of the receiver, in memory that is registered and not, in both directions. There is no copy and no control message.
func TestTuple_SendsNoControlMessage(t *testing.T) {
	over := &posting{}
	p := ucppair.New(t, queues(over.layer()), tupleq).Connect()
	openTuple(p, 7)
	settleQueues(p)
	const count, n = 20, 2000
	before := *over
	messages := tupleStat(p.A.W, "messages") + tupleStat(p.B.W, "messages")
	over.from, over.to = nil, nil
	for k := range count {
		src, dst := p.A.Mem.Bytes()[k*n:(k+1)*n], p.B.Mem.Bytes()[k*n:(k+1)*n]
		in, out := &ucp.OpParams{Mem: p.B.Mem}, &ucp.OpParams{Mem: p.A.Mem}
		if k%2 == 1 {
			src, dst, in, out = make([]byte, n), make([]byte, n), nil, nil
		}
		copy(src, testenv.Pattern(n, k))
		info := &ucp.TagInfo{}
		r, err := p.B.W.TagRecv(dst, 7, exact, info, in)
		require.NoError(t, err)
		s, err := p.A.EP.TagSend(7, src, out)
		require.NoError(t, err)
		require.NoError(t, p.Finish(s, nil))
		require.NoError(t, p.Finish(r, nil))
		testenv.RequireBytes(t, testenv.Pattern(n, k), dst)
		assert.Equal(t, ucp.TagInfo{Tag: 7, Length: n, From: info.From}, *info)
		assert.NotNil(t, info.From)
		assert.Same(t, &src[0], over.from[k], "the sender's own buffer")
		assert.Same(t, &dst[0], over.to[k], "the receiver's own buffer")
	}
	settleQueues(p)
	assert.Equal(t, before.messages, over.messages, "messages beside the data")
	assert.Equal(t, before.sends+count, over.sends)
	assert.Equal(t, messages, tupleStat(p.A.W, "messages")+tupleStat(p.B.W, "messages"))
	assert.Zero(t, tupleStat(p.A.W, "copies"))
}

// TestTuple_Copies: with tupleq_copy small sends complete in the call.
func TestTuple_Copies(t *testing.T) {
	cfg := tupleq
	cfg.TagProto = "tupleq_copy"
	p := ucppair.New(t, queues(), cfg).Connect()
	openTuple(p, 7)
	before := tupleStat(p.A.W, "copies")
	buf := testenv.Pattern(ucp.CopySlotLen, 3)
	s, err := p.A.EP.TagSend(7, buf, nil)
	require.NoError(t, err)
	require.Nil(t, s, "it has completed")
	clear(buf)
	got := make([]byte, ucp.CopySlotLen+1)
	r, err := p.B.W.TagRecv(got, 7, exact, nil, nil)
	require.NoError(t, p.Finish(r, err))
	testenv.RequireBytes(t, testenv.Pattern(ucp.CopySlotLen, 3), got[:ucp.CopySlotLen])
	assert.Equal(t, before+1, tupleStat(p.A.W, "copies"))
	passTag(p, 7, ucp.CopySlotLen+1, 5)
	assert.Equal(t, before+1, tupleStat(p.A.W, "copies"), "a larger one is not copied")
}

// TestAllocs_Tuples: messages allocate nothing after the queues are open and the pools warm.
func TestAllocs_Tuples(t *testing.T) {
	for _, proto := range []string{"tupleq", "tupleq_copy"} {
		t.Run(proto, func(t *testing.T) {
			p := ucppair.New(t, queues(), ucp.Config{TagProto: proto}).Connect()
			openTuple(p, 7)
			info := &ucp.TagInfo{}
			in, out := &ucp.OpParams{Mem: p.B.Mem}, &ucp.OpParams{Mem: p.A.Mem}
			once := func() {
				r, err := p.B.W.TagRecv(p.B.Mem.Bytes()[:300], 7, exact, info, in)
				s, err2 := p.A.EP.TagSend(7, p.A.Mem.Bytes()[:300], out)
				if err != nil || err2 != nil || r == nil {
					panic("it has failed")
				}
				for !r.Done() || s != nil && !s.Done() {
					p.Step()
				}
				r.Release()
				if s != nil {
					s.Release()
				}
			}
			for range 100 {
				once()
			}
			before := tupleStat(p.A.W, "sends")
			testenv.NoAllocs(t, "a message through a queue", once)
			assert.Greater(t, tupleStat(p.A.W, "sends"), before)
		})
	}
}

// TestTuple_OrderAtTheSwitch: messages of a tag arrive in order, through the queue or not, with posted receives and
// without.
func TestTuple_OrderAtTheSwitch(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("receives first %v", first), func(t *testing.T) {
			overQueues(t, func(t *testing.T, p *ucppair.Pair) {
				const count, n = 200, 100
				passTag(p, 1, 8, 0) // connects
				var recvs, sends []*ucp.Request
				got := make([][]byte, count)
				receive := func() {
					for k := range got {
						got[k] = make([]byte, n)
						r, err := p.B.W.TagRecv(got[k], 7, exact, nil, nil)
						require.NoError(t, err)
						recvs = append(recvs, r)
					}
				}
				if first {
					receive()
				}
				for k := range count {
					s, err := p.A.EP.TagSend(7, testenv.Pattern(n, k), nil)
					require.NoError(t, err)
					sends = append(sends, s)
					if k%50 == 49 {
						settleQueues(p)
					}
				}
				if !first {
					receive()
				}
				for k, r := range recvs {
					require.NoError(t, p.Finish(r, nil))
					testenv.RequireBytes(t, testenv.Pattern(n, k), got[k])
				}
				for _, s := range sends {
					require.NoError(t, p.Finish(s, nil))
				}
				if tupleStat(p.B.W, "receives") == 0 { // all messages were faster than the queue
					openTuple(p, 7)
				}
			})
		})
	}
}

// TestTuple_ReceivedInAnotherOrder: messages with more tags than there are connections wait for their receives, which
// are posted in reverse order, each after the previous one has completed.
func TestTuple_ReceivedInAnotherOrder(t *testing.T) {
	overQueues(t, func(t *testing.T, p *ucppair.Pair) {
		const tags, n = 24, 500
		for tag := range uint64(tags) {
			openTuple(p, tag)
		}
		var sends []*ucp.Request
		for tag := range tags {
			for k := range 2 {
				s, err := p.A.EP.TagSend(uint64(tag), testenv.Pattern(n, 2*tag+k), nil)
				require.NoError(t, err)
				sends = append(sends, s)
			}
		}
		settleQueues(p)
		for tag := tags - 1; tag >= 0; tag-- {
			for k := range 2 {
				got := make([]byte, n)
				r, err := p.B.W.TagRecv(got, uint64(tag), exact, nil, nil)
				require.NoError(t, p.Finish(r, err))
				testenv.RequireBytes(t, testenv.Pattern(n, 2*tag+k), got)
			}
		}
		for _, s := range sends {
			require.NoError(t, p.Finish(s, nil))
		}
		assert.Positive(t, tupleStat(p.A.W, "closed_busy"))
		passTag(p, 3, n, 1)
	})
}

// TestTuple_Truncated: a message that is longer than its receive fills it, and the next one arrives in its own receive.
// A message that is longer than the queue permits does not use the queue.
func TestTuple_Truncated(t *testing.T) {
	overQueues(t, func(t *testing.T, p *ucppair.Pair) {
		openTuple(p, 7)
		received := tupleStat(p.B.W, "receives")
		for k, room := range []int{0, 10, 999, 1000, 2000} {
			info, got := &ucp.TagInfo{}, make([]byte, room)
			r, err := p.B.W.TagRecv(got, 7, exact, info, nil)
			require.NoError(t, err)
			s, err := p.A.EP.TagSend(7, testenv.Pattern(1000, k), nil)
			require.NoError(t, err)
			err = p.Finish(r, nil)
			if room < 1000 {
				require.ErrorIs(t, err, ucs.ErrTruncated)
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, p.Finish(s, nil))
			assert.Equal(t, 1000, info.Length)
			testenv.RequireBytes(t, testenv.Pattern(1000, k)[:min(room, 1000)], got[:min(room, 1000)])
			testenv.RequireZero(t, got[min(room, 1000):], "beyond the message")
		}
		assert.Equal(t, received+5, tupleStat(p.B.W, "receives"))
		passTag(p, 7, 3<<20, 9)
		assert.Equal(t, uint64(1), tupleStat(p.A.W, "closed_long"))
		openTuple(p, 7)
	})
}

// TestTuple_Cancel: a receive in a queue can be canceled. The message matches the next one.
func TestTuple_Cancel(t *testing.T) {
	overQueues(t, func(t *testing.T, p *ucppair.Pair) {
		openTuple(p, 7)
		bufs := make([][]byte, 3)
		var recvs []*ucp.Request
		for k := range bufs {
			bufs[k] = make([]byte, 100)
			r, err := p.B.W.TagRecv(bufs[k], 7, exact, nil, nil)
			require.NoError(t, err)
			recvs = append(recvs, r)
		}
		recvs[1].Cancel()
		require.ErrorIs(t, p.Finish(recvs[1], nil), ucs.ErrCanceled)
		for k := range 2 {
			s, err := p.A.EP.TagSend(7, testenv.Pattern(100, k), nil)
			require.NoError(t, err)
			require.NoError(t, p.Finish(recvs[2*k], nil))
			require.NoError(t, p.Finish(s, nil))
			testenv.RequireBytes(t, testenv.Pattern(100, k), bufs[2*k])
		}
		testenv.RequireZero(t, bufs[1], "the receive was canceled")
		assert.Equal(t, uint64(1), tupleStat(p.B.W, "closed_cancel"))
		openTuple(p, 7)
	})
}

// TestTuple_Wildcards: a receive with a mask closes the queues whose tags it matches. They open again after it has
// completed, after twice as many messages each time.
func TestTuple_Wildcards(t *testing.T) {
	p := ucppair.New(t, queues(), tupleq).Connect()
	openTuple(p, 0x10)
	openTuple(p, 0x21)
	for k := range 6 {
		got := make([]byte, 100)
		r, err := p.B.W.TagRecv(got, 0x10, 0xf0, nil, nil)
		require.NoError(t, err)
		s, err := p.A.EP.TagSend(0x10, testenv.Pattern(100, k), nil)
		require.NoError(t, err)
		require.NoError(t, p.Finish(r, nil))
		require.NoError(t, p.Finish(s, nil))
		testenv.RequireBytes(t, testenv.Pattern(100, k), got)
		assert.EqualValues(t, k+1, tupleStat(p.B.W, "closed_wildcard"))
		openTuple(p, 0x10)
	}
	before := tupleStat(p.B.W, "receives")
	passTag(p, 0x21, 50, 1)
	assert.Equal(t, before+1, tupleStat(p.B.W, "receives"), "other queues remain open")
}

// TestTuple_NoWildcards: a mask is rejected if the configuration promises that there is none.
func TestTuple_NoWildcards(t *testing.T) {
	cfg := tupleq
	cfg.TupleqNoWildcards = true
	p := ucppair.New(t, queues(), cfg).Connect()
	_, err := p.B.W.TagRecv(make([]byte, 8), 1, 1, nil, nil)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	assert.ErrorContains(t, err, "TUPLEQ_NO_WILDCARDS")
	openTuple(p, 1)
}

// TestTuple_Evicts: with more tags than queues, the least used queue is closed for another tag.
func TestTuple_Evicts(t *testing.T) {
	cfg := tupleq
	cfg.TupleqMax = 3
	p := ucppair.New(t, queues(), cfg).Connect()
	for round := range 60 {
		for tag := range uint64(8) {
			passTag(p, tag, 100, round)
			queues, _ := p.B.W.TupleQueues().Queues()
			require.LessOrEqual(t, queues, 3)
		}
	}
	assert.Positive(t, tupleStat(p.A.W, "closed_evicted")+tupleStat(p.B.W, "closed_evicted"))
	assert.Positive(t, tupleStat(p.B.W, "receives"))
}

// TestTuple_AnotherSender: a message of another peer with the same tag matches the receive that is in the queue of the
// first peer.
func TestTuple_AnotherSender(t *testing.T) {
	p := ucppair.New(t, queues(), tupleq).Both()
	openTuple(p, 7)
	got := make([]byte, 100)
	r, err := p.B.W.TagRecv(got, 7, exact, nil, nil)
	require.NoError(t, err)
	self, err := p.B.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	s, err := self.TagSend(7, testenv.Pattern(100, 4), nil)
	require.NoError(t, err)
	require.NoError(t, p.Finish(r, nil))
	require.NoError(t, p.Finish(s, nil))
	testenv.RequireBytes(t, testenv.Pattern(100, 4), got)
	assert.EqualValues(t, 1, tupleStat(p.B.W, "closed_other"))
}
