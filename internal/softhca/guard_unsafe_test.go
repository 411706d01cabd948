package softhca

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func openTest(t testing.TB) *hca {
	t.Helper()
	h, err := open(Config{ArenaLen: 1 << 20}, &uarPool{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

const testPatience = testenv.Watchdog

// linked returns the link from a to b, once it is up.
func linked(t testing.TB, a, b *hca) *outLink {
	t.Helper()
	l, err := a.linkTo(b.gid)
	require.NoError(t, err)
	testenv.ProgressWithin(t, testPatience, func() bool { return l.state.Load() != linkDialing })
	require.EqualValues(t, linkUp, l.state.Load())
	return l
}

// A key is invalid after its deregistration, also for an initiator that has used it before, and its index
// is not reused with the same key.
func TestDereg_InvalidatesKey(t *testing.T) {
	target, peer := openTest(t), openTest(t)
	l := linked(t, peer, target)
	buf, err := target.AllocBuffer(pageLen)
	require.NoError(t, err)
	defer func() { require.NoError(t, buf.Close()) }()
	_, rkey, err := target.RegMR(7, buf.Bytes(), verbs.AccessRemoteWrite)
	require.NoError(t, err)
	addr := uint64(uintptr(unsafe.Pointer(&buf.Bytes()[0])))

	try := func(key uint32, raddr, n uint64, pdn uint32, need verbs.Access) bool {
		_, ok := l.memory(key, raddr, n, pdn, need)
		return ok
	}
	w := verbs.AccessRemoteWrite
	assert.True(t, try(rkey, addr, pageLen, 7, w))
	assert.True(t, try(rkey, addr+pageLen, 0, 7, w))
	assert.False(t, try(rkey, addr-1, 1, 7, w), "before")
	assert.False(t, try(rkey, addr, pageLen+1, 7, w), "past the end")
	assert.False(t, try(rkey, addr+pageLen, 1, 7, w), "after")
	assert.False(t, try(rkey, addr+8, ^uint64(0), 7, w), "wraps around")
	assert.False(t, try(rkey, addr, 8, 8, w), "another PD")
	assert.False(t, try(rkey, addr, 8, 7, verbs.AccessRemoteRead), "access right not granted")
	assert.False(t, try(rkey^1, addr, 8, 7, w), "another variant")
	assert.False(t, try(0, addr, 8, 7, w), "no key")

	require.NoError(t, target.DeregMR(rkey, nil))
	assert.False(t, try(rkey, addr, 8, 7, w), "stale key")
	assert.Error(t, target.DeregMR(rkey, nil), "twice")
}

// FuzzPackets sends arbitrary packets of a hostile peer: the device does not crash, and does not write to
// memory without remote access.
func FuzzPackets(f *testing.F) {
	for op := range uint8(ring.OpAtomicOK + 1) {
		f.Add(op, uint8(ring.FlagFirst|ring.FlagLast), uint32(0), uint64(0), uint32(0), uint32(8), []byte("12345678"))
	}
	h, err := open(Config{Fabric: FabricLoop}, &uarPool{})
	require.NoError(f, err)
	f.Cleanup(func() { _ = h.Close() })
	l, err := h.linkTo(h.gid)
	require.NoError(f, err)
	qp := newTestQP(f, h)
	secret := make([]byte, 64)
	_, key, err := h.RegMR(1, secret, 0) // no remote access
	require.NoError(f, err)
	addr := uint64(uintptr(unsafe.Pointer(&secret[0])))

	f.Fuzz(func(t *testing.T, op, flags uint8, msn uint32, raddr uint64, rkey, dmaLen uint32, payload []byte) {
		payload = payload[:min(len(payload), ring.MaxPayload)]
		qp.setState(verbs.QPStateRTS)
		for _, at := range []struct {
			addr uint64
			key  uint32
		}{{raddr, rkey}, {addr + raddr%8, key}} {
			l.txLock.Lock()
			pkt := l.req.Reserve(len(payload))
			pkt.Op, pkt.Flags, pkt.MSN, pkt.RAddr, pkt.RKey, pkt.Total = op, flags, qp.resp.msn+msn%2, at.addr, at.key, dmaLen
			pkt.SrcQPN, pkt.DstQPN = qp.qpn, qp.qpn
			copy(unsafe.Slice((*byte)(pkt.Body()), len(payload)), payload)
			l.req.Publish(pkt)
			l.txLock.Unlock()
			h.call(attnRequest)
			for h.ctl.attention.Load()&attnWork != 0 {
				h.Drive()
			}
			qp.setState(verbs.QPStateRTS)
		}
		for i, b := range secret {
			if b != 0 {
				t.Fatalf("byte %d of memory without remote access was changed", i)
			}
		}
	})
}

const testUserIndex = 77

// newTestQP creates an RC QP connected to itself, without a driver for its queues.
func newTestQP(t testing.TB, h *hca) *queuePair {
	t.Helper()
	const cqes, bbs = 1 << 12, 16
	cqMem := make([]prm.CQESlot, cqes+1)
	queue := make([]prm.BB, 2*bbs+1)
	rec := make([]uint64, 2)
	at := func(p unsafe.Pointer) unsafe.Pointer { // aligned to a line
		return unsafe.Add(p, -uintptr(p)&(prm.BBLen-1))
	}
	cqn, err := h.CreateCQ(prm.CQParams{Buf: at(unsafe.Pointer(&cqMem[0])), Count: cqes, DBRec: prm.NewDBRec(unsafe.Pointer(&rec[0]))})
	require.NoError(t, err)
	qpn, err := h.CreateQP(prm.QPParams{Type: verbs.QPTypeRC, PDN: 1, SendCQN: cqn, RecvCQN: cqn,
		SQ: at(unsafe.Pointer(&queue[0])), SQCount: bbs, RQ: unsafe.Add(at(unsafe.Pointer(&queue[0])), bbs*prm.BBLen),
		RQCount: bbs, RQStride: 6, RQMaxSGE: 4, DBRec: prm.NewDBRec(unsafe.Pointer(&rec[1])), UserIndex: testUserIndex})
	require.NoError(t, err)
	require.NoError(t, h.ModifyQP(qpn, &verbs.QPAttr{State: verbs.QPStateInit}, verbs.QPMaskState))
	require.NoError(t, h.ModifyQP(qpn, &verbs.QPAttr{State: verbs.QPStateRTR, DestQPN: qpn, AccessFlags: 0xf,
		AH: verbs.AHAttr{DGID: h.gid}}, verbs.QPMaskState|verbs.QPMaskDestQPN|verbs.QPMaskAV|verbs.QPMaskAccessFlags))
	require.NoError(t, h.ModifyQP(qpn, &verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPMaskState))
	return h.qps.find(qpn)
}

// TestRegMR_NoMemory: memory that is not mapped, or is read-only for local writes, cannot be
// registered.
func TestRegMR_NoMemory(t *testing.T) {
	h := openTest(t)
	readOnly, err := unix.Mmap(-1, 0, pageLen, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	_, _, err = h.RegMR(1, readOnly, verbs.AccessLocalWrite)
	assert.Error(t, err)
	key, _, err := h.RegMR(1, readOnly, 0)
	require.NoError(t, err)
	require.NoError(t, h.DeregMR(key, nil))
	require.NoError(t, unix.Munmap(readOnly))
	none, err := unix.Mmap(-1, 0, pageLen, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	_, _, err = h.RegMR(1, none, 0)
	assert.Error(t, err)
	require.NoError(t, unix.Munmap(none))
}
