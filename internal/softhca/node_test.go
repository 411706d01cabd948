package softhca_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// node is an open device with memory that peers may access in all ways, a CQ, and an RC QP.
type node struct {
	t   testing.TB
	ctx *verbs.Context
	pd  *verbs.PD
	buf verbs.Buffer
	mr  *verbs.MR
	cq  *verbs.CQ
	qp  *verbs.QP
	gid verbs.GID
	wcs [16]verbs.WC
	// The work requests of node.exchange.
	sge [1]verbs.SGE
	wr  [1]verbs.SendWR
	rr  [1]verbs.RecvWR
}

const (
	bufLen = 1 << 20
	depth  = 64
	anyone = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
)

func openNode(t testing.TB, cfg softhca.Config) *node {
	t.Helper()
	if cfg.ArenaLen == 0 {
		cfg.ArenaLen = 64 << 20
	}
	dev, err := softhca.NewDevice(cfg)
	require.NoError(t, err)
	n := &node{t: t}
	n.ctx, err = dev.Open()
	require.NoError(t, err)
	n.pd, err = n.ctx.AllocPD()
	require.NoError(t, err)
	n.buf, err = n.ctx.AllocBuffer(bufLen)
	require.NoError(t, err)
	n.mr, err = n.pd.RegMR(n.buf.Bytes(), anyone)
	require.NoError(t, err)
	n.cq, err = n.ctx.CreateCQ(verbs.CQInitAttr{Depth: 4 * depth})
	require.NoError(t, err)
	n.gid, err = n.ctx.QueryGID(1, 0)
	require.NoError(t, err)
	n.qp = n.newQP()
	t.Cleanup(n.close)
	return n
}

// sibling returns another QP on the device of n, with separate memory and a separate CQ.
func (n *node) sibling() *node {
	s := *n
	var err error
	s.buf, err = n.ctx.AllocBuffer(bufLen)
	require.NoError(n.t, err)
	s.mr, err = n.pd.RegMR(s.buf.Bytes(), anyone)
	require.NoError(n.t, err)
	s.cq, err = n.ctx.CreateCQ(verbs.CQInitAttr{Depth: 4 * depth})
	require.NoError(n.t, err)
	s.qp = s.newQP()
	n.t.Cleanup(func() {
		require.NoError(n.t, s.qp.Close())
		require.NoError(n.t, s.cq.Close())
		require.NoError(n.t, s.mr.Close())
		require.NoError(n.t, s.buf.Close())
	})
	return &s
}

func (n *node) newQP() *verbs.QP {
	qp, err := n.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: n.cq, RecvCQ: n.cq,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}})
	require.NoError(n.t, err)
	return qp
}

func (n *node) close() {
	require.NoError(n.t, n.qp.Close())
	require.NoError(n.t, n.cq.Close())
	require.NoError(n.t, n.mr.Close())
	require.NoError(n.t, n.buf.Close())
	require.NoError(n.t, n.pd.Close())
	require.NoError(n.t, n.ctx.Close())
}

// link has the attributes of a connection.
type link struct {
	access  verbs.Access
	timeout uint8
	retry   uint8
	rnr     uint8
	minRNR  uint8
	conn    uint32 // number of the connection of the two QPs: each starts with another PSN
}

// firstPSN is the first PSN of the first connection; it wraps soon.
const firstPSN = 0xfffff0

// defaultLink has a timeout of two minutes, in 8 tries of 2^22 times 4.096 us: on a busy machine a
// peer may connect seconds after the other, and its device may run late.
var defaultLink = link{access: anyone, timeout: 22, retry: 7, rnr: 7, minRNR: 1}

func initQP(t testing.TB, qp *verbs.QP, access verbs.Access) {
	t.Helper()
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, AccessFlags: access},
		verbs.QPMaskState|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskAccessFlags))
}

// join connects the QP of n to the QP dest at gid, and moves it to RTS.
func (n *node) join(gid verbs.GID, dest uint32, l link) {
	n.t.Helper()
	n.toRTR(gid, dest, l)
	n.toRTS(l)
}

func (n *node) toRTR(gid verbs.GID, dest uint32, l link) {
	n.t.Helper()
	initQP(n.t, n.qp, l.access)
	require.NoError(n.t, n.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU4096, DestQPN: dest,
		RQPSN: firstPSN - l.conn, MaxDestRD: 4, MinRNRTimer: l.minRNR,
		AH: verbs.AHAttr{DGID: gid, Global: true, Port: 1, HopLimit: 64}},
		verbs.QPMaskState|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|verbs.QPMaskRQPSN|
			verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer))
}

func (n *node) toRTS(l link) {
	n.t.Helper()
	require.NoError(n.t, n.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: firstPSN - l.conn, MaxRDAtomic: 4,
		Timeout: l.timeout, RetryCnt: l.retry, RNRRetry: l.rnr},
		verbs.QPMaskState|verbs.QPMaskSQPSN|verbs.QPMaskMaxRDAtomic|verbs.QPMaskTimeout|
			verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry))
}

func connect(a, b *node, l link) {
	a.t.Helper()
	a.join(b.gid, b.qp.Number(), l)
	b.join(a.gid, a.qp.Number(), l)
}

// fabrics runs a test on both fabrics with two connected nodes.
func fabrics(t *testing.T, l link, f func(t *testing.T, a, b *node)) {
	t.Run("loop", func(t *testing.T) {
		a := openNode(t, softhca.Config{Fabric: softhca.FabricLoop})
		b := a.sibling()
		connect(a, b, l)
		f(t, a, b)
	})
	t.Run("shm", func(t *testing.T) {
		a, b := openNode(t, softhca.Config{}), openNode(t, softhca.Config{})
		connect(a, b, l)
		f(t, a, b)
	})
}

func (n *node) send(wr ...verbs.SendWR) {
	n.t.Helper()
	k, err := n.qp.PostSend(wr)
	require.NoError(n.t, err)
	require.Equal(n.t, len(wr), k)
}

func (n *node) recv(id uint64, off, length int) {
	n.t.Helper()
	_, err := n.qp.PostRecv([]verbs.RecvWR{{ID: id, SGList: []verbs.SGE{n.mr.SGE(off, length)}}})
	require.NoError(n.t, err)
}

// patience limits waits that are not the subject of a test: it expires only if something hangs.
const patience = testenv.Watchdog

// completion polls for one completion.
func (n *node) completion() verbs.WC {
	n.t.Helper()
	testenv.ProgressWithin(n.t, patience, func() bool { return n.cq.Poll(n.wcs[:1]) == 1 })
	return n.wcs[0]
}

// completionUnless is completion, and fails the test if there is an error in errs.
func (n *node) completionUnless(errs <-chan error) (wc verbs.WC) {
	n.t.Helper()
	testenv.ProgressWithin(n.t, patience, func() bool {
		select {
		case err := <-errs:
			require.NoError(n.t, err)
		default:
		}
		return n.cq.Poll(n.wcs[:1]) == 1
	})
	return n.wcs[0]
}

// succeed polls for the successful completion of work request id.
func (n *node) succeed(id uint64) verbs.WC {
	n.t.Helper()
	wc := n.completion()
	require.Equal(n.t, verbs.WCSuccess, wc.Status, "of work request %d: %v", wc.ID, wc.Status)
	require.Equal(n.t, id, wc.ID)
	return wc
}

// fail polls for the completion of work request id with the status want.
func (n *node) fail(id uint64, want verbs.WCStatus) {
	n.t.Helper()
	wc := n.completion()
	require.Equal(n.t, want, wc.Status, "of work request %d: %v", wc.ID, wc.Status)
	require.Equal(n.t, id, wc.ID)
}

// idle checks that the CQ is empty.
func (n *node) idle() {
	n.t.Helper()
	require.Zero(n.t, n.cq.Poll(n.wcs[:]), "completion %+v", n.wcs[0])
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i*7)
	}
}
