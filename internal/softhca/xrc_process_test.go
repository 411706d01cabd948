package softhca_test

import (
	"encoding/json"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// xrcSeeds are the seeds of the messages to the receives of the child: the first is in the arena, the
// second outside.
var xrcSeeds = [2]byte{3, 4}

// xrcReport describes the completed receives of the child.
type xrcReport struct {
	IDs   []uint64
	Whole []bool // the receive has the bytes of the message
}

// runXRCTarget is a process with an XRC SRQ and two receives of 1 MiB. For each line of the parent it waits
// for one more completion, and reports all.
func (n *node) runXRCTarget() int {
	x := n.addDomain()
	s := x.openSRQ()
	private := make([]byte, bufLen)
	mr, err := n.pd.RegMR(private, verbs.AccessLocalWrite)
	require.NoError(n.t, err)
	x.post(s, 1, 0, bufLen)
	_, err = s.PostRecv([]verbs.RecvWR{{ID: 2, SGList: []verbs.SGE{mr.SGE(0, bufLen/2), mr.SGE(bufLen/2, bufLen/2)}}})
	require.NoError(n.t, err)
	enc, dec := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	require.NoError(n.t, enc.Encode(introduction{GID: n.gid, QPN: x.target.Number(), SRQN: s.Number(),
		Addr: n.mr.Addr(), RKey: n.mr.RKey()}))
	var peer introduction
	require.NoError(n.t, dec.Decode(&peer))
	toRTS(n.t, x.target, peer.GID, peer.QPN, defaultLink)
	require.NoError(n.t, enc.Encode(true))
	var r xrcReport
	var id uint64
	want := make([]byte, bufLen)
	for dec.Decode(&id) == nil {
		if id > 2 {
			x.post(s, id, 0, bufLen)
		}
		wc := n.completion()
		require.Equal(n.t, verbs.WCSuccess, wc.Status)
		got := n.buf.Bytes()
		if wc.ID == 2 {
			got = private
		}
		fill(want, xrcSeeds[(wc.ID-1)%2])
		r.IDs = append(r.IDs, wc.ID)
		r.Whole = append(r.Whole, string(want) == string(got))
		require.NoError(n.t, enc.Encode(r))
	}
	return 0
}

// report makes the child wait for one more completion, and returns its report. If id is not that of a
// posted receive, the child posts it first.
func (c *child) report(t *testing.T, id uint64) (r xrcReport) {
	t.Helper()
	require.NoError(t, json.NewEncoder(c.In).Encode(id))
	require.NoError(t, c.out.Decode(&r))
	return r
}

// startXRCTarget starts a child and connects an initiator of n to its target, over a link that is up.
func startXRCTarget(t *testing.T, n *node) (*node, *child) {
	t.Helper()
	i := n.newInitiator()
	c := newChild(t, "xrc target")
	toRTS(t, i.qp, c.GID, c.QPN, defaultLink)
	c.connectTo(t, introduction{GID: n.gid, QPN: i.qp.Number()})
	i.send(verbs.SendWR{ID: 99, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SRQN: c.SRQN,
		SGList: []verbs.SGE{n.mr.SGE(0, 1)}, RemoteAddr: c.Addr, RKey: c.RKey})
	i.succeed(99)
	return i, c
}

// cont continues the stopped child.
func (c *child) cont(t *testing.T) {
	t.Helper()
	c.Continue(t)
}

// A send to a posted receive completes while the target is stopped, wherever the memory of the receive is.
// A send without a receive waits, and the target receives all messages after it continues.
func TestXRC_StoppedTarget(t *testing.T) {
	testenv.NeedCMA(t)
	i, c := startXRCTarget(t, openNode(t, testConfig))
	c.Stop(t)
	for k, seed := range xrcSeeds {
		fill(i.buf.Bytes(), seed)
		i.sendSRQ(c.SRQN, uint64(k), bufLen)
		i.succeed(uint64(k))
	}
	fill(i.buf.Bytes(), xrcSeeds[0])
	i.sendSRQ(c.SRQN, 5, bufLen)
	i.sendSRQ(c.SRQN, 6, 0)
	for range 1000 {
		i.idle()
	}
	c.cont(t)
	c.report(t, 1)
	r := c.report(t, 2)
	assert.Equal(t, xrcReport{IDs: []uint64{1, 2}, Whole: []bool{true, true}}, r)
	r = c.report(t, 3)
	assert.Equal(t, []uint64{1, 2, 3}, r.IDs)
	assert.True(t, r.Whole[2])
	i.succeed(5)
	c.report(t, 4)
	i.succeed(6)
}

// A send that waits for a receive of a process that dies fails, and later ones are flushed.
func TestXRC_KilledTarget(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		i, c := startXRCTarget(t, openNode(t, testConfig))
		for k := range uint64(2) {
			i.sendSRQ(c.SRQN, k, 100)
			i.succeed(k)
		}
		if stopped {
			c.Stop(t)
		}
		i.sendSRQ(c.SRQN, 7, bufLen)
		i.sendSRQ(c.SRQN, 8, bufLen)
		i.idle()
		require.NoError(t, c.Process.Kill())
		i.fail(7, verbs.WCRetryExcErr)
		assert.Equal(t, verbs.VendorPeerGone, i.wcs[0].VendorErr)
		i.fail(8, verbs.WCWRFlushErr)
	}
}

// initiatorToParent connects an initiator with the target of the parent. The process exits with the
// parent.
func (n *node) initiatorToParent() (i *node, peer introduction) {
	i = n.newInitiator()
	enc, dec := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	require.NoError(n.t, enc.Encode(introduction{GID: n.gid, QPN: i.qp.Number()}))
	require.NoError(n.t, dec.Decode(&peer))
	toRTS(n.t, i.qp, peer.GID, peer.QPN, defaultLink)
	require.NoError(n.t, enc.Encode(true))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent exits
		os.Exit(0)
	}()
	return i, peer
}

// runXRCInitiator sends messages of several lengths to the SRQ of the parent in an endless loop. Each
// takes several steps.
func (n *node) runXRCInitiator() int {
	i, peer := n.initiatorToParent()
	for id := uint64(0); ; id++ {
		n := int(id%3) * 150000
		_, _ = i.qp.PostSend([]verbs.SendWR{{ID: id, Opcode: verbs.OpSendWithImm, Imm: uint32(n), Flags: verbs.SendSignaled,
			SRQN: peer.SRQN, SGList: []verbs.SGE{i.mr.SGE(0, n)}}})
		i.cq.Poll(i.wcs[:])
	}
}

// killedReceives is the number of receives posted in the tests of killed initiators: their memory is the
// first half of the buffer.
const killedReceives = 4

// An initiator that is killed at a random time loses no receive: each completes once, with a complete
// message of another initiator.
func TestXRC_KilledInitiator(t *testing.T) {
	a := openNode(t, testConfig)
	x := a.addDomain()
	s := x.newSRQ()
	survivor := openNode(t, testConfig).newInitiator()
	other := x.newTarget()
	defer func() { require.NoError(t, other.Close()) }()
	connectXRC(survivor, x, other, defaultLink)
	fill(a.buf.Bytes()[bufLen/2:], 77)
	want := append([]byte(nil), a.buf.Bytes()[bufLen/2:]...)
	repost := func(id uint64) { x.post(s, id, 0, bufLen/2) }
	for id := range uint64(killedReceives) {
		repost(id)
	}
	for round := range testenv.Rounds(6, 40) {
		c := newChild(t, "xrc initiator")
		target := x.newTarget()
		toRTS(t, target, c.GID, c.QPN, defaultLink)
		c.connectTo(t, introduction{GID: a.gid, QPN: target.Number(), SRQN: s.Number()})
		for range 3 + round { // another time of death in each round
			wc := x.completion()
			require.Equal(t, verbs.WCSuccess, wc.Status)
			require.Equal(t, wc.Imm, wc.ByteLen)
			repost(wc.ID)
		}
		require.NoError(t, c.Process.Kill())
		testenv.ProgressWithin(t, patience, func() bool {
			if x.cq.Poll(x.wcs[:1]) == 1 {
				require.Equal(t, verbs.WCSuccess, x.wcs[0].Status)
				repost(x.wcs[0].ID)
			}
			return target.State() == verbs.QPStateErr
		})
		fill(survivor.buf.Bytes(), byte(round))
		seen := map[uint64]bool{}
		for k := range uint64(killedReceives) {
			survivor.sendSRQ(s.Number(), k, bufLen/4)
			survivor.succeed(k)
			wc := x.completion()
			for ; wc.SrcQP != survivor.qp.Number() || wc.QPN != other.Number(); wc = x.completion() {
				repost(wc.ID) // a late message of the child
			}
			require.Equal(t, verbs.WCSuccess, wc.Status)
			require.Equal(t, survivor.buf.Bytes()[:bufLen/4], a.buf.Bytes()[:bufLen/4])
			seen[wc.ID] = true
		}
		assert.Len(t, seen, killedReceives, "a receive was lost")
		for id := range uint64(killedReceives) {
			repost(id)
		}
		require.NoError(t, target.Close())
	}
	assert.Equal(t, want, a.buf.Bytes()[bufLen/2:], "bytes outside of posted receives")
}

// After Close of an SRQ no peer writes to its receives.
func TestXRC_CloseSRQUnderLoad(t *testing.T) {
	a := openNode(t, testConfig)
	x := a.addDomain()
	for range testenv.Rounds(5, 50) {
		s := x.openSRQ()
		c := newChild(t, "xrc initiator")
		target := x.newTarget()
		toRTS(t, target, c.GID, c.QPN, defaultLink)
		c.connectTo(t, introduction{GID: a.gid, QPN: target.Number(), SRQN: s.Number()})
		for id := range uint64(depth) {
			x.post(s, id, 0, bufLen/2)
		}
		x.completion()
		testenv.ProgressWithin(t, patience, func() bool { return s.Close() == nil }) // an access of a peer may take long
		fill(a.buf.Bytes(), 55)
		want := append([]byte(nil), a.buf.Bytes()...)
		await(t, x.node, x.node, func() bool { return target.State() == verbs.QPStateErr })
		require.Equal(t, want, a.buf.Bytes())
		require.NoError(t, c.Process.Kill())
		require.NoError(t, target.Close())
	}
}
