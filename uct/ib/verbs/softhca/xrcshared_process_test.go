package softhca_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// domainEnv names the file of the domain that a child is a member of.
const domainEnv = "GUCX_TEST_SOFTHCA_DOMAIN"

// order is what the parent has a member do.
type order struct {
	Do  string // make, connect, open, post, take, idle, state
	GID verbs.GID
	QPN uint32
	ID  uint64
}

// memberReport is what came of it.
type memberReport struct {
	WC    verbs.WC
	Whole bool // the bytes are those that the message says it has
	More  bool // there was a completion
	QPN   uint32
	State verbs.QPState
}

// memberLen is the length of a message to a member, seeded with its immediate.
const memberLen = 9000

// runXRCMember is a process in a domain, with a target and an SRQ, that follows orders.
func (n *node) runXRCMember() int {
	f, err := os.Open(os.Getenv(domainEnv))
	require.NoError(n.t, err)
	x := n.enterDomain(verbs.XRCDInitAttr{FD: int(f.Fd()), Flags: os.O_CREATE})
	require.NoError(n.t, f.Close()) // not earlier, as the collector might
	x.target = x.newTarget()
	s := x.openSRQ()
	enc, dec := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	require.NoError(n.t, enc.Encode(introduction{GID: n.gid, QPN: x.target.Number(), SRQN: s.Number()}))
	var o order
	for dec.Decode(&o) == nil {
		var r memberReport
		switch o.Do {
		case "create":
			require.NoError(n.t, x.target.Close())
			x.target = x.newTarget()
			r.QPN = x.target.Number()
		case "connect":
			toRTS(n.t, x.target, o.GID, o.QPN, defaultLink)
		case "open":
			former := x.target
			x.target, err = x.domain.OpenQP(o.QPN)
			require.NoError(n.t, err)
			require.NoError(n.t, former.Close())
		case "post":
			x.post(s, o.ID, int(o.ID%8)*memberLen, memberLen)
		case "receive":
			r.WC = n.completion()
			want := make([]byte, memberLen)
			fill(want, byte(r.WC.Imm))
			at := int(r.WC.ID%8) * memberLen
			r.Whole = string(want) == string(n.buf.Bytes()[at:at+memberLen])
		case "idle":
			r.More = n.cq.Poll(n.wcs[:]) > 0
		}
		r.State = x.target.State()
		require.NoError(n.t, enc.Encode(r))
	}
	return 0
}

// do gives a member an order, and returns what came of it.
func (c *child) do(t testing.TB, o order) (r memberReport) {
	t.Helper()
	require.NoError(t, json.NewEncoder(c.In).Encode(o))
	require.NoError(t, c.out.Decode(&r))
	return r
}

// sendToMember sends message k to a member's queue.
func (n *node) sendToMember(c *child, k uint64) {
	n.t.Helper()
	fill(n.buf.Bytes()[:memberLen], byte(k))
	n.sendSRQ(c.SRQN, k, memberLen)
}

// deliverTo has message k arrive at a member, to a receive that it posts.
func (n *node) deliverTo(c *child, k uint64) {
	n.t.Helper()
	c.do(n.t, order{Do: "post", ID: k})
	n.sendToMember(c, k)
	n.succeed(k)
	c.receive(n.t, k)
}

// took has a member wait for message k.
func (c *child) receive(t testing.TB, k uint64) {
	t.Helper()
	r := c.do(t, order{Do: "receive"})
	require.Equal(t, verbs.WCSuccess, r.WC.Status)
	require.Equal(t, []uint64{k, k}, []uint64{r.WC.ID, uint64(r.WC.Imm)})
	require.True(t, r.Whole)
}

// kill ends a process by SIGKILL, and waits until it is gone.
func (c *child) kill(t testing.TB) {
	t.Helper()
	c.Kill(t)
}

// xrcProcesses is an initiator that is connected to the target of the first of n processes in
// a domain; the second has opened it too.
func xrcProcesses(t *testing.T, n int) (i *node, cs []*child) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "domain")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	t.Setenv(domainEnv, f.Name())
	for range n {
		cs = append(cs, newChild(t, "xrc member"))
	}
	i = openNode(t, testConfig).newInitiator()
	i.connectToMember(cs[0])
	if n > 1 {
		cs[1].do(t, order{Do: "open", QPN: cs[0].QPN})
	}
	return i, cs
}

// connectToMember connects an initiator with the target that a member has made.
func (n *node) connectToMember(c *child) {
	n.t.Helper()
	c.do(n.t, order{Do: "connect", GID: n.gid, QPN: n.qp.Number()})
	toRTS(n.t, n.qp, c.GID, c.QPN, defaultLink)
}

// Messages go to each of the processes over one target; when the one that made it is killed
// the others go on. Its number is then one of nobody, as soon as the kernel has told.
func TestSharedXRC_KilledCreator(t *testing.T) {
	i, cs := xrcProcesses(t, 3)
	for k := range uint64(6) {
		i.deliverTo(cs[k%3], k)
	}
	cs[0].kill(t)
	for k := range uint64(6) {
		i.deliverTo(cs[1+k%2], k)
	}
	i.sendToMember(cs[0], 7)
	i.fail(7, verbs.WCRemInvReqErr) // also if the kernel had not told of the death yet
	require.Equal(t, verbs.VendorPeerGone, i.wcs[0].VendorErr)
	testenv.ProgressWithin(t, patience, func() bool {
		return cs[1].do(t, order{Do: "state"}).State == verbs.QPStateErr
	})
}

// The number of a process that was killed is told from one that was closed also when another
// process has taken its place.
func TestSharedXRC_NumberOfDeadProcess(t *testing.T) {
	i, cs := xrcProcesses(t, 2)
	i.deliverTo(cs[1], 1)
	cs[1].kill(t)
	newChild(t, "xrc member")
	i.deliverTo(cs[0], 2) // it is not the only one
	i.sendToMember(cs[1], 3)
	i.fail(3, verbs.WCRemInvReqErr)
	assert.Equal(t, verbs.VendorPeerGone, i.wcs[0].VendorErr)
}

// The same with a connection over which nothing had gone to the one that is killed.
func TestSharedXRC_KilledCreatorUnused(t *testing.T) {
	i, cs := xrcProcesses(t, 2)
	i.deliverTo(cs[1], 1)
	cs[0].kill(t)
	i.deliverTo(cs[1], 2)
}

// A process is killed while the initiator writes to it, one write after the other: whether the
// kernel refuses the copy, the link is found to be down, or its end is told first, the write is
// refused as one to a number of the dead.
func TestSharedXRC_KilledDuringWrites(t *testing.T) {
	for range testenv.Rounds(10, 200) {
		i, cs := xrcProcesses(t, 2)
		i.deliverTo(cs[1], 1)
		require.NoError(t, cs[1].Process.Kill())
		status := verbs.WCSuccess
		testenv.ProgressWithin(t, patience, func() bool {
			i.send(verbs.SendWR{ID: 2, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SRQN: cs[1].SRQN})
			status = i.completion().Status
			return status != verbs.WCSuccess
		})
		require.Equal(t, verbs.WCRemInvReqErr, status)
		require.Equal(t, verbs.VendorPeerGone, i.wcs[0].VendorErr)
	}
}

// A process dies with a message that waits for its receive: the initiator is told so. One that
// refers to the target is told too.
func TestSharedXRC_KilledWaiting(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		i, cs := xrcProcesses(t, 3)
		i.deliverTo(cs[2], 1)
		if stopped {
			cs[2].Stop(t)
		}
		i.sendToMember(cs[2], 2)
		i.sendToMember(cs[1], 3)
		i.idle()
		require.NoError(t, cs[2].Process.Kill())
		i.fail(2, verbs.WCRemInvReqErr)
		assert.Equal(t, verbs.VendorPeerGone, i.wcs[0].VendorErr)
		i.fail(3, verbs.WCWRFlushErr)
		testenv.ProgressWithin(t, patience, func() bool { // as if its SRQ had been closed
			return cs[1].do(t, order{Do: "state"}).State == verbs.QPStateErr
		})
	}
}

// A process that is stopped gets what fits into its receives; the others get theirs
// meanwhile, and it the rest when it goes on.
func TestSharedXRC_StoppedMember(t *testing.T) {
	i, cs := xrcProcesses(t, 2)
	i.deliverTo(cs[1], 0) // the link is up
	cs[1].do(t, order{Do: "post", ID: 1})
	cs[1].Stop(t)
	i.sendToMember(cs[1], 1)
	i.succeed(1)
	i.deliverTo(cs[0], 2)
	i.sendToMember(cs[1], 3)
	for range 1000 {
		i.idle()
	}
	cs[1].cont(t)
	cs[1].receive(t, 1)
	cs[1].do(t, order{Do: "post", ID: 3})
	cs[1].receive(t, 3)
	i.succeed(3)
}

// A process that was stopped before the first message to it is given up: that message is refused, and
// the target with it, so those behind it can go on to others.
func TestSharedXRC_StoppedBeforeFirstMessage(t *testing.T) {
	_, cs := xrcProcesses(t, 2)
	cs[0].do(t, order{Do: "post", ID: 1})
	var i *node
	testenv.ProgressWithin(t, patience, func() bool { // one that waits for a processor may answer too late
		i = openNode(t, softhca.Config{DialTimeout: 50 * time.Millisecond}).newInitiator()
		cs[0].QPN = cs[0].do(t, order{Do: "create"}).QPN
		i.connectToMember(cs[0])
		i.sendToMember(cs[0], 1)
		return i.completion().Status == verbs.WCSuccess
	})
	cs[0].receive(t, 1)
	cs[1].Stop(t)
	i.sendToMember(cs[1], 2)
	i.fail(2, verbs.WCRemOpErr)
	testenv.ProgressWithin(t, patience, func() bool {
		return cs[0].do(t, order{Do: "state"}).State == verbs.QPStateErr
	})
	cs[1].cont(t)
}

// The last process that refers to the target is killed: no message arrives any more, though
// the queue is there.
func TestSharedXRC_KilledLastReferrer(t *testing.T) {
	i, cs := xrcProcesses(t, 3)
	i.deliverTo(cs[2], 1)
	cs[1].kill(t)
	i.deliverTo(cs[2], 2)
	cs[0].kill(t)
	testenv.ProgressWithin(t, patience, func() bool {
		i.idle()
		return i.qp.State() == verbs.QPStateErr
	})
	i.sendToMember(cs[2], 3)
	i.fail(3, verbs.WCWRFlushErr)
}

// runXRCSpreader sends to two queues of the parent in turn, without an end.
func (n *node) runXRCSpreader() int {
	i, peer := n.initiatorToParent()
	for id := uint64(0); ; id++ {
		srqn := []uint32{peer.SRQN, peer.RKey}[id%2]
		_, _ = i.qp.PostSend([]verbs.SendWR{{ID: id, Opcode: verbs.OpSendWithImm, Imm: uint32(id), Flags: verbs.SendSignaled,
			SRQN: srqn, SGList: []verbs.SGE{i.mr.SGE(0, int(id%3)*150000)}}})
		i.cq.Poll(i.wcs[:])
	}
}

// queued is members of a domain, each with a queue that has killedReceives receives.
type queued struct {
	t       *testing.T
	members []*xrcTarget
	queues  []*verbs.SRQ
}

// take has member k receive the next message, and post its receive again.
func (q *queued) receive(k int) verbs.WC {
	q.t.Helper()
	wc := q.members[k].completion()
	require.Equal(q.t, verbs.WCSuccess, wc.Status)
	q.members[k].post(q.queues[k], wc.ID, 0, bufLen/2)
	return wc
}

// takeAll has all members receive what there is.
func (q *queued) receiveAll() {
	for k, x := range q.members {
		if x.cq.Poll(x.wcs[:1]) == 1 {
			require.Equal(q.t, verbs.WCSuccess, x.wcs[0].Status)
			x.post(q.queues[k], x.wcs[0].ID, 0, bufLen/2)
		}
	}
}

// lostNone makes sure that each member has all its receives: the sender's messages fill them.
func (q *queued) checkReceives(sender *node, target uint32) {
	q.t.Helper()
	for k, x := range q.members {
		seen := map[uint64]bool{}
		for id := range uint64(killedReceives) {
			sender.sendSRQ(q.queues[k].Number(), id, bufLen/4)
			sender.succeed(id)
			wc := x.completion()
			for ; wc.SrcQP != sender.qp.Number() || wc.QPN != target; wc = x.completion() {
				x.post(q.queues[k], wc.ID, 0, bufLen/2) // of one that was killed, late
			}
			require.Equal(q.t, verbs.WCSuccess, wc.Status)
			seen[wc.ID] = true
		}
		assert.Len(q.t, seen, killedReceives, "a receive was lost")
		for id := range uint64(killedReceives) {
			x.post(q.queues[k], id, 0, bufLen/2)
		}
	}
}

// An initiator is killed at any moment: what has come to each member is in order, the target
// goes to ERR for all, and no receive is lost.
func TestSharedXRC_KilledInitiator(t *testing.T) {
	attr := sharedDomain(t)
	a, b := openNode(t, testConfig).enterDomain(attr), openNode(t, testConfig).enterDomain(attr)
	survivor := openNode(t, testConfig).newInitiator()
	other := a.newTarget()
	defer func() { require.NoError(t, other.Close()) }()
	connectXRC(survivor, a, other, defaultLink)
	q := &queued{t: t, members: []*xrcTarget{a, b}, queues: []*verbs.SRQ{a.newSRQ(), b.newSRQ()}}
	for k, x := range q.members {
		for id := range uint64(killedReceives) {
			x.post(q.queues[k], id, 0, bufLen/2)
		}
	}
	for round := range testenv.Rounds(5, 40) {
		c := newChild(t, "xrc spreader")
		target := a.newTarget()
		b.openTarget(target.Number())
		toRTS(t, target, c.GID, c.QPN, defaultLink)
		c.connectTo(t, introduction{GID: a.gid, QPN: target.Number(), SRQN: q.queues[0].Number(), RKey: q.queues[1].Number()})
		for id := range 3 + round { // a different moment each time
			require.Equal(t, uint32(id), q.receive(id%2).Imm)
		}
		c.kill(t)
		testenv.ProgressWithin(t, patience, func() bool {
			q.receiveAll()
			return target.State() == verbs.QPStateErr && b.target.State() == verbs.QPStateErr
		})
		a.awaitEvent(target, verbs.EventQPFatal)
		b.awaitEvent(b.target, verbs.EventQPFatal)
		q.checkReceives(survivor, other.Number())
		require.NoError(t, target.Close())
		require.NoError(t, b.target.Close())
	}
}

// churn is an initiator and processes in a domain, one of which dies each round.
type churn struct {
	*node
	cs      []*child
	posted  []uint64 // receives of each process
	taken   []uint64
	random  *rand.Rand
	k       uint64 // messages so far
	creator int    // of the target
}

// sentTo is a message to a process.
type sentTo struct {
	k  uint64
	to int
}

// churnReceives is how many receives each process has for a round.
const churnReceives = 4

// connect has one process make a target, another one open it, and all have receives.
func (c *churn) connect() {
	t := c.t
	creator := c.random.IntN(len(c.cs))
	c.creator = creator
	qpn := c.cs[creator].do(t, order{Do: "create"}).QPN
	c.cs[(creator+1)%len(c.cs)].do(t, order{Do: "open", QPN: qpn})
	require.NoError(t, c.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
	c.cs[creator].QPN = qpn
	c.connectToMember(c.cs[creator])
	for k, p := range c.cs {
		for ; c.posted[k]-c.taken[k] < churnReceives; c.posted[k]++ {
			p.do(t, order{Do: "post", ID: c.posted[k]})
		}
	}
}

// send sends to each process as much as it has receives for, in any order, and kills victim
// somewhere in between.
func (c *churn) send(victim int) (sent []sentTo) {
	var to []int
	for range churnReceives {
		for k := range c.cs {
			to = append(to, k)
		}
	}
	c.random.Shuffle(len(to), func(i, j int) { to[i], to[j] = to[j], to[i] })
	moment := c.random.IntN(len(to))
	for at, k := range to {
		if at == moment {
			require.NoError(c.t, c.cs[victim].Process.Kill())
		}
		off := int(c.k%32) * memberLen
		fill(c.buf.Bytes()[off:off+memberLen], byte(c.k))
		c.node.send(verbs.SendWR{ID: c.k, Opcode: verbs.OpSendWithImm, Imm: uint32(c.k), Flags: verbs.SendSignaled,
			SRQN: c.cs[k].SRQN, SGList: []verbs.SGE{c.mr.SGE(off, memberLen)}})
		sent = append(sent, sentTo{c.k, k})
		c.k++
	}
	return sent
}

// ended takes the completions: some succeed, then one may fail, which is to the victim or the
// first one, and the rest is flushed. It returns those that succeeded.
func (c *churn) complete(sent []sentTo, victim int) []sentTo {
	for at, s := range sent {
		wc := c.completion()
		require.Equal(c.t, s.k, wc.ID)
		if wc.Status == verbs.WCSuccess {
			continue
		}
		require.Contains(c.t, []verbs.WCStatus{verbs.WCRetryExcErr, verbs.WCRemInvReqErr}, wc.Status)
		if at > 0 || victim != c.creator { // the maker is needed once, to find the others
			require.Equal(c.t, victim, s.to)
		}
		for _, rest := range sent[at+1:] {
			c.fail(rest.k, verbs.WCWRFlushErr)
		}
		return sent[:at]
	}
	return sent
}

// Processes of a domain come and are killed at any moment, while an initiator sends to them
// over targets that one makes and another one opens: each send ends, what succeeded has
// arrived in order and whole, and nothing else has.
func TestSharedXRC_Churn(t *testing.T) {
	i, cs := xrcProcesses(t, 3)
	c := &churn{node: i, cs: cs, posted: make([]uint64, 3), taken: make([]uint64, 3), random: rand.New(rand.NewPCG(3, 4))}
	for range testenv.Rounds(4, 100) {
		c.connect()
		victim := c.random.IntN(len(cs))
		sent := c.send(victim)
		for _, s := range c.complete(sent, victim) {
			if s.to == victim {
				continue
			}
			r := cs[s.to].do(t, order{Do: "receive"})
			require.Equal(t, verbs.WCSuccess, r.WC.Status)
			require.Equal(t, []uint64{c.taken[s.to], s.k}, []uint64{r.WC.ID, uint64(r.WC.Imm)})
			require.True(t, r.Whole)
			c.taken[s.to]++
		}
		for k := range cs {
			if k != victim {
				require.False(t, cs[k].do(t, order{Do: "idle"}).More)
			}
		}
		cs[victim].kill(t)
		cs[victim] = newChild(t, "xrc member")
		c.posted[victim], c.taken[victim] = 0, 0
	}
}
