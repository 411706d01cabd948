package ucp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// sendUnreceived sends messages of a tag until some wait for credit, and n more. None of the tags uses a queue.
func (p *pair) sendUnreceived(n int) (sent []*Request) {
	p.t.Helper()
	for tag := uint64(1000); n > 0; tag++ {
		r, err := p.a.ep.TagSend(tag, pattern(8, int(tag)), nil)
		require.NoError(p.t, err)
		if r != nil {
			sent = append(sent, r)
		}
		if p.a.ep.waiting.messages() > 0 {
			n--
		}
	}
	p.settle()
	return sent
}

// receiveUnreceived receives the messages of sendUnreceived.
func (p *pair) receiveUnreceived(sent []*Request, count int) {
	p.t.Helper()
	for tag := 1000; tag < 1000+count; tag++ {
		buf := make([]byte, 8)
		require.NoError(p.t, p.finish(p.b.w.TagRecv(buf, uint64(tag), exact, nil, nil)))
		requireBytes(p.t, pattern(8, tag), buf)
	}
	p.endAll(sent)
}

// TestTuple_OthersUnreceived: with tuple queues, a receive matches a message behind more unreceived messages of other tags than
// there is credit for. Only one of the workers, or both, use tuple queues.
func TestTuple_OthersUnreceived(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	for _, proto := range []string{"tupleq", "tupleq_copy"} {
		for _, who := range []string{"both", "sender", "receiver"} {
			t.Run(fmt.Sprintf("%s, %s", proto, who), func(t *testing.T) {
				p := tuplePair(t, proto, who)
				sent := p.sendUnreceived(100)
				before := len(sent)
				for tag := range uint64(3) {
					r, err := p.a.ep.TagSend(tag, pattern(20, int(tag)), nil)
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
					require.NoError(t, p.finish(p.b.w.TagRecv(buf, tag, mask, nil, nil)))
					requireBytes(t, pattern(20, int(tag)), buf)
				}
				p.endAll(sent[before:])
				count := p.b.w.tag.table.Unexpected() + p.a.ep.waiting.messages()
				p.receiveUnreceived(sent[:before], count)
			})
		}
	}
}

// tuplePair is a pair of which the sender, the receiver or both use tuple queues.
func tuplePair(t *testing.T, proto, who string) *pair {
	with := Config{TagProto: proto, EagerWindow: firstWindow, Costs: CostsDeclared}
	without := with
	without.TagProto = ""
	set := queues()
	ca, cb := set.Open(t)
	with.TLS, without.TLS = set.TLS, set.TLS
	p := &pair{t: t}
	a, b := with, with
	switch who {
	case "sender":
		b = without
	case "receiver":
		a = without
	}
	p.a.open(t, a, ca)
	p.b.open(t, b, cb)
	return p.connect()
}

// TestTuple_QueueBesideUnreceived: messages through an open queue arrive while messages of other tags wait for credit, and are in
// order when the queue closes after that.
func TestTuple_QueueBesideUnreceived(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	p := newPair(t, queues(), narrow).connect()
	p.openTuple(7)
	early := p.sends(7, 2)
	sent := p.sendUnreceived(10)
	count := p.b.w.tag.table.Unexpected() + p.a.ep.waiting.messages()
	late := p.sends(7, 2)
	p.kept(7, 1)
	// The receives of two queued messages change the places of the later messages through the queue.
	buf := make([]byte, 8)
	for _, tag := range []int{1000 + count - 1, 1000 + count - 3} {
		require.NoError(t, p.finish(p.b.w.TagRecv(buf, uint64(tag), exact, nil, nil)))
		requireBytes(t, pattern(8, tag), buf)
	}
	last := p.sends(9, 1)
	p.b.w.TagProbe(7, exact, false)
	p.settle()
	for tag := 1000; tag < 1000+count-3; tag++ {
		require.NoError(t, p.finish(p.b.w.TagRecv(buf, uint64(tag), exact, nil, nil)))
	}
	p.settle()
	assert.Equal(t, []uint64{7, uint64(1000 + count - 2), 7, 7, 9}, p.tags(5))
	for _, list := range [][]*Request{early, sent, late, last} {
		p.endAll(list)
	}
}

// TestTuple_OpensAfterUnreceived: a queue that the peer opens while messages wait for credit is used when none waits any more.
// Messages of its tag arrive meanwhile.
func TestTuple_OpensAfterUnreceived(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	p := newPair(t, queues(), narrow).connect()
	p.tag(7, 8, 1)
	p.settle()
	first := p.sends(7, 1) // requests the queue
	requested := p.a.stat("messages")
	sent := p.sendUnreceived(10)
	p.settle()
	for k := range 5 {
		s := p.sends(7, 1)
		require.Len(t, s, 1)
		got := make([]byte, 8)
		if k == 0 {
			require.NoError(t, p.finish(p.b.w.TagRecv(got, 7, exact, nil, nil)))
		}
		require.NoError(t, p.finish(p.b.w.TagRecv(got, 7, exact, nil, nil)))
		requireBytes(t, pattern(8, 0), got)
		p.endAll(s)
	}
	assert.Equal(t, requested, p.a.stat("messages"), "SWITCH")
	assert.EqualValues(t, 1, p.b.stat("opened"))
	p.endAll(first)
	for p.b.w.tag.table.Unexpected()+p.a.ep.waiting.messages() > 0 {
		require.NoError(t, p.finish(p.b.w.TagRecv(make([]byte, 8), 0, 0, nil, nil)))
	}
	p.endAll(sent)
	p.openTuple(7)
	assert.EqualValues(t, 1, p.b.stat("opened"))
}

// TestTuple_OtherSenderUnreceived: a receive in the queue of one sender matches a message that another sender has queued because
// it lacks credit.
func TestTuple_OtherSenderUnreceived(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	p := newPair(t, queues(), narrow).connect()
	p.openTuple(7)
	other, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
	require.NoError(t, err)
	first := p.a.ep
	p.a.ep = other
	sent := p.sendUnreceived(10)
	waits := p.sends(7, 1)
	p.settle()
	p.a.ep = first
	buf := make([]byte, 8)
	require.NoError(t, p.finish(p.b.w.TagRecv(buf, 7, exact, nil, nil)))
	requireBytes(t, pattern(8, 0), buf)
	assert.Positive(t, p.b.stat("closed_other"))
	p.endAll(waits)
	for p.b.w.tag.table.Unexpected()+other.waiting.messages() > 0 {
		require.NoError(t, p.finish(p.b.w.TagRecv(buf, 0, 0, nil, nil)))
	}
	p.endAll(sent)
}
