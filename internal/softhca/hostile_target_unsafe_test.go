package softhca

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// showReceives makes the peer the target of an XRC initiator: its table and its claims have full
// length, and the test writes their contents.
func (p *hostilePeer) showReceives(t testing.TB) {
	t.Helper()
	mem := func(n int) []byte {
		b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
		return b
	}
	p.table = table.Table{Base: unsafe.Pointer(unsafe.SliceData(mem(table.SharedLen)))}
	p.table.Format()
	p.out.table, p.out.claims = p.table, table.ClaimsAt(mem(table.ClaimsLen))
}

const (
	hostileSRQ = 3
	hostileQPN = foreign + 9
)

// A target may publish arbitrary receives, keys and claims: the initiator writes only to memory that it
// maps from the target, and every send completes or is flushed.
func TestDeliver_HostileTarget(t *testing.T) {
	s := newSiege(t)
	p := s.peers[0]
	p.showReceives(t)
	around := newArenaWithin(t, p)
	cq, err := s.ctx.CreateCQ(verbs.CQInitAttr{Depth: 64})
	require.NoError(t, err)
	defer func() { require.NoError(t, cq.Close()) }()
	rapid.Check(t, func(t *rapid.T) {
		qp, err := s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCSend, SendCQ: cq, Cap: verbs.QPCap{MaxSendWR: 16, MaxSendSGE: 2}})
		require.NoError(t, err)
		s.connect(qp, p.gid, hostileQPN)
		p.accept(hostileQPN, qp.Number(), 7, foreign)
		p.table.QP(hostileQPN).Service.Store(uint32(verbs.QPTypeXRCRecv))
		posted := 0
		for range rapid.IntRange(1, 8).Draw(t, "sends") {
			p.drawShown(t)
			n := rapid.IntRange(1, bulkLen).Draw(t, "length")
			k, _ := qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SRQN: hostileSRQ,
				SGList: []verbs.SGE{s.bulk.SGE(0, n/2), s.bulk.SGE(n/2, n-n/2)}}})
			posted += k
			driveUntilIdle(s.h)
			p.drain(func(*ring.Packet) {})
		}
		require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState))
		driveUntilIdle(s.h)
		require.Equal(t, posted, cq.Poll(s.wcs[:]))
		require.NoError(t, qp.Close())
		around(t)
	})
}

// newArenaWithin gives the peer an arena in the middle of memory that must not change. check verifies
// that.
func newArenaWithin(t testing.TB, p *hostilePeer) (check func(require.TestingT)) {
	const side = 4 * pageLen
	mem := make([]byte, 2*side+pageLen)
	p.out.arena, p.out.arenaLen = unsafe.Pointer(&mem[side]), pageLen
	return func(t require.TestingT) {
		for i, b := range mem {
			if b != 0 && (i < side || i >= side+pageLen) {
				require.FailNow(t, "written outside of the arena", "at %d", i-side)
			}
		}
	}
}

// drawShown writes an arbitrary receive, region and claim.
func (p *hostilePeer) drawShown(t *rapid.T) {
	small := func(name string, most uint32) uint32 {
		return rapid.OneOf(rapid.Uint32Range(0, most), rapid.Uint32()).Draw(t, name)
	}
	q := p.table.SRQ(hostileSRQ)
	q.SRQN.Store(rapid.SampledFrom([]uint32{hostileSRQ, hostileSRQ, hostileSRQ, 0}).Draw(t, "srqn"))
	q.PDN.Store(7)
	seq := uint16(small("seq", 3))
	q.Posted.Store(uint32(seq) + small("posted", 2))
	p.out.claims.Of(hostileSRQ).Store(table.Claimed(uint64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "id")), seq))
	d := p.table.Recv(hostileSRQ, seq)
	*d = table.Recv{Seq: uint32(seq), NSGE: small("nsge", 3)}
	m := p.table.MR(foreign)
	m.Access.Store(uint32(rapid.SampledFrom([]verbs.Access{allRemote | verbs.AccessLocalWrite, 0}).Draw(t, "access")))
	m.PDN.Store(7)
	m.Kind.Store(rapid.SampledFrom([]uint32{table.InArena, table.InArena, table.Private}).Draw(t, "kind"))
	m.Start.Store(uint64(small("offset", pageLen)))
	m.Addr.Store(0)
	m.Len.Store(uint64(small("region", 2*pageLen)))
	m.Key.Store(foreign)
	for i := range d.SGE {
		d.SGE[i] = verbs.SGE{Addr: uint64(small("addr", pageLen)), Length: small("length", 2*pageLen), LKey: foreign}
	}
}
