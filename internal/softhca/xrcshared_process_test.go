package softhca_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// domainEnv is the variable with the file of the domain of a child.
const domainEnv = "GUCX_TEST_SOFTHCA_DOMAIN"

// order is a command of the parent to a member.
type order struct {
	Do  string // create, connect, open, post, receive, idle, state
	GID verbs.GID
	QPN uint32
	ID  uint64
}

// memberReport is the result of an order.
type memberReport struct {
	WC    verbs.WC
	Whole bool // the bytes are those of the immediate
	More  bool // there was a completion
	QPN   uint32
	State verbs.QPState
}

// memberLen is the length of a message to a member, seeded with its immediate.
const memberLen = 9000

// runXRCMember is a process in a domain, with a target and an SRQ, that executes orders.
func (n *node) runXRCMember() int {
	f, err := os.Open(os.Getenv(domainEnv))
	require.NoError(n.t, err)
	x := n.enterDomain(verbs.XRCDInitAttr{FD: int(f.Fd()), Flags: os.O_CREATE})
	require.NoError(n.t, f.Close()) // after its last use, as a finalizer could close it before
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

// do sends an order to a member, and returns the result.
func (c *child) do(t testing.TB, o order) (r memberReport) {
	t.Helper()
	require.NoError(t, json.NewEncoder(c.In).Encode(o))
	require.NoError(t, c.out.Decode(&r))
	return r
}

// sendToMember sends message k to the SRQ of a member.
func (n *node) sendToMember(c *child, k uint64) {
	n.t.Helper()
	fill(n.buf.Bytes()[:memberLen], byte(k))
	n.sendSRQ(c.SRQN, k, memberLen)
}

// deliverTo makes a member post a receive, and sends message k to it.
func (n *node) deliverTo(c *child, k uint64) {
	n.t.Helper()
	c.do(n.t, order{Do: "post", ID: k})
	n.sendToMember(c, k)
	n.succeed(k)
	c.receive(n.t, k)
}

// receive makes a member wait for message k, and checks it.
func (c *child) receive(t testing.TB, k uint64) {
	t.Helper()
	r := c.do(t, order{Do: "receive"})
	require.Equal(t, verbs.WCSuccess, r.WC.Status)
	require.Equal(t, []uint64{k, k}, []uint64{r.WC.ID, uint64(r.WC.Imm)})
	require.True(t, r.Whole)
}

// kill kills a process, and waits until it is gone.
func (c *child) kill(t testing.TB) {
	t.Helper()
	c.Kill(t)
}

// xrcProcesses returns an initiator that is connected to the target of the first of n processes in a
// domain. The second process has opened the target too.
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

// connectToMember connects an initiator with the target that a member has created.
func (n *node) connectToMember(c *child) {
	n.t.Helper()
	c.do(n.t, order{Do: "connect", GID: n.gid, QPN: n.qp.Number()})
	toRTS(n.t, n.qp, c.GID, c.QPN, defaultLink)
}

// Messages are sent to each of the processes over one target. When its creator is killed, the others still
// receive, and messages to the SRQ of the dead process fail.
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
	i.fail(7, verbs.WCRemInvReqErr) // also if the kernel has not reported the death yet
	require.Equal(t, verbs.VendorPeerGone, i.wcs[0].VendorErr)
	testenv.ProgressWithin(t, patience, func() bool {
		return cs[1].do(t, order{Do: "state"}).State == verbs.QPStateErr
	})
}

// The completion distinguishes the SRQ number of a killed process from a closed one, also after another
// process has got its place.
func TestSharedXRC_NumberOfDeadProcess(t *testing.T) {
	i, cs := xrcProcesses(t, 2)
	i.deliverTo(cs[1], 1)
	cs[1].kill(t)
	newChild(t, "xrc member")
	i.deliverTo(cs[0], 2) // so that it is not the only member
	i.sendToMember(cs[1], 3)
	i.fail(3, verbs.WCRemInvReqErr)
	assert.Equal(t, verbs.VendorPeerGone, i.wcs[0].VendorErr)
}

// The same for a connection over which no message was sent to the killed process.
func TestSharedXRC_KilledCreatorUnused(t *testing.T) {
	i, cs := xrcProcesses(t, 2)
	i.deliverTo(cs[1], 1)
	cs[0].kill(t)
	i.deliverTo(cs[1], 2)
}

// A process is killed while the initiator writes to it repeatedly: whether the kernel rejects the copy, or
// the link is found down before or during the write, the write fails as one to an SRQ of a dead process.
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

// If a process dies while a message waits for its receive, the send fails, and another member that refers to
// the target gets an event.
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
		testenv.ProgressWithin(t, patience, func() bool { // as after closing its SRQ
			return cs[1].do(t, order{Do: "state"}).State == verbs.QPStateErr
		})
	}
}

// A stopped process gets messages while it has posted receives; the others receive theirs meanwhile, and the
// stopped one gets the rest after it continues.
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

// The dial of a process that was stopped before the first message to it times out: the message fails, and so
// does the target; later messages can be sent to other members.
func TestSharedXRC_StoppedBeforeFirstMessage(t *testing.T) {
	_, cs := xrcProcesses(t, 2)
	cs[0].do(t, order{Do: "post", ID: 1})
	var i *node
	testenv.ProgressWithin(t, patience, func() bool { // a member that waits for a CPU may reply too late
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

// After the last process that refers to the target is killed, no message arrives, although the SRQ still
// exists.
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

// runXRCSpreader sends to two SRQs of the parent alternately, in an endless loop.
func (n *node) runXRCSpreader() int {
	i, peer := n.initiatorToParent()
	for id := uint64(0); ; id++ {
		srqn := []uint32{peer.SRQN, peer.RKey}[id%2]
		_, _ = i.qp.PostSend([]verbs.SendWR{{ID: id, Opcode: verbs.OpSendWithImm, Imm: uint32(id), Flags: verbs.SendSignaled,
			SRQN: srqn, SGList: []verbs.SGE{i.mr.SGE(0, int(id%3)*150000)}}})
		i.cq.Poll(i.wcs[:])
	}
}

// queued has members of a domain, each with an SRQ with killedReceives receives.
type queued struct {
	t       *testing.T
	members []*xrcTarget
	queues  []*verbs.SRQ
}

// receive receives the next message of member k, and posts its receive again.
func (q *queued) receive(k int) verbs.WC {
	q.t.Helper()
	wc := q.members[k].completion()
	require.Equal(q.t, verbs.WCSuccess, wc.Status)
	q.members[k].post(q.queues[k], wc.ID, 0, bufLen/2)
	return wc
}

// receiveAll receives all messages that have arrived at the members.
func (q *queued) receiveAll() {
	for k, x := range q.members {
		if x.cq.Poll(x.wcs[:1]) == 1 {
			require.Equal(q.t, verbs.WCSuccess, x.wcs[0].Status)
			x.post(q.queues[k], x.wcs[0].ID, 0, bufLen/2)
		}
	}
}

// checkReceives checks that each member has all its receives: messages of the sender fill them.
func (q *queued) checkReceives(sender *node, target uint32) {
	q.t.Helper()
	for k, x := range q.members {
		seen := map[uint64]bool{}
		for id := range uint64(killedReceives) {
			sender.sendSRQ(q.queues[k].Number(), id, bufLen/4)
			sender.succeed(id)
			wc := x.completion()
			for ; wc.SrcQP != sender.qp.Number() || wc.QPN != target; wc = x.completion() {
				x.post(q.queues[k], wc.ID, 0, bufLen/2) // a late message of a killed initiator
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

// An initiator is killed at a random time: the messages at each member are in order, the target goes to ERR
// for all members, and no receive is lost.
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
		for id := range 3 + round { // another time of death in each round
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

// churn is an initiator and processes in a domain, one of which is killed in each round.
type churn struct {
	*node
	cs      []*child
	posted  []uint64 // receives of each process
	taken   []uint64
	random  *rand.Rand
	k       uint64 // messages so far
	creator int    // of the target
}

// sentTo is message k to a process.
type sentTo struct {
	k  uint64
	to int
}

// churnReceives is the number of receives of each process for a round.
const churnReceives = 4

// connect makes one process create a target and another one open it, and all post receives.
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

// send sends a message for each receive of each process, in random order, and kills victim
// meanwhile.
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

// complete polls the completions: some succeed, then one may fail, that of the first message or of one to
// the victim, and the others are flushed. It returns the successful ones.
func (c *churn) complete(sent []sentTo, victim int) []sentTo {
	for at, s := range sent {
		wc := c.completion()
		require.Equal(c.t, s.k, wc.ID)
		if wc.Status == verbs.WCSuccess {
			continue
		}
		require.Contains(c.t, []verbs.WCStatus{verbs.WCRetryExcErr, verbs.WCRemInvReqErr}, wc.Status)
		if at > 0 || victim != c.creator { // the first message needs the creator, to find the others
			require.Equal(c.t, victim, s.to)
		}
		for _, rest := range sent[at+1:] {
			c.fail(rest.k, verbs.WCWRFlushErr)
		}
		return sent[:at]
	}
	return sent
}

// Processes join a domain and are killed at random times, while an initiator sends to them over targets
// that one creates and another one opens: each send completes, exactly the messages of successful sends
// arrive, in order and complete.
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
