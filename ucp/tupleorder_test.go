package ucp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// sendUnreceived sends messages of a tag until some wait for credit, and n more. None of the tags uses a queue.
func sendUnreceived(p *ucppair.Pair, n int) (sent []*ucp.Request) {
	p.T.Helper()
	for tag := uint64(1000); n > 0; tag++ {
		r, err := p.A.EP.TagSend(tag, testenv.Pattern(8, int(tag)), nil)
		require.NoError(p.T, err)
		if r != nil {
			sent = append(sent, r)
		}
		if p.A.EP.WaitingMessages() > 0 {
			n--
		}
	}
	settleQueues(p)
	return sent
}

// receiveUnreceived receives the messages of sendUnreceived.
func receiveUnreceived(p *ucppair.Pair, sent []*ucp.Request, count int) {
	p.T.Helper()
	for tag := 1000; tag < 1000+count; tag++ {
		buf := make([]byte, 8)
		require.NoError(p.T, p.Finish(p.B.W.TagRecv(buf, uint64(tag), exact, nil, nil)))
		testenv.RequireBytes(p.T, testenv.Pattern(8, tag), buf)
	}
	finishAll(p, sent)
}

// TestTuple_OthersUnreceived: with tuple queues, a receive matches a message behind more unreceived messages of other tags than
// there is credit for. Only one of the workers, or both, use tuple queues.
func TestTuple_OthersUnreceived(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	for _, proto := range []string{"tupleq", "tupleq_copy"} {
		for _, who := range []string{"both", "sender", "receiver"} {
			t.Run(fmt.Sprintf("%s, %s", proto, who), func(t *testing.T) {
				p := tuplePair(t, proto, who)
				sent := sendUnreceived(p, 100)
				before := len(sent)
				for tag := range uint64(3) {
					r, err := p.A.EP.TagSend(tag, testenv.Pattern(20, int(tag)), nil)
					require.NoError(t, err)
					sent = append(sent, r)
				}
				require.Len(t, sent, before+3)
				buf := make([]byte, 20)
				for _, tag := range []uint64{2, 0, 1} {
					mask := uint64(exact)
					if tag == 0 {
						mask = 1<<40 - 1
					}
					require.NoError(t, p.Finish(p.B.W.TagRecv(buf, tag, mask, nil, nil)))
					testenv.RequireBytes(t, testenv.Pattern(20, int(tag)), buf)
				}
				finishAll(p, sent[before:])
				count := p.B.W.Tags().Unexpected() + p.A.EP.WaitingMessages()
				receiveUnreceived(p, sent[:before], count)
			})
		}
	}
}

// tuplePair is a pair of which the sender, the receiver or both use tuple queues.
func tuplePair(t *testing.T, proto, who string) *ucppair.Pair {
	with := ucp.Config{TagProto: proto, EagerWindow: ucp.FirstWindow, Costs: ucp.CostsDeclared}
	without := with
	without.TagProto = ""
	set := queues()
	ca, cb := set.Open(t)
	with.TLS, without.TLS = set.TLS, set.TLS
	p := &ucppair.Pair{T: t}
	a, b := with, with
	switch who {
	case "sender":
		b = without
	case "receiver":
		a = without
	}
	p.A.Open(t, a, ca)
	p.B.Open(t, b, cb)
	return p.Connect()
}

// TestTuple_QueueBesideUnreceived: messages through an open queue arrive while messages of other tags wait for credit, and are in
// order when the queue closes after that.
func TestTuple_QueueBesideUnreceived(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	p := ucppair.New(t, queues(), narrow).Connect()
	openTuple(p, 7)
	early := sendMany(p, 7, 2)
	sent := sendUnreceived(p, 10)
	count := p.B.W.Tags().Unexpected() + p.A.EP.WaitingMessages()
	late := sendMany(p, 7, 2)
	receiveUnexpected(p, 7, 1)
	// The receives of two queued messages change the places of the later messages through the queue.
	buf := make([]byte, 8)
	for _, tag := range []int{1000 + count - 1, 1000 + count - 3} {
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, uint64(tag), exact, nil, nil)))
		testenv.RequireBytes(t, testenv.Pattern(8, tag), buf)
	}
	last := sendMany(p, 9, 1)
	p.B.W.TagProbe(7, exact, false)
	settleQueues(p)
	for tag := 1000; tag < 1000+count-3; tag++ {
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, uint64(tag), exact, nil, nil)))
	}
	settleQueues(p)
	assert.Equal(t, []uint64{7, uint64(1000 + count - 2), 7, 7, 9}, receiveTags(p, 5))
	for _, list := range [][]*ucp.Request{early, sent, late, last} {
		finishAll(p, list)
	}
}

// TestTuple_OpensAfterUnreceived: a queue that the peer opens while messages wait for credit is used when none waits any more.
// Messages of its tag arrive meanwhile.
func TestTuple_OpensAfterUnreceived(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	p := ucppair.New(t, queues(), narrow).Connect()
	passTag(p, 7, 8, 1)
	settleQueues(p)
	first := sendMany(p, 7, 1) // requests the queue
	requested := tupleStat(p.A.W, "messages")
	sent := sendUnreceived(p, 10)
	settleQueues(p)
	for k := range 5 {
		s := sendMany(p, 7, 1)
		require.Len(t, s, 1)
		got := make([]byte, 8)
		if k == 0 {
			require.NoError(t, p.Finish(p.B.W.TagRecv(got, 7, exact, nil, nil)))
		}
		require.NoError(t, p.Finish(p.B.W.TagRecv(got, 7, exact, nil, nil)))
		testenv.RequireBytes(t, testenv.Pattern(8, 0), got)
		finishAll(p, s)
	}
	assert.Equal(t, requested, tupleStat(p.A.W, "messages"), "SWITCH")
	assert.EqualValues(t, 1, tupleStat(p.B.W, "opened"))
	finishAll(p, first)
	for p.B.W.Tags().Unexpected()+p.A.EP.WaitingMessages() > 0 {
		require.NoError(t, p.Finish(p.B.W.TagRecv(make([]byte, 8), 0, 0, nil, nil)))
	}
	finishAll(p, sent)
	openTuple(p, 7)
	assert.EqualValues(t, 1, tupleStat(p.B.W, "opened"))
}

// secondEP connects another EP between the workers.
func secondEP(p *ucppair.Pair) *ucp.EP {
	p.T.Helper()
	first := p.A.EP
	other, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
	require.NoError(p.T, err)
	p.A.EP = other
	passTag(p, 1, 8, 1)
	p.A.EP = first
	return other
}

// TestTuple_OtherSenderUnreceived: a receive in the queue of one sender matches a message that another sender has queued because
// it lacks credit.
func TestTuple_OtherSenderUnreceived(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	p := ucppair.New(t, queues(), narrow).Connect()
	openTuple(p, 7)
	first := p.A.EP
	other := secondEP(p)
	p.A.EP = other
	sent := sendUnreceived(p, 10)
	waits := sendMany(p, 7, 1)
	settleQueues(p)
	p.A.EP = first
	buf := make([]byte, 8)
	require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 7, exact, nil, nil)))
	testenv.RequireBytes(t, testenv.Pattern(8, 0), buf)
	assert.Positive(t, tupleStat(p.B.W, "closed_other"))
	finishAll(p, waits)
	for p.B.W.Tags().Unexpected()+other.WaitingMessages() > 0 {
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 0, 0, nil, nil)))
	}
	finishAll(p, sent)
}

// TestTuple_OtherSenderUnreceivedWhileOffered: a receive matches a message that another sender could not send while the queue of
// its tag was offered and not used yet.
func TestTuple_OtherSenderUnreceivedWhileOffered(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	p := ucppair.New(t, queues(), narrow).Connect()
	passTag(p, 7, 8, 1)
	settleQueues(p)
	sent := sendMany(p, 7, 1) // requests the queue
	sent = append(sent, sendUnreceived(p, 10)...)
	first, count := p.A.EP, p.B.W.Tags().Unexpected()+p.A.EP.WaitingMessages()-1

	other := secondEP(p)
	for tag := uint64(5000); other.WaitingMessages() < 10; tag++ {
		r, err := other.TagSend(tag, testenv.Pattern(8, int(tag)), nil)
		require.NoError(t, err)
		if r != nil {
			sent = append(sent, r)
		}
	}
	p.A.EP = other
	waits := sendMany(p, 7, 1)
	settleQueues(p)

	p.A.EP = first
	buf := make([]byte, 8)
	require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 7, exact, nil, nil)))
	for tag := 1000; tag < 1000+count; tag++ {
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, uint64(tag), exact, nil, nil)))
	}
	require.Zero(t, first.WaitingMessages())
	switches := sendMany(p, 7, 1)
	settleQueues(p)
	for range 2 {
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 7, exact, nil, nil)))
	}
	assert.Positive(t, tupleStat(p.B.W, "closed_other"))
	finishAll(p, append(waits, switches...))
	for p.B.W.Tags().Unexpected()+other.WaitingMessages() > 0 {
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 0, 0, nil, nil)))
	}
	finishAll(p, sent)
}

// TestTuple_ClosesBesideUnreceived: a receive with a mask matches the messages of a queue that were sent before others, and
// between them, although the others are more than there is credit for and are not received.
func TestTuple_ClosesBesideUnreceived(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	const mask = 1<<40 - 1
	for _, proto := range []string{"tupleq", "tupleq_copy"} {
		for _, size := range []int{8, 20_000} {
			t.Run(fmt.Sprintf("%s, %d bytes", proto, size), func(t *testing.T) {
				p := tuplePair(t, proto, "both")
				openTuple(p, 7)
				send := func(seed int) []*ucp.Request {
					r, err := p.A.EP.TagSend(7, testenv.Pattern(size, seed), nil)
					require.NoError(t, err)
					if r == nil {
						return nil
					}
					return []*ucp.Request{r}
				}
				sent := append(send(0), send(1)...)
				sent = append(sent, sendUnreceived(p, 3)...)
				sent = append(sent, send(2)...)
				for tag := range uint64(3) {
					sent = append(sent, sendMany(p, 2000+tag, 1)...)
					sent = append(sent, send(int(3+tag))...)
				}
				settleQueues(p)
				for k := range 6 {
					got := make([]byte, size)
					require.NoError(t, p.Finish(p.B.W.TagRecv(got, 7, mask, nil, nil)), "message %d", k)
					testenv.RequireBytes(t, testenv.Pattern(size, k), got)
				}
				assert.Positive(t, tupleStat(p.A.W, "resent"))
				var tags []uint64
				for p.B.W.Tags().Unexpected() > 0 || p.A.EP.WaitingMessages() > 0 {
					tags = append(tags, receiveTags(p, 1)...)
					settleQueues(p)
				}
				require.IsIncreasing(t, tags)
				finishAll(p, sent)
				settleQueues(p)
			})
		}
	}
}

// TestTuple_ResentInOrder: receives of any tag match the messages of closed queues and others in the order in which they were sent,
// although there is no credit for most of them.
func TestTuple_ResentInOrder(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	p := ucppair.New(t, queues(), narrow).Connect()
	openTuple(p, 7)
	openTuple(p, 8)
	var sent []*ucp.Request
	var want []uint64
	send := func(tag uint64) {
		sent = append(sent, sendMany(p, tag, 1)...)
		want = append(want, tag)
	}
	for k := range uint64(400) {
		send(7 + k%2)
		if k%3 == 0 {
			send(1000 + k)
		}
		if k%5 == 0 {
			send(7)
		}
		if k%64 == 0 {
			settleQueues(p)
		}
	}
	settleQueues(p)
	assert.Equal(t, want, receiveTags(p, len(want)))
	finishAll(p, sent)
}

// closingMask is a mask with which a receive closes the queue of a tag below 1 << 40.
const closingMask = 1<<40 - 1

// receiveClosing receives count messages of sendMany with a mask, so that the queue of their tag closes.
func receiveClosing(p *ucppair.Pair, tag uint64, count int) {
	p.T.Helper()
	for k := range count {
		got := make([]byte, 8)
		r, err := p.B.W.TagRecv(got, tag, closingMask, nil, nil)
		require.NoError(p.T, err)
		settleQueues(p)
		require.NoError(p.T, p.A.EP.Err())
		require.False(p.T, p.B.W.TupleQueues().Paused())
		require.True(p.T, r == nil || r.Done(), "message %d", k)
		require.NoError(p.T, p.Finish(r, nil))
		testenv.RequireBytes(p.T, testenv.Pattern(8, k), got)
	}
}

// beyondCredit is more messages in queues than there is credit for with narrow.
const beyondCredit = 100

// TestTuple_OfferedBeforeClose: the queue of more messages than there is credit for closes after a later message was received
// out of turn, and another one was canceled. Neither of them has used credit.
func TestTuple_OfferedBeforeClose(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	p := ucppair.New(t, queues(), narrow).Connect()
	openTuple(p, 7)
	sent := sendMany(p, 7, beyondCredit)
	late := sendMany(p, 9, 1)
	canceled := sendMany(p, 10, 1)
	settleQueues(p)
	require.Equal(t, 2, p.A.EP.WaitingMessages())
	receiveUnexpected(p, 9, 1)
	require.True(t, canceled[0].Cancel())
	receiveClosing(p, 7, beyondCredit)
	finishAll(p, append(sent, late...))
	canceled[0].Release()
}

// starve sends a stream that lacks credit for its later pieces.
func starve(p *ucppair.Pair) *ucp.Request {
	p.T.Helper()
	r, err := p.A.EP.StreamSend(make([]byte, 1<<20), nil)
	require.NoError(p.T, err)
	settleQueues(p)
	require.NotNil(p.T, r)
	require.False(p.T, r.Done())
	return r
}

// readStarved receives what starve has sent.
func readStarved(p *ucppair.Pair, r *ucp.Request) {
	p.T.Helper()
	var n int
	require.NoError(p.T, p.Finish(p.B.EP.StreamRecv(make([]byte, 1<<20), true, &n, nil)))
	require.NoError(p.T, p.Finish(r, nil))
}

// TestTuple_ClosesBesideStream: a queue closes while a stream in pieces lacks credit, and receives match messages of the queue
// that were sent before the stream and after it began, and those of other senders.
func TestTuple_ClosesBesideStream(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	for _, first := range []int{0, 1, 10} {
		for _, count := range []int{10, beyondCredit} {
			t.Run(fmt.Sprintf("%d of %d before", first, count), func(t *testing.T) {
				p := ucppair.New(t, queues(), narrow).Both()
				openTuple(p, 7)
				data := func(k int) []byte { return testenv.Pattern(8, k) }
				var sent []*ucp.Request
				send := func(k int) {
					r, err := p.A.EP.TagSend(7, data(k), nil)
					require.NoError(t, err)
					sent = append(sent, r)
				}
				for k := range first {
					send(k)
				}
				stream := starve(p)
				for k := first; k < count; k++ {
					send(k)
				}
				settleQueues(p)
				masked, err := p.B.W.TagRecv(make([]byte, 8), 7, closingMask, nil, nil)
				require.NoError(t, err)
				settleQueues(p)
				require.False(t, p.B.W.TupleQueues().Paused(), "receives of all peers wait")
				if first > 0 {
					require.True(t, masked.Done())
				}
				self := selfEP(p)
				tryTag(self, 3, data(3))
				require.NoError(t, p.Finish(p.B.W.TagRecv(make([]byte, 8), 3, closingMask, nil, nil)))
				readStarved(p, stream)
				require.NoError(t, p.Finish(masked, nil))
				for k := 1; k < count; k++ {
					got := make([]byte, 8)
					require.NoError(t, p.Finish(p.B.W.TagRecv(got, 7, closingMask, nil, nil)))
					testenv.RequireBytes(t, data(k), got)
				}
				finishAll(p, sent)
			})
		}
	}
}

// TestTuple_ResentBeforeOtherQueue: a message that is sent again at once because a stream waits does not overtake an earlier message
// of another queue, which closes when the stream was sent.
func TestTuple_ResentBeforeOtherQueue(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	p := ucppair.New(t, queues(), narrow).Both()
	openTuple(p, 7)
	openTuple(p, 8)
	sent := append(sendMany(p, 7, 1), sendMany(p, 8, 1)...)
	stream := starve(p)
	p.B.W.TagProbe(8, exact, false)
	settleQueues(p)
	require.Equal(t, 1, p.B.W.Tags().Unexpected())
	readStarved(p, stream)
	assert.Equal(t, []uint64{7, 8}, receiveTags(p, 2))
	finishAll(p, sent)
}

// TestTuple_CreditResumesStream: the credit of messages in a queue, which returns when they are received, resumes a stream in
// pieces that the program does not read.
func TestTuple_CreditResumesStream(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	const count = 30 // 12,000 of 16,384 bytes of credit
	p := ucppair.New(t, queues(), narrow).Both()
	openTuple(p, 7)
	sent := sendMany(p, 7, count)
	r, err := p.A.EP.StreamSend(make([]byte, 8000), nil)
	require.NoError(t, err)
	require.NotNil(t, r)
	settleQueues(p)
	require.False(t, r.Done())
	receiveUnexpected(p, 7, count)
	settleQueues(p)
	require.True(t, r.Done())
	finishAll(p, append(sent, r))
	assert.Zero(t, tupleStat(p.A.W, "resent"))
}

// TestTuple_CreditSendsWaiting: that credit sends messages that wait.
func TestTuple_CreditSendsWaiting(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	p := ucppair.New(t, queues(), narrow).Connect()
	openTuple(p, 7)
	sent := sendMany(p, 7, beyondCredit)
	waits := sendMany(p, 9, 3)
	settleQueues(p)
	require.Zero(t, p.B.W.Tags().Unexpected())
	receiveUnexpected(p, 7, beyondCredit)
	settleQueues(p)
	assert.Equal(t, 3, p.B.W.Tags().Unexpected())
	assert.Zero(t, tupleStat(p.A.W, "resent"))
	receiveUnexpected(p, 9, 3)
	finishAll(p, append(sent, waits...))
}

// TestTuple_DiesWhileResent: a peer dies at any step while a queue closes and its messages are sent again, some at once and
// others in their turn. Each send completes once.
func TestTuple_DiesWhileResent(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	for steps := 0; !dieWhileResent(t, steps); steps++ {
		require.Less(t, steps, settleSteps, "the queue does not close")
	}
}

// dieWhileResent kills the receiver after steps of progress, and reports whether the queue was closed before.
func dieWhileResent(t *testing.T, steps int) (closed bool) {
	p, kill := mortal(t, narrow)
	openTuple(p, 7)
	ended := 0
	var sends []*ucp.Request
	for k := range 40 {
		for _, tag := range []uint64{7, 7, 7, 100 + uint64(k)} {
			s, err := p.A.EP.TagSend(tag, testenv.Pattern(8, k), &ucp.OpParams{OnDone: func(error) { ended++ }})
			require.NoError(t, err)
			if s != nil {
				sends = append(sends, s)
			}
		}
	}
	masked, err := p.B.W.TagRecv(make([]byte, 8), 7, closingMask, nil, nil)
	require.NoError(t, err)
	for range steps {
		p.B.W.Progress()
		p.A.W.Progress()
	}
	closed = masked.Done()
	kill()
	for _, s := range sends {
		p.Until(s.Done)
		s.Release()
	}
	p.Until(func() bool { return p.A.EP.Err() != nil })
	settleQueues(p)
	assert.Equal(t, len(sends), ended, "OnDone is called once for each")
	masked.Cancel()
	masked.Release()
	require.NoError(t, p.A.W.Close())
	require.NoError(t, p.B.W.Close())
	return closed
}
