package xrccore

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// TestStop_CompletesDeliveredMessages: Stop does not cancel a receive whose message the sender knows to be delivered,
// although the receiver has not polled since.
func TestStop_CompletesDeliveredMessages(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric softhca.Fabric) {
		a, b := connected(t, fabric, Config{})
		q := b.newQueue(t, 4, 64)
		for i := range 3 {
			q.post(t, i)
		}
		c := a.attach(t, q.Number())
		first := a.send(t, c, 0, 8, 1)
		until(t, func() bool { return first.ended && len(q.got) == 1 }, a, b)
		second := a.send(t, c, 0, 8, 2)
		until(t, func() bool { return second.ended }, a)
		require.Equal(t, ucs.StatusOK, second.Status)
		require.NoError(t, guard.AwaitUse(q.Stop))
		until(t, func() bool { return len(q.got) == 3 }, b)
		assert.Equal(t, []ucs.Status{ucs.StatusOK, ucs.StatusOK, ucs.StatusCanceled}, q.status)
		assert.Equal(t, []byte{2, 2, 2, 2, 2, 2, 2, 2}, q.got[1])
		assert.EqualValues(t, 2, q.Received())
		require.NoError(t, c.Detach())
		require.NoError(t, q.Close())
	})
}

// TestStop_ReceivesBehindDroppedCompletions: completions of an earlier epoch of an initiator are dropped. A poll that
// finds only such completions does not count as an empty queue: messages behind them are received before Stop cancels
// the rest.
func TestStop_ReceivesBehindDroppedCompletions(t *testing.T) {
	cfg := inDomain(Config{Config: rccore.Config{MaxPoll: 2}})
	a, b := connected(t, softhca.FabricShm, cfg)
	q := b.newQueue(t, 4, 64)
	for i := range 3 {
		q.post(t, i)
	}
	c := a.attach(t, q.Number())
	first := a.send(t, c, 0, 8, 1)
	until(t, func() bool { return first.ended && len(q.got) == 1 }, a, b)
	in := b.ep.path.initiator
	until(t, func() bool { return in.head == in.tail }, a, b)
	require.NoError(t, b.ep.AMShort(testAM, 0, nil))
	in.epoch++ // completions in flight belong to the previous connection
	for i := range 2 {
		s := a.send(t, c, 0, 8, byte(2+i))
		until(t, func() bool { return s.ended }, a)
	}
	require.NoError(t, guard.AwaitUse(q.Stop))
	until(t, func() bool { return len(q.got) == 3 }, b)
	assert.Equal(t, []ucs.Status{ucs.StatusOK, ucs.StatusOK, ucs.StatusOK}, q.status)
	in.head = in.tail
	b.ep.path.e.CancelOps() // no completion of the message is delivered
	require.NoError(t, c.Detach())
	require.NoError(t, q.Close())
}

// TestRecall_DeliversOnceInOrder: a sender recalls its sends and continues after the last message that the receiver has
// counted. Each message is received once, in order.
func TestRecall_DeliversOnceInOrder(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric softhca.Fabric) {
		a, b := connected(t, fabric, Config{QueueConns: 2, QueueTxDepth: 8})
		random := rand.New(rand.NewPCG(7, 11))
		q := b.newQueue(t, 64, 64)
		const slots = 64
		next, posted := 0, 0
		for range testenv.Rounds(40, 1000) {
			var c uct.QueueConn
			until(t, func() bool {
				var err error
				c, err = a.ep.Attach(q.Number())
				return err == nil
			}, a, b)
			for range random.IntN(4) {
				if posted-len(q.got) < slots {
					q.post(t, posted%slots)
					posted++
				}
			}
			sends := make([]*sent, 1+random.IntN(6))
			for i := range sends {
				sends[i] = a.send(t, c, i*64, 1+(next+i)%60, byte(next+i))
			}
			for range random.IntN(30) {
				a.it.Progress()
				b.it.Progress()
			}
			told := false
			pending, err := c.Recall(&uct.Completion{Count: 1, Func: func(*uct.Completion) { told = true }})
			require.NoError(t, err)
			until(t, func() bool { return told || !pending }, a, b)
			ok := 0
			for ; ok < len(sends) && sends[ok].Status == ucs.StatusOK; ok++ {
				require.True(t, sends[ok].ended)
			}
			for _, s := range sends[ok:] {
				require.True(t, s.ended, "all sends are complete when Recall completes")
				require.Equal(t, ucs.StatusCanceled, s.Status)
			}
			until(t, func() bool { return int(q.Received()) >= next+ok }, b)
			for b.it.Progress() > 0 { // completions of messages that the sender does not know to be received are already in the queue
			}
			require.LessOrEqual(t, int(q.Received()), next+len(sends))
			next = int(q.Received())
		}
		require.Len(t, q.got, next)
		for i, got := range q.got {
			require.Len(t, got, 1+i%60)
			require.Equal(t, byte(i), got[0])
		}
		require.NoError(t, q.Close())
	})
}

// TestControl_InvalidMessageFailsEP: an invalid control message fails the EP that receives it.
func TestControl_InvalidMessageFailsEP(t *testing.T) {
	for name, m := range map[string][]byte{
		"version":               {9},
		"reply without request": (&message{kind: kindReply, conn: 1, qpn: 77}).encode(),
		"unknown index":         (&message{kind: kindReply, conn: 60, qpn: 77}).encode(),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := connected(t, softhca.FabricLoop, Config{QueueConns: 2})
			require.NoError(t, a.ep.SendControl(m))
			until(t, func() bool { return len(b.errs) > 0 }, a, b)
			assert.ErrorIs(t, b.errs[0], ucs.ErrRemoteInvalid)
			_, err := b.ep.Attach(1)
			assert.ErrorIs(t, err, uct.ErrEPFailed)
		})
	}
}

// TestCQSlots_QueuesAndConnectionsShare: queues and connections reserve slots of one completion queue, and release them
// when they are closed.
func TestCQSlots_QueuesAndConnectionsShare(t *testing.T) {
	const room = 2 * maxQueueConns
	a, b := connected(t, softhca.FabricLoop, Config{QueueCQDepth: room, QueueTxDepth: 16})
	first := a.newQueue(t, room/2, 1)
	second := a.newQueue(t, room/2, 1)
	_, err := a.ep.NewQueue(1)
	require.ErrorIs(t, err, uct.ErrNoMemory)
	_, err = a.ep.Attach(1)
	require.Equal(t, uct.ErrBusy, err, "no slots for a connection")
	require.NoError(t, first.Close())
	q := b.newQueue(t, 1, 64)
	c := a.attach(t, q.Number())
	_, err = a.ep.NewQueue(room / 2)
	require.ErrorIs(t, err, uct.ErrNoMemory)
	require.NoError(t, c.Detach())
	require.NoError(t, a.ep.Close())
	until(t, func() bool { return a.it.closing == 0 }, a, b)
	ep, err := a.it.NewEP(uct.EPParams{})
	require.NoError(t, err)
	a.ep = ep.(*EP)
	third := a.newQueue(t, room/2, 1)
	require.NoError(t, second.Close())
	require.NoError(t, third.Close())
	require.Equal(t, room, a.it.cqFree)
}

// TestConn_UsesSmallerMTU: both sides of a connection to a queue use the smaller MTU of the two ports.
func TestConn_UsesSmallerMTU(t *testing.T) {
	a, b := newSide(t, softhca.FabricShm, Config{}), newSide(t, softhca.FabricShm, Config{})
	b.it.Port().Attr.ActiveMTU = verbs.MTU1024
	connect(t, a, b)
	for _, l := range [][2]*side{{a, b}, {b, a}} {
		from, to := l[0], l[1]
		q := to.newQueue(t, 1, 64)
		q.post(t, 0)
		c := from.attach(t, q.Number())
		s := from.send(t, c, 0, 8, 1)
		until(t, func() bool { return s.ended && len(q.got) == 1 }, a, b)
		for _, qp := range []*verbs.QP{c.(*conn).qp, to.ep.targets[c.(*conn).index]} {
			assert.Equal(t, verbs.MTU1024, qp.Query().PathMTU)
		}
		require.NoError(t, c.Detach())
		require.NoError(t, q.Close())
	}
}

// TestNewQueue_LimitedByMaxQueues: an iface opens at most Attr().Queue.MaxQueues queues, also if the completion queue
// has free slots.
func TestNewQueue_LimitedByMaxQueues(t *testing.T) {
	a := newSide(t, softhca.FabricLoop, Config{QueueCQDepth: 2 * maxQueueConns})
	var q uct.Queue
	for range a.it.Attr().Queue.MaxQueues {
		q = a.newQueue(t, 1, 1)
	}
	_, err := a.ep.NewQueue(1)
	require.ErrorIs(t, err, uct.ErrNoMemory)
	require.NoError(t, q.Close())
	require.NoError(t, a.newQueue(t, 1, 1).Close())
}

// TestConfig_Defaults: withDefaults checks ranges, and raises lengths to that of control messages.
func TestConfig_Defaults(t *testing.T) {
	c, err := Config{Config: rccore.Config{SegSize: 8, TxMaxInline: 8}}.withDefaults()
	require.NoError(t, err)
	assert.EqualValues(t, rccore.MaxControl, c.SegSize)
	assert.EqualValues(t, rccore.MaxControl, c.TxMaxInline)
	assert.Equal(t, defaultQueueConns, c.QueueConns)
	for _, bad := range []Config{{QueueConns: maxQueueConns + 1}, {QueueTxDepth: -1}, {QueueCQDepth: 1}, {Config: rccore.Config{RetryCount: 9}}} {
		assert.ErrorIs(t, bad.Validate(), uct.ErrInvalidParam)
	}
}

// TestSend_CanceledWithoutTarget: if the peer cannot create a target for the connection, sends complete with
// StatusCanceled, also those posted after its reply. The connection works again when the peer has a target.
func TestSend_CanceledWithoutTarget(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric softhca.Fabric) {
		a, b := connected(t, fabric, Config{})
		gone, err := b.it.MD().Context().OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
		require.NoError(t, err)
		require.NoError(t, gone.Close())
		q := b.newQueue(t, 1, 64)
		own := b.ep.domain
		b.ep.domain = &domain{gone, 1}
		c := a.attach(t, q.Number())
		for i := range 2 {
			s := a.send(t, c, 0, 8, byte(i))
			until(t, func() bool { return s.ended }, a, b)
			assert.Equal(t, ucs.StatusCanceled, s.Status)
		}
		require.NoError(t, c.Detach())
		b.ep.domain = own
		q.post(t, 0)
		c = a.attach(t, q.Number())
		s := a.send(t, c, 0, 8, 3)
		until(t, func() bool { return s.ended && len(q.got) == 1 }, a, b)
		assert.Equal(t, ucs.StatusOK, s.Status)
		require.NoError(t, c.Detach())
		require.NoError(t, q.Close())
	})
}

// TestSend_IndexesExceed32Bits: indexes of sends may exceed 32 bits, also if the length of the ring is no power of two.
func TestSend_IndexesExceed32Bits(t *testing.T) {
	const depth = 3
	a, b := connected(t, softhca.FabricShm, Config{QueueTxDepth: depth})
	q := b.newQueue(t, 2*depth, 64)
	attached := a.attach(t, q.Number())
	c := attached.(*conn)
	c.head, c.posted, c.tail = 1<<32-2, 1<<32-2, 1<<32-2
	for round := range 2 {
		var sends [depth]*sent
		for i := range sends {
			q.post(t, round*depth+i)
			sends[i] = a.send(t, attached, i*64, 8, byte(round*depth+i))
		}
		until(t, func() bool { return c.idle() && len(q.got) == (round+1)*depth }, a, b)
		for i, s := range sends {
			assert.True(t, s.ended, "send %d", i)
			assert.Equal(t, ucs.StatusOK, s.Status)
			assert.Equal(t, byte(round*depth+i), q.got[round*depth+i][0])
		}
	}
	require.NoError(t, c.Detach())
	require.NoError(t, q.Close())
}

// TestEPClose_CancelsUnpostedSends: Close cancels sends that were never posted to the device.
func TestEPClose_CancelsUnpostedSends(t *testing.T) {
	a, b := connected(t, softhca.FabricShm, Config{})
	q := b.newQueue(t, 1, 64)
	c := a.attach(t, q.Number())
	s := a.send(t, c, 0, 8, 1)
	require.NoError(t, a.ep.Close())
	until(t, func() bool { return s.ended }, a)
	assert.Equal(t, ucs.StatusCanceled, s.Status)
	require.NoError(t, q.Close())
}
