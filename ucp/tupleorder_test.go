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
