package softhca_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// testConfig is a device on the shm fabric.
var testConfig softhca.Config

// xrcTarget is an XRC domain of a node, with a target.
type xrcTarget struct {
	*node
	domain *verbs.XRCD
	target *verbs.QP
}

// addDomain opens a private domain on n, with a target.
func (n *node) addDomain() *xrcTarget {
	n.t.Helper()
	x := n.enterDomain(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
	x.target = x.newTarget()
	n.t.Cleanup(func() { require.NoError(n.t, x.target.Close()) })
	return x
}

// enterDomain opens a domain on n, without a target.
func (n *node) enterDomain(attr verbs.XRCDInitAttr) *xrcTarget {
	n.t.Helper()
	d, err := n.ctx.OpenXRCD(attr)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { require.NoError(n.t, d.Close()) })
	return &xrcTarget{node: n, domain: d}
}

// sharedDomain names a new domain.
func sharedDomain(t testing.TB) verbs.XRCDInitAttr {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "domain"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return verbs.XRCDInitAttr{FD: int(f.Fd()), Flags: os.O_CREATE}
}

// openTarget opens a target of the domain that another device has created.
func (x *xrcTarget) openTarget(qpn uint32) {
	x.t.Helper()
	qp, err := x.domain.OpenQP(qpn)
	require.NoError(x.t, err)
	x.target = qp
	x.t.Cleanup(func() { require.NoError(x.t, qp.Close()) })
}

func (x *xrcTarget) newTarget() *verbs.QP {
	qp, err := x.domain.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
	require.NoError(x.t, err)
	return qp
}

// newSRQ creates an XRC SRQ with the CQ of the node.
func (x *xrcTarget) newSRQ() *verbs.SRQ {
	s := x.openSRQ()
	x.t.Cleanup(func() { require.NoError(x.t, s.Close()) })
	return s
}

func (x *xrcTarget) openSRQ() *verbs.SRQ {
	x.t.Helper()
	s, err := x.pd.CreateSRQ(verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, XRCD: x.domain, CQ: x.cq, MaxWR: depth, MaxSGE: 2})
	require.NoError(x.t, err)
	return s
}

// post posts a receive into the memory of the node.
func (x *xrcTarget) post(s *verbs.SRQ, id uint64, off, n int) {
	x.t.Helper()
	_, err := s.PostRecv([]verbs.RecvWR{{ID: id, SGList: []verbs.SGE{x.mr.SGE(off, n)}}})
	require.NoError(x.t, err)
}

// newInitiator returns a copy of n with an XRC initiator as its QP, and a separate CQ.
func (n *node) newInitiator() *node {
	i := *n
	var err error
	i.cq, err = n.ctx.CreateCQ(verbs.CQInitAttr{Depth: 4 * depth})
	require.NoError(n.t, err)
	i.qp, err = n.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCSend, SendCQ: i.cq,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxSendSGE: 4, MaxInline: 64}})
	require.NoError(n.t, err)
	n.t.Cleanup(func() {
		require.NoError(n.t, i.qp.Close())
		require.NoError(n.t, i.cq.Close())
	})
	return &i
}

// connectXRC connects an initiator and a target, and moves them to RTS.
func connectXRC(i *node, x *xrcTarget, target *verbs.QP, l link) {
	i.t.Helper()
	toRTS(i.t, target, i.gid, i.qp.Number(), l)
	toRTS(i.t, i.qp, x.gid, target.Number(), l)
}

// toRTS moves one side of an XRC connection to RTS.
func toRTS(t testing.TB, qp *verbs.QP, gid verbs.GID, dest uint32, l link) {
	t.Helper()
	initQP(t, qp, l.access)
	rtr := verbs.QPMaskState | verbs.QPMaskAV | verbs.QPMaskPathMTU | verbs.QPMaskDestQPN | verbs.QPMaskRQPSN
	rts := verbs.QPMaskState | verbs.QPMaskTimeout | verbs.QPMaskSQPSN
	if qp.Type() == verbs.QPTypeXRCRecv {
		rtr |= verbs.QPMaskMaxDestRD | verbs.QPMaskMinRNRTimer
	} else {
		rts |= verbs.QPMaskRetryCnt | verbs.QPMaskRNRRetry | verbs.QPMaskMaxRDAtomic
	}
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU4096, DestQPN: dest,
		RQPSN: firstPSN - l.conn, MaxDestRD: 4, MinRNRTimer: l.minRNR,
		AH: verbs.AHAttr{DGID: gid, Global: true, Port: 1, HopLimit: 64}}, rtr))
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, Timeout: l.timeout, RetryCnt: l.retry,
		RNRRetry: l.rnr, SQPSN: firstPSN - l.conn, MaxRDAtomic: 4}, rts))
}

// xrcFabrics runs f with an initiator that is connected to a target: on both fabrics, and with a target
// that another device of the domain than x has created.
func xrcFabrics(t *testing.T, l link, f func(t *testing.T, i *node, x *xrcTarget)) {
	t.Run("loop", func(t *testing.T) {
		n := openNode(t, softhca.Config{Fabric: softhca.FabricLoop})
		i, x := n.newInitiator(), n.sibling().addDomain()
		connectXRC(i, x, x.target, l)
		f(t, i, x)
	})
	t.Run("shm", func(t *testing.T) {
		i, x := openNode(t, softhca.Config{}).newInitiator(), openNode(t, softhca.Config{}).addDomain()
		connectXRC(i, x, x.target, l)
		f(t, i, x)
	})
	t.Run("shared", func(t *testing.T) {
		i, attr := openNode(t, softhca.Config{}).newInitiator(), sharedDomain(t)
		creator, x := openNode(t, softhca.Config{}).enterDomain(attr), openNode(t, softhca.Config{}).enterDomain(attr)
		target := creator.newTarget()
		x.openTarget(target.Number())
		connectXRC(i, creator, target, l)
		require.NoError(t, target.Close()) // x refers to it
		f(t, i, x)
	})
}

func (n *node) sendSRQ(srqn uint32, id uint64, length int) {
	n.t.Helper()
	n.send(verbs.SendWR{ID: id, Opcode: verbs.OpSendWithImm, Imm: uint32(id), Flags: verbs.SendSignaled, SRQN: srqn,
		SGList: []verbs.SGE{n.mr.SGE(0, length)}})
}

// A message of any length is delivered to the SRQ that it names, and its completion has the number of the
// target.
func TestXRC_Sizes(t *testing.T) {
	xrcFabrics(t, defaultLink, func(t *testing.T, i *node, x *xrcTarget) {
		first, second := x.newSRQ(), x.newSRQ()
		require.NotEqual(t, first.Number(), second.Number())
		for k, n := range rdmaSizes {
			fill(i.buf.Bytes(), byte(k))
			clear(x.buf.Bytes())
			to, id := first, uint64(7)
			if k%2 == 1 {
				to, id = second, 8
			}
			x.post(to, id, 0, bufLen)
			i.sendSRQ(to.Number(), uint64(k), n)
			wc := x.succeed(id)
			assert.Equal(t, verbs.WCRecv, wc.Opcode)
			assert.EqualValues(t, k, wc.Imm)
			assert.EqualValues(t, n, wc.ByteLen)
			assert.Equal(t, x.target.Number(), wc.QPN)
			i.succeed(uint64(k))
			require.Equal(t, i.buf.Bytes()[:n], x.buf.Bytes()[:n], "size %d", n)
		}
	})
}

// All operations of an XRC initiator access memory of the PD of the SRQ.
func TestXRC_OneSided(t *testing.T) {
	xrcFabrics(t, defaultLink, func(t *testing.T, i *node, x *xrcTarget) {
		srqn := x.newSRQ().Number()
		fill(i.buf.Bytes(), 5)
		i.send(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SRQN: srqn,
			SGList: []verbs.SGE{i.mr.SGE(0, 5000)}, RemoteAddr: x.mr.Addr(), RKey: x.mr.RKey()})
		i.succeed(1)
		require.Equal(t, i.buf.Bytes()[:5000], x.buf.Bytes()[:5000])
		i.send(verbs.SendWR{ID: 2, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SRQN: srqn,
			SGList: []verbs.SGE{i.mr.SGE(8192, 5000)}, RemoteAddr: x.mr.Addr(), RKey: x.mr.RKey()})
		i.succeed(2)
		require.Equal(t, x.buf.Bytes()[:5000], i.buf.Bytes()[8192:13192])
		i.send(verbs.SendWR{ID: 3, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, SRQN: srqn, CompareAdd: 1,
			SGList: []verbs.SGE{i.mr.SGE(0, 8)}, RemoteAddr: x.mr.Addr(), RKey: x.mr.RKey()})
		i.succeed(3)
	})
}

// With unlimited retries a message waits for a receive in its SRQ, and so do the later messages of the QP,
// also if their SRQs have receives.
func TestXRC_RNRBlocksTheQP(t *testing.T) {
	xrcFabrics(t, defaultLink, func(t *testing.T, i *node, x *xrcTarget) {
		empty, ready := x.newSRQ(), x.newSRQ()
		x.post(ready, 2, 4096, 64)
		i.sendSRQ(empty.Number(), 1, 8)
		i.sendSRQ(ready.Number(), 2, 8)
		for range 200 {
			i.idle()
			x.idle()
		}
		require.Zero(t, x.cq.Poll(x.wcs[:]), "a message overtook the one that waits")
		x.post(empty, 1, 0, 64)
		x.succeed(1)
		x.succeed(2)
		i.succeed(1)
		i.succeed(2)
	})
}

// A message continues when its receive is posted, although another message of the same device begins to wait
// at the same time.
func TestXRC_RNROfTwoQPs(t *testing.T) {
	xrcFabrics(t, defaultLink, func(t *testing.T, i *node, x *xrcTarget) {
		other, target := i.newInitiator(), x.newTarget()
		t.Cleanup(func() { require.NoError(t, target.Close()) })
		connectXRC(other, x, target, defaultLink)
		first, second := x.newSRQ(), x.newSRQ()
		for range testenv.Rounds(100, 10_000) {
			i.sendSRQ(first.Number(), 1, 8)
			i.idle()
			x.idle()
			x.post(first, 1, 0, 64)
			other.sendSRQ(second.Number(), 2, 8)
			x.succeed(1)
			i.succeed(1)
			x.post(second, 2, 64, 64)
			x.succeed(2)
			other.succeed(2)
		}
	})
}

// When the retries are used up the send fails, and the target still works.
func TestXRC_RNRExceeded(t *testing.T) {
	l := defaultLink
	l.rnr = 2
	xrcFabrics(t, l, func(t *testing.T, i *node, x *xrcTarget) {
		s := x.newSRQ()
		i.sendSRQ(s.Number(), 1, 8)
		i.fail(1, verbs.WCRNRRetryExcErr)
		assert.Equal(t, verbs.QPStateRTS, x.target.State())
	})
}

// A number that is not in the domain fails the QPs of both sides.
func TestXRC_RejectsUnknownNumber(t *testing.T) {
	xrcFabrics(t, defaultLink, func(t *testing.T, i *node, x *xrcTarget) {
		other := x.addDomain()
		closed := x.openSRQ()
		require.NoError(t, closed.Close())
		basic, err := x.pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 4, MaxSGE: 1})
		require.NoError(t, err)
		defer func() { require.NoError(t, basic.Close()) }()
		for _, srqn := range map[string]uint32{"none": 0, "another domain": other.newSRQ().Number(), "closed": closed.Number(),
			"basic": basic.Number() + 100, "too large": 1<<24 - 1} {
			for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMAWriteWithImm, verbs.OpRDMARead} {
				j, target := i.newInitiator(), x.newTarget()
				connectXRC(j, x, target, defaultLink)
				j.send(verbs.SendWR{ID: 1, Opcode: op, Flags: verbs.SendSignaled, SRQN: srqn,
					SGList: []verbs.SGE{j.mr.SGE(0, 8)}, RemoteAddr: x.mr.Addr(), RKey: x.mr.RKey()})
				j.fail(1, verbs.WCRemInvReqErr)
				await(t, j, x.node, func() bool { return target.State() == verbs.QPStateErr })
				require.NoError(t, target.Close())
			}
		}
	})
}

// await polls both CQs, which must be empty, until ok returns true.
func await(t *testing.T, a, b *node, ok func() bool) {
	t.Helper()
	testenv.ProgressWithin(t, patience, func() bool {
		a.idle()
		b.idle()
		return ok()
	})
}

// A message that is longer than the receive fails the QPs of both sides, and the SRQ still works.
func TestXRC_TooLong(t *testing.T) {
	xrcFabrics(t, defaultLink, func(t *testing.T, i *node, x *xrcTarget) {
		s := x.newSRQ()
		x.post(s, 1, 0, 100)
		i.sendSRQ(s.Number(), 1, 101)
		x.fail(1, verbs.WCLocLenErr)
		i.fail(1, verbs.WCRemInvReqErr)
		j, target := i.newInitiator(), x.newTarget()
		connectXRC(j, x, target, defaultLink)
		x.post(s, 2, 0, 100)
		j.sendSRQ(s.Number(), 2, 100)
		x.succeed(2)
		j.succeed(2)
		require.NoError(t, target.Close())
	})
}

// Several initiators use one SRQ, each over a separate target.
func TestXRC_ManyInitiators(t *testing.T) {
	xrcFabrics(t, defaultLink, func(t *testing.T, i *node, x *xrcTarget) {
		s := x.newSRQ()
		const n = 8
		qpns := map[uint32]bool{}
		for k := range uint64(n) {
			j, target := i.newInitiator(), x.newTarget()
			connectXRC(j, x, target, defaultLink)
			x.post(s, k, 0, 8)
			j.sendSRQ(s.Number(), k, 8)
			qpns[x.succeed(k).QPN] = true
			j.succeed(k)
			x.t.Cleanup(func() { require.NoError(t, target.Close()) })
		}
		assert.Len(t, qpns, n)
	})
}

// A target exists until its last handle is closed.
func TestXRC_OpenQP(t *testing.T) {
	xrcFabrics(t, defaultLink, func(t *testing.T, i *node, x *xrcTarget) {
		_, err := x.domain.OpenQP(x.qp.Number())
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
		creator := x.newTarget()
		other, err := x.domain.OpenQP(creator.Number())
		require.NoError(t, err)
		assert.Equal(t, creator.Number(), other.Number())
		j := i.newInitiator()
		connectXRC(j, x, creator, defaultLink)
		assert.Equal(t, verbs.QPStateRTS, other.State())
		require.NoError(t, creator.Close())
		s := x.newSRQ()
		x.post(s, 1, 0, 8)
		j.sendSRQ(s.Number(), 1, 8)
		x.succeed(1)
		j.succeed(1)
		require.NoError(t, other.Close())
		_, err = x.domain.OpenQP(creator.Number())
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
		j.sendSRQ(s.Number(), 2, 8)
		j.fail(2, verbs.WCRetryExcErr)
	})
}

// Closing an SRQ removes its completions from the CQ, and later messages to its number are rejected.
func TestXRC_CloseSRQ(t *testing.T) {
	xrcFabrics(t, defaultLink, func(t *testing.T, i *node, x *xrcTarget) {
		s, other := x.openSRQ(), x.newSRQ()
		x.post(s, 1, 0, 8)
		i.sendSRQ(s.Number(), 1, 8)
		i.succeed(1) // its receive has not been polled
		x.post(other, 2, 0, 8)
		i.sendSRQ(other.Number(), 2, 8)
		i.succeed(2)
		require.NoError(t, s.Close())
		x.succeed(2)
		require.Zero(t, x.cq.Poll(x.wcs[:]))
		i.sendSRQ(s.Number(), 3, 8)
		i.fail(3, verbs.WCRemInvReqErr)
	})
}

func TestXRC_Lifetimes(t *testing.T) {
	n := openNode(t, softhca.Config{Fabric: softhca.FabricLoop})
	d, err := n.ctx.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
	require.NoError(t, err)
	cq, err := n.ctx.CreateCQ(verbs.CQInitAttr{Depth: 4})
	require.NoError(t, err)
	srq, err := n.pd.CreateSRQ(verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, XRCD: d, CQ: cq, MaxWR: 1, MaxSGE: 1})
	require.NoError(t, err)
	target, err := d.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
	require.NoError(t, err)
	r, ok := n.ctx.Resources()
	require.True(t, ok)
	assert.Equal(t, []int{1, 1, 2}, []int{r.XRCDs, r.SRQs, r.QPs})
	assert.Positive(t, r.Bytes.XRCDs)

	assert.ErrorIs(t, d.Close(), ucs.ErrBusy)
	assert.ErrorIs(t, cq.Close(), ucs.ErrBusy)
	require.NoError(t, target.Close())
	assert.ErrorIs(t, d.Close(), ucs.ErrBusy)
	require.NoError(t, srq.Close())
	require.NoError(t, cq.Close())
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	_, err = d.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
	assert.ErrorIs(t, err, ucs.ErrClosed)
}

func TestXRC_Misuse(t *testing.T) {
	n, other := openNode(t, softhca.Config{Fabric: softhca.FabricLoop}), openNode(t, softhca.Config{Fabric: softhca.FabricLoop})
	x := n.addDomain()
	_, err := n.ctx.OpenXRCD(verbs.XRCDInitAttr{FD: -2})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	for name, attr := range map[string]verbs.SRQInitAttr{
		"no CQ":           {Type: verbs.SRQTypeXRC, XRCD: x.domain},
		"no domain":       {Type: verbs.SRQTypeXRC, CQ: n.cq},
		"another context": {Type: verbs.SRQTypeXRC, XRCD: x.domain, CQ: other.cq},
		"basic with CQ":   {CQ: n.cq},
		"unknown type":    {Type: 2},
	} {
		attr.MaxWR = 1
		_, err := n.pd.CreateSRQ(attr)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam, name)
	}
	srq := x.newSRQ()
	for name, attr := range map[string]verbs.QPInitAttr{
		"XRC SRQ":        {Type: verbs.QPTypeRC, SendCQ: n.cq, RecvCQ: n.cq, SRQ: srq},
		"target in a PD": {Type: verbs.QPTypeXRCRecv, SendCQ: n.cq, RecvCQ: n.cq},
		"receive CQ":     {Type: verbs.QPTypeXRCSend, SendCQ: n.cq, RecvCQ: n.cq},
		"no send CQ":     {Type: verbs.QPTypeXRCSend},
	} {
		_, err := n.pd.CreateQP(attr)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam, name)
	}
	_, err = x.domain.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCSend, SendCQ: n.cq})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	i := n.newInitiator()
	connectXRC(i, x, x.target, defaultLink)
	_, err = x.target.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend}})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = x.target.PostRecv([]verbs.RecvWR{{}})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = i.qp.PostRecv([]verbs.RecvWR{{}})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
}

// sender sends count messages of up to limit bytes to an SRQ, as fast as they complete. The immediate and
// all words of a message are its number. It returns early when the test has failed.
func (n *node) sender(srqn uint32, count, limit int, failed *atomic.Bool) error {
	const slots = 4
	var inFlight int
	take := func() error {
		k := n.cq.Poll(n.wcs[:])
		for _, wc := range n.wcs[:k] {
			if err := wc.Status.Err(); err != nil {
				return err
			}
		}
		inFlight -= k
		runtime.Gosched()
		return nil
	}
	for i := 0; i < count || inFlight > 0; {
		if failed.Load() {
			return fmt.Errorf("canceled with %d of %d messages posted and %d in flight", i, count, inFlight)
		}
		if i < count && inFlight < slots {
			off, length := i%slots*limit, 8+i*4104%(limit-8)&^7
			b := n.buf.Bytes()[off : off+length]
			for at := 0; at < length; at += 8 {
				binary.NativeEndian.PutUint64(b[at:], uint64(i))
			}
			wr := []verbs.SendWR{{ID: uint64(i), Opcode: verbs.OpSendWithImm, Imm: uint32(i), Flags: verbs.SendSignaled, SRQN: srqn,
				SGList: []verbs.SGE{n.mr.SGE(off, length)}}}
			if _, err := n.qp.PostSend(wr); err != nil {
				return err
			}
			i++
			inFlight++
			if inFlight < slots {
				continue
			}
		}
		if err := take(); err != nil {
			return err
		}
	}
	return nil
}

// Several devices send to one SRQ at the same time: every message arrives once and complete, and those of a
// QP in order.
func TestXRC_Contention(t *testing.T) {
	const senders, limit = 4, 20000
	messages := testenv.Rounds(100, 1000)
	for _, noCMA := range []bool{false, true} {
		a := openNode(t, testConfig)
		x := a.addDomain()
		s := x.newSRQ()
		// One half of the receives is in the arena, the other outside.
		outside := make([]byte, bufLen)
		mr, err := a.pd.RegMR(outside, verbs.AccessLocalWrite)
		require.NoError(t, err)
		post := func(id uint64) {
			of := []*verbs.MR{a.mr, mr}[id%2]
			_, err := s.PostRecv([]verbs.RecvWR{{ID: id, SGList: []verbs.SGE{of.SGE(int(id)*limit, 100), of.SGE(int(id)*limit+100, limit-100)}}})
			require.NoError(t, err)
		}
		errs := make(chan error, senders)
		var sending sync.WaitGroup
		var failed atomic.Bool
		var ended atomic.Int32
		defer func() { // also if the test has failed: before the objects of the senders are closed
			failed.Store(true)
			sending.Wait()
			close(errs)
			for err := range errs {
				t.Error(err)
			}
		}()
		var next [senders]uint32
		of := map[uint32]int{}
		for k := range senders {
			n := openNode(t, softhca.Config{NoCMA: noCMA}).newInitiator()
			target := x.newTarget()
			t.Cleanup(func() { require.NoError(t, target.Close()) })
			connectXRC(n, x, target, defaultLink)
			of[target.Number()] = k
			sending.Go(func() {
				defer ended.Add(1)
				if err := n.sender(s.Number(), messages, limit, &failed); err != nil {
					errs <- err
				}
			})
		}
		for id := range uint64(6) {
			post(id)
		}
		for range senders * messages {
			wc := a.completionUnless(errs)
			require.Equal(t, verbs.WCSuccess, wc.Status)
			k, ok := of[wc.QPN]
			require.True(t, ok)
			require.Equal(t, next[k], wc.Imm, "of sender %d", k)
			next[k]++
			b := [][]byte{a.buf.Bytes(), outside}[wc.ID%2][wc.ID*limit:][:wc.ByteLen]
			for at := 0; at < len(b); at += 8 {
				if got := binary.NativeEndian.Uint64(b[at:]); got != uint64(wc.Imm) {
					require.FailNow(t, "wrong bytes", "%d of sender %d, at %d of %d: %d", wc.Imm, k, at, len(b), got)
				}
			}
			post(wc.ID)
		}
		testenv.ProgressWithin(t, patience, func() bool { return ended.Load() == senders }) // the engine of a handles the packets
		a.idle()
		require.NoError(t, s.Close())
		require.NoError(t, mr.Close())
	}
}

// The data path allocates nothing.
func TestXRC_NoAllocation(t *testing.T) {
	xrcFabrics(t, defaultLink, func(t *testing.T, i *node, x *xrcTarget) {
		s := x.newSRQ()
		once := func() { i.exchange(x, s, 20000) }
		for range 10 {
			once()
		}
		testenv.NoAllocs(t, "post to an empty queue, receive and poll", once)
	})
}

// exchange sends length bytes to a queue of x without receives, posts one, and waits for both completions. It
// does not allocate.
func (n *node) exchange(x *xrcTarget, s *verbs.SRQ, length int) {
	n.sge[0], x.sge[0] = n.mr.SGE(0, length), x.mr.SGE(0, length)
	n.wr[0] = verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SRQN: s.Number(), SGList: n.sge[:]}
	x.rr[0] = verbs.RecvWR{SGList: x.sge[:]}
	_, err := n.qp.PostSend(n.wr[:])
	_, err2 := s.PostRecv(x.rr[:])
	if err != nil || err2 != nil {
		n.t.Fatal(err, err2)
	}
	for x.cq.Poll(x.wcs[:]) == 0 {
		n.cq.Poll(n.wcs[:0])
		runtime.Gosched()
	}
	for n.cq.Poll(n.wcs[:]) == 0 {
		runtime.Gosched()
	}
}
