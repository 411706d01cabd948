package softhca

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/xrcdomain"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// A siege is a device whose QPs are connected to two hostile peers. The peers send packets according to
// a script, while work requests are posted and complete. After each step every byte of the memory is
// checked:
//
//	cells    buffers of work requests: they change only while the work request is posted, and
//	         memory between them never changes
//	window   memory that peers may write to
//	rest     never changes, also the memory of sends and that with local access only
//
// A QP that is connected to itself must still work.
type siege struct {
	t     testing.TB
	h     *hca
	ctx   *verbs.Context
	pd    *verbs.PD
	peers [2]*hostilePeer
	ahs   [2]*verbs.AH

	mem, shadow []byte
	own         *verbs.MR // all of mem, without remote access
	window      *verbs.MR
	readOnly    *verbs.MR
	bulk        *verbs.MR
	cells       [cellCount]cell

	selfQP *verbs.QP // connected to itself
	selfCQ *verbs.CQ

	// For one script.
	cq      *verbs.CQ
	srq     *verbs.SRQ
	xsrq    *verbs.SRQ // of XRC
	domain  *verbs.XRCD
	name    verbs.XRCDInitAttr // of the domain
	qps     [6]target          // the last one is an XRC target
	posts   []post
	nextID  uint64
	pattern byte
	stalled bool // the peers do not consume packets of the device
	wcs     [64]verbs.WC
}

const (
	cellCount  = 24
	cellLen    = 128
	cellStride = cellLen + 64

	windowOff   = cellCount*cellStride + 256
	windowLen   = 1024
	readOnlyOff = windowOff + windowLen + 256
	readOnlyLen = 256
	sourceOff   = readOnlyOff + readOnlyLen + 256
	sourceLen   = cellLen
	siegeLen    = sourceOff + sourceLen + 256
	bulkLen     = 1 << 16

	poison    = 0xa5 // no payload of a peer contains it
	foreign   = 0x4700
	siegeQKey = 0x1234
	siegePSN  = 0xfffffe // wraps soon
)

// cell is the buffer of one work request.
type cell struct {
	open bool
	want int // bytes of a read; 0 for a receive
}

func (c *cell) span(i int) (from, to int) { return i * cellStride, i*cellStride + cellLen }

// Indexes of the SRQs, which are used like the indexes of QPs.
const (
	sharedQueue = -1
	xrcQueues   = -2
)

// xrcTarget is the index of the XRC target.
const xrcTarget = 5

// target is a QP that is connected to a peer.
type target struct {
	v      *verbs.QP
	q      *queuePair
	peer   int
	remote uint32 // QPN of the peer
	shared bool   // receives come from the SRQ
	sent   int    // bytes of the response to a read sent so far
}

// post is a work request that has not completed.
type post struct {
	id   uint64
	qp   int // or sharedQueue, xrcQueues
	recv bool
	cell int // -1: none
}

func newSiege(t testing.TB) *siege {
	s := &siege{t: t, name: verbs.XRCDInitAttr{FD: verbs.PrivateXRCD}}
	dev := verbs.NewDevice("siege", func() (verbs.Provider, error) {
		s.h = openUndriven(t)
		return provider.New(s.h, mlx5.Config{SingleThreaded: true})
	})
	var err error
	s.ctx, err = dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.ctx.Close()) })
	s.pd, err = s.ctx.AllocPD()
	require.NoError(t, err)
	s.register()
	for i := range s.peers {
		s.peers[i] = newHostilePeer(t, s.h, byte(i+1))
		s.ahs[i], err = s.pd.CreateAH(verbs.AHAttr{DGID: s.peers[i].gid, Global: true, Port: 1})
		require.NoError(t, err)
	}
	s.selfCQ, err = s.ctx.CreateCQ(verbs.CQInitAttr{Depth: 16})
	require.NoError(t, err)
	s.selfQP = s.newQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: s.selfCQ, RecvCQ: s.selfCQ})
	s.connect(s.selfQP, s.h.gid, s.selfQP.Number())
	t.Cleanup(s.close)
	return s
}

// newSharedSiege is newSiege with an XRC domain that other devices can join.
func newSharedSiege(t testing.TB) *siege {
	s := newSiege(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "domain"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	s.name = verbs.XRCDInitAttr{FD: int(f.Fd()), Flags: os.O_CREATE}
	key, held, err := xrcdomain.Hold(s.name.FD)
	require.NoError(t, err)
	n, err := s.h.joinDomain(&xrcDomain{key: key, inode: held}, s.name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.h.CloseXRCD(n)) })
	return s
}

func (s *siege) register() {
	reg := func(b []byte, access verbs.Access) *verbs.MR {
		mr, err := s.pd.RegMR(b, access)
		require.NoError(s.t, err)
		return mr
	}
	s.mem = make([]byte, siegeLen)
	for i := range s.mem {
		s.mem[i] = poison
	}
	s.shadow = bytes.Clone(s.mem)
	s.own = reg(s.mem, verbs.AccessLocalWrite)
	s.window = reg(s.mem[windowOff:windowOff+windowLen], verbs.AccessLocalWrite|allRemote)
	s.readOnly = reg(s.mem[readOnlyOff:readOnlyOff+readOnlyLen], verbs.AccessRemoteRead)
	s.bulk = reg(make([]byte, bulkLen), 0)
}

func (s *siege) close() {
	for _, c := range []io.Closer{s.selfQP, s.selfCQ, s.ahs[0], s.ahs[1], s.own, s.window, s.readOnly, s.bulk, s.pd} {
		require.NoError(s.t, c.Close())
	}
}

func (s *siege) newQP(attr verbs.QPInitAttr) *verbs.QP {
	attr.Cap = verbs.QPCap{MaxSendWR: 16, MaxSendSGE: 2, MaxInline: 60}
	if attr.SRQ == nil {
		attr.Cap.MaxRecvWR, attr.Cap.MaxRecvSGE = 4, 2
	}
	qp, err := s.pd.CreateQP(attr)
	require.NoError(s.t, err)
	return qp
}

// connect moves a QP from RESET to RTS, after the QPs of a link that was taken down have failed.
func (s *siege) connect(qp *verbs.QP, gid verbs.GID, dest uint32) {
	s.h.dials.Wait()
	modify := func(a verbs.QPAttr, m verbs.QPAttrMask) {
		require.NoError(s.t, qp.Modify(a, m|verbs.QPMaskState))
	}
	init := verbs.QPMaskPort | verbs.QPMaskPKeyIndex
	if qp.Type() == verbs.QPTypeUD {
		modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: siegeQKey}, init|verbs.QPMaskQKey)
		modify(verbs.QPAttr{State: verbs.QPStateRTR}, 0)
		modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPMaskSQPSN)
		return
	}
	modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, AccessFlags: allRemote}, init|verbs.QPMaskAccessFlags)
	rtr := verbs.QPMaskAV | verbs.QPMaskPathMTU | verbs.QPMaskDestQPN | verbs.QPMaskRQPSN
	if qp.Type() != verbs.QPTypeXRCSend {
		rtr |= verbs.QPMaskMaxDestRD | verbs.QPMaskMinRNRTimer
	}
	modify(verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU256, DestQPN: dest, RQPSN: siegePSN, MaxDestRD: 4,
		MinRNRTimer: 1, AH: verbs.AHAttr{DGID: gid, Global: true, Port: 1}}, rtr)
	if qp.Type() == verbs.QPTypeXRCRecv {
		modify(verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: siegePSN, Timeout: 14}, verbs.QPMaskSQPSN|verbs.QPMaskTimeout)
		return
	}
	modify(verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: siegePSN, MaxRDAtomic: 4, Timeout: 14, RetryCnt: 7, RNRRetry: 3},
		verbs.QPMaskSQPSN|verbs.QPMaskMaxRDAtomic|verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry)
}

// begin creates the queues for one script.
func (s *siege) begin(t testing.TB) {
	s.t = t
	var err error
	s.cq, err = s.ctx.CreateCQ(verbs.CQInitAttr{Depth: 250, SingleThreaded: true})
	require.NoError(t, err)
	s.srq, err = s.pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 6, MaxSGE: 2})
	require.NoError(t, err)
	rc, ud := verbs.QPTypeRC, verbs.QPTypeUD
	for i, c := range []struct {
		typ    verbs.QPType
		peer   int
		shared bool
	}{{rc, 0, false}, {rc, 0, true}, {rc, 1, true}, {ud, 0, false}, {ud, 1, true}} {
		attr := verbs.QPInitAttr{Type: c.typ, SendCQ: s.cq, RecvCQ: s.cq}
		if c.shared {
			attr.SRQ = s.srq
		}
		qp := s.newQP(attr)
		s.qps[i] = target{v: qp, q: s.h.qps.find(qp.Number()), peer: c.peer, remote: foreign + uint32(i), shared: c.shared}
		s.peers[c.peer].accept(s.qps[i].remote, qp.Number(), s.qps[i].q.pdn, foreign)
		s.connect(qp, s.peers[c.peer].gid, s.qps[i].remote)
	}
	s.beginXRC()
	s.posts, s.nextID, s.pattern, s.stalled = s.posts[:0], 0, 0, false
	for _, q := range []int{0, 0, sharedQueue, sharedQueue, sharedQueue, 3, 3, xrcQueues, xrcQueues, xrcQueues} {
		s.postRecv(q)
	}
}

// beginXRC creates the XRC target, which is connected to peer 0, and its SRQ.
func (s *siege) beginXRC() {
	var err error
	s.domain, err = s.ctx.OpenXRCD(s.name)
	require.NoError(s.t, err)
	s.xsrq, err = s.pd.CreateSRQ(verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, XRCD: s.domain, CQ: s.cq, MaxWR: 6, MaxSGE: 2})
	require.NoError(s.t, err)
	qp, err := s.domain.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
	require.NoError(s.t, err)
	q := s.h.qps.find(qp.Number())
	if q == nil {
		q = s.h.targets.find(qp.Number(), func(*queuePair) bool { return true })
	}
	s.qps[xrcTarget] = target{v: qp, q: q, remote: foreign + xrcTarget, shared: true}
	s.connect(qp, s.peers[0].gid, foreign+xrcTarget)
}

// finish checks that the device still works and that all work requests complete.
func (s *siege) finish() {
	s.settle()
	s.checkSelf()
	for i := range s.qps {
		require.NoError(s.t, s.qps[i].v.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState))
	}
	s.h.dials.Wait() // flushes receives that the claim words have skipped
	s.settle()
	for _, p := range s.posts {
		if p.qp >= 0 {
			s.t.Fatalf("work request %#x of QP %d never completed", p.id, p.qp)
		}
	}
	for _, q := range []int{sharedQueue, xrcQueues} {
		if n, left := s.outstanding(q), s.available(q); n != left {
			s.t.Fatalf("%d entries of SRQ %d have not completed, %d can be consumed", n, q, left)
		}
	}
}

// end destroys the queues, and restores the links.
func (s *siege) end() {
	for i := range s.qps {
		require.NoError(s.t, s.qps[i].v.Close())
	}
	for _, c := range []io.Closer{s.srq, s.xsrq, s.domain, s.cq} {
		require.NoError(s.t, c.Close())
	}
	for i := range s.cells {
		s.cells[i].open = false
	}
	copy(s.shadow, s.mem)
	for _, p := range s.peers {
		p.detach()
		p.attach()
	}
}

// checkSelf sends a message over the QP that is connected to itself.
func (s *siege) checkSelf() {
	from, to := s.bulk.SGE(0, 16), s.own.SGE(siegeLen-16, 16)
	_, err := s.selfQP.PostRecv([]verbs.RecvWR{{ID: 1, SGList: []verbs.SGE{to}}})
	require.NoError(s.t, err)
	_, err = s.selfQP.PostSend([]verbs.SendWR{{ID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{from}}})
	require.NoError(s.t, err)
	driveUntilIdle(s.h)
	n := s.selfCQ.Poll(s.wcs[:])
	if n != 2 || s.wcs[0].Status != verbs.WCSuccess || s.wcs[1].Status != verbs.WCSuccess {
		s.t.Fatalf("the QP that is connected to itself: %d completions: %+v", n, s.wcs[:max(n, 0)])
	}
	tail := s.mem[siegeLen-16:]
	if !bytes.Equal(tail, make([]byte, 16)) {
		s.t.Fatalf("the QP that is connected to itself received % x", tail)
	}
	for i := range tail {
		tail[i] = poison
	}
}

// settle drives the device until it has no more work, and checks completions and memory.
func (s *siege) settle() {
	driveUntilIdle(s.h)
	s.checkMemory()
	for n := s.cq.Poll(s.wcs[:]); n != 0; n = s.cq.Poll(s.wcs[:]) {
		if n < 0 {
			s.t.Fatal("the CQ has overrun")
		}
		for i := range s.wcs[:n] {
			s.completed(&s.wcs[i])
		}
	}
	s.checkMemory()
	for q := xrcQueues; q < len(s.qps); q++ {
		if n, left := s.outstanding(q), s.available(q); n < left {
			s.t.Fatalf("receives of queue %d: %d have not completed, but %d can be consumed", q, n, left)
		}
	}
	if !s.stalled {
		for _, p := range s.peers {
			p.drain(func(*ring.Packet) {})
		}
	}
}

// checkMemory compares all memory that must not change with its shadow.
func (s *siege) checkMemory() {
	update := func(from, to int) { copy(s.shadow[from:to], s.mem[from:to]) }
	update(windowOff, windowOff+windowLen)
	for i := range s.cells {
		if c := &s.cells[i]; c.open {
			update(c.span(i))
		}
	}
	if bytes.Equal(s.mem, s.shadow) {
		return
	}
	for i, b := range s.mem {
		if b != s.shadow[i] {
			s.t.Fatalf("byte %d of cell %d (at %d) was changed from %#x to %#x", i%cellStride, i/cellStride, i, s.shadow[i], b)
		}
	}
}

// completed checks a completion against the posted work request.
func (s *siege) completed(wc *verbs.WC) {
	i := slices.IndexFunc(s.posts, func(p post) bool { return p.id == wc.ID })
	if i < 0 {
		s.t.Fatalf("completion of a work request that is not outstanding: %+v", *wc)
	}
	p := s.posts[i]
	if p.qp >= 0 {
		first := slices.IndexFunc(s.posts, func(o post) bool { return o.qp == p.qp && o.recv == p.recv })
		if first != i || s.qps[p.qp].v.Number() != wc.QPN {
			s.t.Fatalf("work request %#x of QP %d completed before %#x: %+v", p.id, p.qp, s.posts[first].id, *wc)
		}
	}
	s.posts = slices.Delete(s.posts, i, i+1)
	if p.cell < 0 {
		return
	}
	c := &s.cells[p.cell]
	c.open = false
	if wc.Status == verbs.WCSuccess {
		s.checkContents(p, wc)
	}
}

// checkContents checks that exactly the bytes of the completion have arrived. This does not hold for a
// receive of the XRC SRQ, as a peer may report that it has filled it without doing so.
func (s *siege) checkContents(p post, wc *verbs.WC) {
	i, n := p.cell, int(wc.ByteLen)
	if want := s.cells[i].want; want != 0 && n != want {
		s.t.Fatalf("%d bytes of %d were read: %+v", n, want, *wc)
	}
	if wc.Opcode == verbs.WCRecvRDMAWithImm {
		n = 0
	}
	from, to := s.cells[i].span(i)
	b := s.mem[from:to]
	if n > len(b) {
		s.t.Fatalf("%d bytes in a buffer of %d: %+v", n, len(b), *wc)
	}
	got := b[:n]
	if s.qps[3].v.Number() == wc.QPN || s.qps[4].v.Number() == wc.QPN {
		if n < grhLen {
			s.t.Fatalf("a datagram of %d bytes", n)
		}
		got = got[grhLen:]
	}
	if at := bytes.IndexByte(got, poison); at >= 0 && p.qp != xrcQueues {
		s.t.Fatalf("byte %d of %d has not arrived: %+v", at, len(got), *wc)
	}
	for at, v := range b[n:] {
		if v != poison {
			s.t.Fatalf("%d bytes have arrived, and byte %d is %#x: %+v", n, n+at, v, *wc)
		}
	}
}

// outstanding returns the number of receives of a QP or SRQ that have not completed.
func (s *siege) outstanding(q int) (n int) {
	for i := range s.posts {
		if s.posts[i].recv && s.posts[i].qp == q {
			n++
		}
	}
	return n
}

// available returns the number of receives of a QP or SRQ that the device can consume.
func (s *siege) available(q int) int {
	var rq *recvQueue
	switch {
	case q == xrcQueues:
		rq = s.h.xrcSRQs.find(s.xsrq.Number())
	case q == sharedQueue:
		rq = s.h.srqs.get(s.srq.Number())
	case s.qps[q].shared:
		return 0
	default:
		rq = s.qps[q].q.rq
	}
	return int(rq.dbrec.Recv() - rq.consumed)
}

// open reserves a free cell and fills it with poison; -1 if there is none.
func (s *siege) open(want int) int {
	for i := range s.cells {
		if c := &s.cells[i]; !c.open {
			c.open, c.want = true, want
			from, to := c.span(i)
			for j := from; j < to; j++ {
				s.mem[j] = poison
			}
			return i
		}
	}
	return -1
}

func (s *siege) cellSGE(i, n int) []verbs.SGE {
	from, _ := s.cells[i].span(i)
	return []verbs.SGE{s.own.SGE(from, n/2), s.own.SGE(from+n/2, n-n/2)}
}

// postRecv posts a receive to a QP, or to an SRQ.
func (s *siege) postRecv(q int) {
	i := s.open(0)
	if i < 0 {
		return
	}
	s.nextID++
	wr := []verbs.RecvWR{{ID: s.nextID, SGList: s.cellSGE(i, cellLen)}}
	s.posts = append(s.posts, post{id: s.nextID, qp: q, recv: true, cell: i})
	poster := s.srq.PostRecv
	switch {
	case q == xrcQueues:
		poster = s.xsrq.PostRecv
	case q >= 0:
		poster = s.qps[q].v.PostRecv
	}
	if n, _ := poster(wr); n == 0 {
		s.posts = s.posts[:len(s.posts)-1]
		s.closeCell(i)
	}
}

// closeCell frees a cell that was not posted.
func (s *siege) closeCell(i int) {
	from, to := s.cells[i].span(i)
	copy(s.shadow[from:to], s.mem[from:to])
	s.cells[i].open = false
}

// postSend posts a signaled work request of a type.
func (s *siege) postSend(q int, kind, size byte) {
	t := &s.qps[q]
	n := int(size)%cellLen + 1
	s.nextID++
	wr := verbs.SendWR{ID: s.nextID, Flags: verbs.SendSignaled, RemoteAddr: 1 << 12, RKey: foreign,
		SGList: []verbs.SGE{s.own.SGE(sourceOff, n)}, CompareAdd: 1, Swap: 2}
	target := -1
	switch kind % 9 {
	case 0:
		wr.Opcode = verbs.OpSend
	case 1:
		wr.Opcode = verbs.OpSendWithImm
	case 2:
		wr.Opcode, wr.Flags = verbs.OpSend, wr.Flags|verbs.SendInline
		wr.Inline, wr.SGList = s.own.Bytes()[sourceOff:][:min(n, 60)], nil
	case 3:
		wr.Opcode, target = verbs.OpRDMARead, n
	case 4:
		wr.Opcode, target = verbs.OpAtomicFetchAdd, prm.AtomicOperandLen
	case 5:
		wr.Opcode, target = verbs.OpAtomicCmpSwap, prm.AtomicOperandLen
	case 6:
		wr.Opcode = verbs.OpRDMAWrite
	case 7:
		wr.Opcode = verbs.OpRDMAWriteWithImm
	case 8: // many packets
		wr.Opcode, wr.SGList = verbs.OpSend, []verbs.SGE{s.bulk.SGE(0, bulkLen)}
	}
	if t.v.Type() == verbs.QPTypeUD {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = s.ahs[t.peer], t.remote, siegeQKey
	}
	p := post{id: wr.ID, qp: q, cell: -1}
	if target > 0 {
		if p.cell = s.open(target); p.cell < 0 {
			return
		}
		wr.SGList = s.cellSGE(p.cell, target)
		if target == prm.AtomicOperandLen {
			from, _ := s.cells[p.cell].span(p.cell)
			wr.SGList = []verbs.SGE{s.own.SGE(from, target)}
		}
	}
	s.posts = append(s.posts, p)
	if k, _ := t.v.PostSend([]verbs.SendWR{wr}); k == 0 {
		s.posts = s.posts[:len(s.posts)-1]
		if p.cell >= 0 {
			s.closeCell(p.cell)
		}
	}
}

// reconnect resets a QP and connects it again: posted work requests get no completions. Entries of the
// SRQ remain posted.
func (s *siege) reconnect(q int) {
	t := &s.qps[q]
	require.NoError(s.t, t.v.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
	s.checkMemory()
	for _, p := range s.posts {
		if p.qp == q && p.cell >= 0 {
			s.cells[p.cell].open = false
		}
	}
	s.posts = slices.DeleteFunc(s.posts, func(p post) bool { return p.qp == q })
	s.connect(t.v, s.peers[t.peer].gid, t.remote)
}

// payload returns n bytes, none of them poison.
func (s *siege) payload(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		s.pattern++
		if s.pattern == poison {
			s.pattern++
		}
		b[i] = s.pattern
	}
	return b
}

func (t target) String() string { return fmt.Sprintf("QP %#x", t.v.Number()) }
