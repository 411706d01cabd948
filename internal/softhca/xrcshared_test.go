package softhca_test

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// xrcMembers returns an initiator that is connected to a target of the first of n members, each of which is
// a separate device.
func xrcMembers(t *testing.T, n int, cfg softhca.Config, l link) (i *node, xs []*xrcTarget) {
	t.Helper()
	i = openNode(t, cfg).newInitiator()
	attr := sharedDomain(t)
	for range n {
		xs = append(xs, openNode(t, cfg).enterDomain(attr))
	}
	target := xs[0].newTarget()
	t.Cleanup(func() { require.NoError(t, target.Close()) })
	xs[0].target = target
	connectXRC(i, xs[0], target, l)
	return i, xs
}

// mixedLen is the length of each of the mixedCount receives of mixedReceives.
const mixedLen, mixedCount = bufLen / 16, 16

// mixedReceives posts receives into memory of the device and into private memory alternately, and returns
// their memory.
func (x *xrcTarget) mixedReceives(s *verbs.SRQ) (at [mixedCount][]byte) {
	x.t.Helper()
	private := make([]byte, mixedCount/2*mixedLen)
	mr, err := x.pd.RegMR(private, verbs.AccessLocalWrite)
	require.NoError(x.t, err)
	x.t.Cleanup(func() { require.NoError(x.t, mr.Close()) })
	for id := range mixedCount {
		off := id / 2 * mixedLen
		if id%2 == 0 {
			x.post(s, uint64(id), off, mixedLen)
			at[id] = x.buf.Bytes()[off:]
			continue
		}
		_, err = s.PostRecv([]verbs.RecvWR{{ID: uint64(id), SGList: []verbs.SGE{mr.SGE(off, mixedLen)}}})
		require.NoError(x.t, err)
		at[id] = private[off:]
	}
	return at
}

// A member receives the messages to its SRQ in the order of the initiator, whether the initiator delivers
// them or they go through the ring, and also if the initiator switches between members.
func TestSharedXRC_Members(t *testing.T) {
	for name, cfg := range map[string]softhca.Config{"mapped": {}, "ring": {NoCMA: true}} {
		t.Run(name, func(t *testing.T) {
			i, xs := xrcMembers(t, 3, cfg, defaultLink)
			queues := make([]*verbs.SRQ, len(xs))
			receives := make([][mixedCount][]byte, len(xs))
			for k, x := range xs {
				queues[k] = x.newSRQ()
				receives[k] = x.mixedReceives(queues[k])
			}
			require.NotEqual(t, queues[0].Number(), queues[1].Number())
			fill(i.buf.Bytes(), 9)
			got := make([]int, len(xs))
			for k, to := range []int{1, 0, 2, 2, 1, 1, 0, 2, 1, 0, 0, 0, 1, 2, 1, 1} {
				length := (k * 7001) % mixedLen
				i.sendSRQ(queues[to].Number(), uint64(k), length)
				wc := xs[to].completion()
				require.Equal(t, verbs.WCSuccess, wc.Status)
				require.Equal(t, []uint32{uint32(k), uint32(length), i.qp.Number(), xs[0].target.Number()},
					[]uint32{wc.Imm, wc.ByteLen, wc.SrcQP, wc.QPN})
				require.Equal(t, uint64(got[to]), wc.ID)
				require.Equal(t, i.buf.Bytes()[:length], receives[to][got[to]][:length])
				got[to]++
				i.succeed(uint64(k))
			}
		})
	}
}

// In a stream to several members, posted at once, the messages of each member arrive in order.
func TestSharedXRC_Stream(t *testing.T) {
	for name, cfg := range map[string]softhca.Config{"mapped": {}, "ring": {NoCMA: true}} {
		t.Run(name, func(t *testing.T) {
			i, xs := xrcMembers(t, 2, cfg, defaultLink)
			const rounds = 20
			private := make([]byte, 4096)
			queues := make([]*verbs.SRQ, len(xs))
			for k, x := range xs {
				queues[k] = x.newSRQ()
				mr, err := x.pd.RegMR(private, verbs.AccessLocalWrite)
				require.NoError(t, err)
				defer func() { require.NoError(t, mr.Close()) }()
				for id := range rounds {
					_, err := queues[k].PostRecv([]verbs.RecvWR{{ID: uint64(id), SGList: []verbs.SGE{mr.SGE(0, 4096)}}})
					require.NoError(t, err)
				}
			}
			for k := range rounds {
				i.sendSRQ(queues[0].Number(), uint64(2*k), 100)
				i.sendSRQ(queues[1].Number(), uint64(2*k+1), 4096)
			}
			for k := range rounds {
				for at, x := range xs {
					wc := x.completion()
					require.Equal(t, verbs.WCSuccess, wc.Status)
					require.Equal(t, []uint64{uint64(k), uint64(2*k + at)}, []uint64{wc.ID, uint64(wc.Imm)})
				}
				i.succeed(uint64(2 * k))
				i.succeed(uint64(2*k + 1))
			}
		})
	}
}

// RDMA and atomics also name an SRQ: one of the member with the memory, and of its PD.
func TestSharedXRC_OneSided(t *testing.T) {
	for name, cfg := range map[string]softhca.Config{"mapped": {}, "ring": {NoCMA: true}} {
		t.Run(name, func(t *testing.T) {
			i, xs := xrcMembers(t, 3, cfg, defaultLink)
			for k, x := range xs {
				s := x.newSRQ()
				private := make([]byte, 8192)
				mr, err := x.pd.RegMR(private, anyone)
				require.NoError(t, err)
				defer func() { require.NoError(t, mr.Close()) }()
				for _, to := range []struct {
					addr uint64
					key  uint32
					mem  []byte
				}{{x.mr.Addr(), x.mr.RKey(), x.buf.Bytes()}, {mr.Addr(), mr.RKey(), private}} {
					fill(i.buf.Bytes(), byte(k+1))
					i.send(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SRQN: s.Number(),
						SGList: []verbs.SGE{i.mr.SGE(0, 8192)}, RemoteAddr: to.addr, RKey: to.key})
					i.succeed(1)
					require.Equal(t, i.buf.Bytes()[:8192], to.mem[:8192])
					i.send(verbs.SendWR{ID: 2, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, SRQN: s.Number(),
						CompareAdd: 3, SGList: []verbs.SGE{i.mr.SGE(8192, 8)}, RemoteAddr: to.addr, RKey: to.key})
					i.succeed(2)
					i.send(verbs.SendWR{ID: 3, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SRQN: s.Number(),
						SGList: []verbs.SGE{i.mr.SGE(16384, 8192)}, RemoteAddr: to.addr, RKey: to.key})
					i.succeed(3)
					require.Equal(t, to.mem[:8192], i.buf.Bytes()[16384:16384+8192])
					require.Equal(t, i.buf.Bytes()[0]+3, to.mem[0])
				}
			}
			// The memory of one member with the SRQ of another: the key is not of that PD.
			s := xs[1].newSRQ()
			i.send(verbs.SendWR{ID: 4, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SRQN: s.Number(),
				SGList: []verbs.SGE{i.mr.SGE(0, 8)}, RemoteAddr: xs[0].mr.Addr(), RKey: xs[0].mr.RKey() ^ 1})
			i.fail(4, verbs.WCRemAccessErr)
		})
	}
}

// The target exists while a device of the domain refers to it, also without its creator; all devices see its
// state.
func TestSharedXRC_TargetOutlivesCreator(t *testing.T) {
	i, attr := openNode(t, softhca.Config{}).newInitiator(), sharedDomain(t)
	creator, x, y := openNode(t, softhca.Config{}).enterDomain(attr), openNode(t, softhca.Config{}).enterDomain(attr),
		openNode(t, softhca.Config{}).enterDomain(attr)
	target := creator.newTarget()
	mine, err := x.domain.OpenQP(target.Number())
	require.NoError(t, err)
	again, err := x.domain.OpenQP(target.Number())
	require.NoError(t, err)
	connectXRC(i, creator, target, defaultLink)
	assert.Equal(t, verbs.QPStateRTS, mine.State())
	s := y.newSRQ()
	y.post(s, 1, 0, 100)
	y.post(s, 2, 0, 100)
	require.NoError(t, target.Close())
	require.NoError(t, mine.Close())
	i.sendSRQ(s.Number(), 1, 10)
	i.succeed(1)
	require.Equal(t, uint64(1), y.completion().ID)
	require.NoError(t, again.Close())
	_, err = y.domain.OpenQP(target.Number())
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	i.sendSRQ(s.Number(), 2, 10)
	i.fail(2, verbs.WCRetryExcErr)
	assert.Equal(t, verbs.VendorPeerClosed, i.wcs[0].VendorErr)
}

// A device of the domain can connect a target that another one has created; the initiator can use the GID of
// any device that has opened the target.
func TestSharedXRC_ConnectedByAnotherMember(t *testing.T) {
	i, attr := openNode(t, softhca.Config{}).newInitiator(), sharedDomain(t)
	creator, x := openNode(t, softhca.Config{}).enterDomain(attr), openNode(t, softhca.Config{}).enterDomain(attr)
	creator.target = creator.newTarget()
	defer func() { require.NoError(t, creator.target.Close()) }()
	x.openTarget(creator.target.Number())
	for round := range uint64(3) { // also after RESET
		connectXRC(i, x, x.target, defaultLink)
		for _, m := range []*xrcTarget{x, creator} {
			s := m.newSRQ()
			m.post(s, round, 0, 100)
			i.sendSRQ(s.Number(), 1, 10)
			i.succeed(1)
			require.Equal(t, round, m.completion().ID)
		}
		require.NoError(t, i.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
		require.NoError(t, x.target.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
		require.Equal(t, verbs.QPStateReset, creator.target.State())
	}
}

// A fault at one member fails the target for all members and the initiator.
func TestSharedXRC_Fault(t *testing.T) {
	i, xs := xrcMembers(t, 2, softhca.Config{}, defaultLink)
	first, second := xs[0].newSRQ(), xs[1].newSRQ()
	xs[0].post(first, 1, 0, 100)
	xs[1].post(second, 2, 0, 10)
	i.sendSRQ(first.Number(), 1, 100)
	i.succeed(1)
	i.sendSRQ(second.Number(), 2, 100)
	i.fail(2, verbs.WCRemInvReqErr)
	assert.Equal(t, verbs.WCLocLenErr, xs[1].completion().Status)
	assert.Equal(t, verbs.QPStateErr, xs[0].target.State())
	xs[0].awaitEvent(xs[0].target, verbs.EventQPReqErr)
}

// awaitEvent waits for an event of a QP.
func (n *node) awaitEvent(qp *verbs.QP, want verbs.EventType) {
	n.t.Helper()
	ev, err := n.ctx.NextAsyncEvent()
	require.NoError(n.t, err)
	require.Equal(n.t, want, ev.Type)
	require.Same(n.t, qp, ev.QP)
}

// All devices that refer to a target get one event for its fault, whichever device has detected it, and
// another one for a fault after it was connected again.
func TestSharedXRC_ReportsFaultToAllMembers(t *testing.T) {
	l := defaultLink
	i, xs := xrcMembers(t, 4, softhca.Config{}, l)
	for _, x := range xs[1:3] {
		x.openTarget(xs[0].target.Number())
	}
	for round := range uint64(3) {
		good := xs[3].newSRQ()
		xs[3].post(good, round, 0, 100)
		i.sendSRQ(good.Number(), 1, 10)
		i.succeed(1)
		xs[3].succeed(round)
		i.sendSRQ(0x123456, 2, 10)
		i.fail(2, verbs.WCRemInvReqErr)
		assert.Zero(t, i.wcs[0].VendorErr)
		for _, x := range xs[:3] {
			x.awaitEvent(x.target, verbs.EventQPReqErr)
			assert.Equal(t, verbs.QPStateErr, x.target.State())
		}
		creator := xs[round%3]
		require.NoError(t, i.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
		require.NoError(t, creator.target.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
		l.conn++ // members may get the report only now: it does not concern the new connection
		connectXRC(i, creator, creator.target, l)
	}
}

// When a member leaves, the initiators that may have sent to it get an event, and still work.
func TestSharedXRC_ReportsUnreachableMember(t *testing.T) {
	attr := sharedDomain(t)
	x := openNode(t, softhca.Config{}).enterDomain(attr)
	x.target = x.newTarget()
	defer func() { require.NoError(t, x.target.Close()) }()
	s := x.newSRQ()
	leaver, gone, leave := closingMember(t, attr)
	from := openNode(t, softhca.Config{}).newInitiator()
	connectXRC(from, x, x.target, defaultLink)
	leaver.post(gone, 1, 0, 100)
	from.sendSRQ(gone.Number(), 1, 10)
	from.succeed(1)
	leaver.succeed(1)
	gid := leaver.gid
	leave()
	ev, err := from.ctx.NextAsyncEvent()
	require.NoError(t, err)
	assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventUnreachable, QP: from.qp, GID: gid}, ev)
	x.post(s, 2, 0, 100)
	from.sendSRQ(s.Number(), 2, 10)
	from.succeed(2)
	x.succeed(2)
}

// Invalid SRQ numbers: of no queue, of a closed one, of another domain, of a device that has left. Each
// fails the send, and the target goes to ERR.
func TestSharedXRC_RejectsUnknownNumber(t *testing.T) {
	for name, number := range map[string]func(t *testing.T, m *xrcTarget) uint32{
		"none": func(*testing.T, *xrcTarget) uint32 { return 0x123456 },
		"closed": func(t *testing.T, m *xrcTarget) uint32 {
			s := m.openSRQ()
			require.NoError(t, s.Close())
			return s.Number()
		},
		"another domain": func(t *testing.T, m *xrcTarget) uint32 {
			other := m.enterDomain(sharedDomain(t))
			return other.newSRQ().Number()
		},
		"private": func(t *testing.T, m *xrcTarget) uint32 {
			return m.enterDomain(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD}).newSRQ().Number()
		},
	} {
		t.Run(name, func(t *testing.T) {
			i, xs := xrcMembers(t, 2, softhca.Config{}, defaultLink)
			good := xs[1].newSRQ()
			xs[1].post(good, 1, 0, 100)
			i.sendSRQ(good.Number(), 1, 10)
			i.succeed(1)
			xs[1].succeed(1)
			i.sendSRQ(number(t, xs[1]), 2, 10)
			i.fail(2, verbs.WCRemInvReqErr)
			await(t, xs[0].node, xs[1].node, func() bool { return xs[0].target.State() == verbs.QPStateErr })
		})
	}
}

// closingMember returns a device of a domain with an SRQ, and a function that makes it leave.
func closingMember(t *testing.T, attr verbs.XRCDInitAttr) (x *xrcTarget, s *verbs.SRQ, leave func()) {
	t.Helper()
	var undo []func() error
	do := func(f func() error) { undo = append([]func() error{f}, undo...) }
	dev, err := softhca.NewDevice(softhca.Config{ArenaLen: 64 << 20})
	require.NoError(t, err)
	n := &node{t: t}
	n.ctx, err = dev.Open()
	require.NoError(t, err)
	do(n.ctx.Close)
	n.pd, err = n.ctx.AllocPD()
	require.NoError(t, err)
	do(n.pd.Close)
	n.buf, err = n.ctx.AllocBuffer(bufLen)
	require.NoError(t, err)
	do(n.buf.Close)
	n.mr, err = n.pd.RegMR(n.buf.Bytes(), anyone)
	require.NoError(t, err)
	do(n.mr.Close)
	n.cq, err = n.ctx.CreateCQ(verbs.CQInitAttr{Depth: depth})
	require.NoError(t, err)
	do(n.cq.Close)
	n.gid, err = n.ctx.QueryGID(1, 0)
	require.NoError(t, err)
	x = &xrcTarget{node: n}
	x.domain, err = n.ctx.OpenXRCD(attr)
	require.NoError(t, err)
	do(x.domain.Close)
	s = x.openSRQ()
	do(s.Close)
	return x, s, func() {
		for _, f := range undo {
			require.NoError(t, f())
		}
	}
}

// When a device leaves, the others are still reached, also if it has created the target; its SRQ numbers
// become invalid.
func TestSharedXRC_MemberCloses(t *testing.T) {
	i, attr := openNode(t, softhca.Config{}).newInitiator(), sharedDomain(t)
	stays := openNode(t, softhca.Config{}).enterDomain(attr)
	leaver, gone, leave := closingMember(t, attr)
	target := leaver.newTarget()
	stays.openTarget(target.Number())
	connectXRC(i, leaver, target, defaultLink)
	s := stays.newSRQ()
	leaver.post(gone, 1, 0, 100)
	i.sendSRQ(gone.Number(), 1, 10)
	i.succeed(1)
	require.Equal(t, uint64(1), leaver.completion().ID)
	require.NoError(t, target.Close())
	leave()
	for id := range uint64(3) {
		stays.post(s, id, 0, 100)
		i.sendSRQ(s.Number(), id, 10)
		i.succeed(id)
		require.Equal(t, id, stays.completion().ID)
	}
	i.sendSRQ(gone.Number(), 5, 10)
	i.fail(5, verbs.WCRemInvReqErr)
	assert.Zero(t, i.wcs[0].VendorErr)
	await(t, stays.node, stays.node, func() bool { return stays.target.State() == verbs.QPStateErr })
}

// If the member over which the initiator was connected, and which is the only one it has reached, has left, a
// fault is reported to a device to which it has sent nothing.
func TestSharedXRC_ReportsFaultAfterReachedMemberClosed(t *testing.T) {
	i, attr := openNode(t, softhca.Config{}).newInitiator(), sharedDomain(t)
	stays := openNode(t, softhca.Config{}).enterDomain(attr)
	leaver, gone, leave := closingMember(t, attr)
	target := leaver.newTarget()
	stays.openTarget(target.Number())
	connectXRC(i, leaver, target, defaultLink)
	leaver.post(gone, 1, 0, 100)
	i.sendSRQ(gone.Number(), 1, 10)
	i.succeed(1)
	leaver.succeed(1)
	require.NoError(t, target.Close())
	leave()
	i.sendSRQ(gone.Number(), 2, 10)
	i.fail(2, verbs.WCRemInvReqErr)
	await(t, i, stays.node, func() bool { return stays.target.State() == verbs.QPStateErr })
	stays.awaitEvent(stays.target, verbs.EventQPReqErr)
}

// When the last device that refers to the target leaves, the initiator fails without a post.
func TestSharedXRC_LastMemberCloses(t *testing.T) {
	i, attr := openNode(t, softhca.Config{}).newInitiator(), sharedDomain(t)
	stays := openNode(t, softhca.Config{}).enterDomain(attr)
	s := stays.newSRQ()
	leaver, _, leave := closingMember(t, attr)
	target := leaver.newTarget()
	connectXRC(i, leaver, target, defaultLink)
	stays.post(s, 1, 0, 100)
	i.sendSRQ(s.Number(), 1, 10)
	i.succeed(1)
	stays.succeed(1)
	require.NoError(t, target.Close())
	leave()
	await(t, i, stays.node, func() bool { return i.qp.State() == verbs.QPStateErr })
	ev, err := i.ctx.NextAsyncEvent()
	require.NoError(t, err)
	assert.Equal(t, verbs.EventPeerClosed, ev.Type)
}

// A message to a member without receives waits, and so do later ones to other members; with limited retries
// it fails.
func TestSharedXRC_RNR(t *testing.T) {
	i, xs := xrcMembers(t, 2, softhca.Config{}, defaultLink)
	first, second := xs[0].newSRQ(), xs[1].newSRQ()
	xs[0].post(first, 1, 0, 100)
	i.sendSRQ(second.Number(), 2, 10)
	i.sendSRQ(first.Number(), 1, 10)
	for range 1000 {
		i.idle()
	}
	xs[0].idle()
	xs[1].post(second, 2, 0, 100)
	i.succeed(2)
	i.succeed(1)
	require.Equal(t, uint64(1), xs[0].completion().ID)
	require.Equal(t, uint64(2), xs[1].completion().ID)

	j, ys := xrcMembers(t, 2, softhca.Config{}, link{access: anyone, timeout: 14, retry: 7, rnr: 2, minRNR: 1})
	j.sendSRQ(ys[1].newSRQ().Number(), 3, 10)
	j.fail(3, verbs.WCRNRRetryExcErr)
}

func TestSharedXRC_Open(t *testing.T) {
	attr := sharedDomain(t)
	for _, fabric := range []softhca.Fabric{softhca.FabricLoop, softhca.FabricShm} {
		a := openNode(t, softhca.Config{Fabric: fabric})
		open := func(flags int) (*verbs.XRCD, error) {
			return a.ctx.OpenXRCD(verbs.XRCDInitAttr{FD: attr.FD, Flags: flags})
		}
		_, err := open(0)
		require.ErrorIs(t, err, unix.EAGAIN)
		first, err := open(os.O_CREATE | os.O_EXCL)
		require.NoError(t, err)
		_, err = open(os.O_CREATE | os.O_EXCL)
		require.ErrorIs(t, err, unix.EEXIST)
		second, err := open(0)
		require.NoError(t, err)
		qp, err := first.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
		require.NoError(t, err)
		same, err := second.OpenQP(qp.Number())
		require.NoError(t, err)
		require.Equal(t, qp.Number(), same.Number())
		require.ErrorIs(t, first.Close(), ucs.ErrBusy)
		require.NoError(t, qp.Close())
		require.NoError(t, first.Close())
		third, err := open(0)
		require.NoError(t, err)
		_, err = third.OpenQP(0x800001)
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
		require.NoError(t, same.Close())
		require.NoError(t, second.Close())
		require.NoError(t, third.Close())
		_, err = open(0)
		require.ErrorIs(t, err, unix.EAGAIN)
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()); require.NoError(t, w.Close()) }()
	_, err = openNode(t, softhca.Config{}).ctx.OpenXRCD(verbs.XRCDInitAttr{FD: int(r.Fd()), Flags: os.O_CREATE})
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
}

// Two domains of one device, with targets that are connected to the same device.
func TestSharedXRC_TwoDomains(t *testing.T) {
	n := openNode(t, softhca.Config{})
	m := openNode(t, softhca.Config{})
	for k := range uint64(2) {
		attr := sharedDomain(t)
		i, x, y := n.newInitiator(), m.enterDomain(attr), openNode(t, softhca.Config{}).enterDomain(attr)
		x.target = x.newTarget()
		defer func() { require.NoError(t, x.target.Close()) }()
		connectXRC(i, x, x.target, defaultLink)
		for _, to := range []*xrcTarget{x, y} {
			s := to.newSRQ()
			to.post(s, k, 0, 100)
			i.sendSRQ(s.Number(), k, 10)
			i.succeed(k)
			require.Equal(t, k, to.completion().ID)
		}
	}
}

// A device that leaves the domain and joins again has other SRQ numbers, and receives messages to them; the
// former numbers are invalid.
func TestSharedXRC_Rejoin(t *testing.T) {
	for name, cfg := range map[string]softhca.Config{"mapped": {}, "ring": {NoCMA: true}} {
		t.Run(name, func(t *testing.T) {
			i, attr := openNode(t, cfg).newInitiator(), sharedDomain(t)
			x, n := openNode(t, cfg).enterDomain(attr), openNode(t, cfg)
			x.target = x.newTarget()
			defer func() { require.NoError(t, x.target.Close()) }()
			connectXRC(i, x, x.target, defaultLink)
			private := make([]byte, 4096)
			mr, err := n.pd.RegMR(private, verbs.AccessLocalWrite)
			require.NoError(t, err)
			defer func() { require.NoError(t, mr.Close()) }()
			var numbers []uint32
			for round := range uint64(3) {
				d, err := n.ctx.OpenXRCD(attr)
				require.NoError(t, err)
				s := (&xrcTarget{node: n, domain: d}).openSRQ()
				require.NotContains(t, numbers, s.Number())
				numbers = append(numbers, s.Number())
				for id := range round + 1 { // so that message numbers differ
					_, err = s.PostRecv([]verbs.RecvWR{{ID: id, SGList: []verbs.SGE{mr.SGE(0, 4096)}}})
					require.NoError(t, err)
					i.sendSRQ(s.Number(), id, 4096)
					i.succeed(id)
					require.Equal(t, id, n.succeed(id).ID)
				}
				require.NoError(t, s.Close())
				require.NoError(t, d.Close())
			}
			i.sendSRQ(numbers[0], 9, 10)
			i.fail(9, verbs.WCRemInvReqErr)
		})
	}
}

// The number of a target is reused after all other numbers of its entry. A member that has received messages
// over the former target, and none since, distinguishes the new one.
func TestSharedXRC_NumberIsReused(t *testing.T) {
	cfg := softhca.Config{NoCMA: true} // so that members have responders
	i, attr := openNode(t, cfg).newInitiator(), sharedDomain(t)
	x, y := openNode(t, cfg).enterDomain(attr), openNode(t, cfg).enterDomain(attr)
	private := make([]byte, 4096)
	mr, err := y.pd.RegMR(private, verbs.AccessLocalWrite)
	require.NoError(t, err)
	defer func() { require.NoError(t, mr.Close()) }()
	s := y.newSRQ()
	receive := func(id uint64, target *verbs.QP) {
		connectXRC(i, x, target, defaultLink)
		_, err := s.PostRecv([]verbs.RecvWR{{ID: id, SGList: []verbs.SGE{mr.SGE(0, 4096)}}})
		require.NoError(t, err)
		i.sendSRQ(s.Number(), id, 4096)
		i.succeed(id)
		y.succeed(id)
		require.NoError(t, i.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
	}
	target := x.newTarget()
	number, others := target.Number(), -1
	receive(1, target)
	for again := false; !again; again = target.Number() == number {
		require.NoError(t, target.Close())
		target = x.newTarget()
		others++
	}
	defer func() { require.NoError(t, target.Close()) }()
	require.Equal(t, 255, others)
	receive(2, target)
}

// The access flags that one member sets for the target hold for the memory of all members.
func TestSharedXRC_Access(t *testing.T) {
	for name, cfg := range map[string]softhca.Config{"mapped": {}, "ring": {NoCMA: true}} {
		t.Run(name, func(t *testing.T) {
			i, xs := xrcMembers(t, 2, cfg, defaultLink)
			s := xs[1].newSRQ()
			private := make([]byte, 64)
			mr, err := xs[1].pd.RegMR(private, anyone)
			require.NoError(t, err)
			defer func() { require.NoError(t, mr.Close()) }()
			write := verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SRQN: s.Number(),
				SGList: []verbs.SGE{i.mr.SGE(0, 64)}, RemoteAddr: mr.Addr(), RKey: mr.RKey()}
			i.send(write)
			i.succeed(1)
			require.NoError(t, xs[0].target.Modify(verbs.QPAttr{AccessFlags: verbs.AccessRemoteRead}, verbs.QPMaskAccessFlags))
			i.send(write)
			i.fail(1, verbs.WCRemInvReqErr)
		})
	}
}

// Many devices join and leave concurrently, and open targets of each other: no two objects have the same
// number.
func TestSharedXRC_ManyAtOnce(t *testing.T) {
	attr := sharedDomain(t)
	openNode(t, softhca.Config{}).enterDomain(attr) // so that the domain exists all the time
	const devices, each = 4, 8
	nodes := make([]*node, devices)
	for k := range nodes {
		nodes[k] = openNode(t, softhca.Config{})
	}
	var mu sync.Mutex
	seen := map[uint32]bool{}
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			d, err := n.ctx.OpenXRCD(attr)
			if !assert.NoError(t, err) {
				return
			}
			x := &xrcTarget{node: n, domain: d}
			var close []func() error
			for range each {
				s, err := n.pd.CreateSRQ(verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, XRCD: d, CQ: n.cq, MaxWR: 4, MaxSGE: 1})
				assert.NoError(t, err)
				qp, err := x.domain.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
				assert.NoError(t, err)
				mu.Lock()
				assert.False(t, seen[s.Number()] || seen[qp.Number()])
				seen[s.Number()], seen[qp.Number()] = true, true
				mu.Unlock()
				close = append(close, s.Close, qp.Close)
			}
			for _, f := range append(close, d.Close) {
				assert.NoError(t, f())
			}
		})
	}
	wg.Wait()
	assert.Len(t, seen, 2*devices*each)
}

// A domain ends with its last device, and can be created again, also while an initiator of the same device
// still refers to the former one.
func TestSharedXRC_DomainCreatedAgain(t *testing.T) {
	n, attr := openNode(t, softhca.Config{}), sharedDomain(t)
	for round := range uint64(3) {
		x, s, leave := closingMember(t, attr)
		target := x.newTarget()
		i := n.newInitiator() // it exists until the end of the test
		connectXRC(i, x, target, defaultLink)
		x.post(s, round, 0, 100)
		i.sendSRQ(s.Number(), 1, 10)
		i.succeed(1)
		x.succeed(round)
		require.NoError(t, target.Close())
		leave()
	}
}

// Switching between members allocates nothing.
func TestSharedXRC_NoAllocation(t *testing.T) {
	i, xs := xrcMembers(t, 2, softhca.Config{}, defaultLink)
	first, second := xs[0].newSRQ(), xs[1].newSRQ()
	once := func() {
		i.exchange(xs[0], first, 100)
		i.exchange(xs[1], second, 100)
	}
	for range 10 {
		once()
	}
	testenv.NoAllocs(t, "send to two members alternately", once)
}

// Messages whose sends have completed are received, although the target is destroyed before the device of
// the receiver handles the notices: the process with the target may have exited.
func TestSharedXRC_TargetClosesAfterMessages(t *testing.T) {
	testenv.NeedDescriptors(t, 1000)
	for round := range uint64(20) {
		attr := sharedDomain(t)
		x := openNode(t, softhca.Config{}).enterDomain(attr)
		s := x.newSRQ()
		i := openNode(t, softhca.Config{}).enterDomain(attr)
		target := i.newTarget() // of the device of the sender
		from := i.node.newInitiator()
		connectXRC(from, i, target, defaultLink)
		for id := range round%4 + 1 {
			x.post(s, id, 0, 100)
			from.sendSRQ(s.Number(), id, 10)
		}
		for id := range round%4 + 1 {
			from.succeed(id)
		}
		require.NoError(t, target.Close())
		for id := range round%4 + 1 {
			x.succeed(id)
		}
	}
}
