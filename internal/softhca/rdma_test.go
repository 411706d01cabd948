package softhca_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// rdmaSizes are around the lengths of words, packets and the inline budget.
var rdmaSizes = []int{0, 1, 7, 8, 64, 4095, 4096, 4097, 300000, bufLen}

func TestWriteAndRead_Sizes(t *testing.T) {
	fabrics(t, defaultLink, func(t *testing.T, a, b *node) {
		for i, n := range rdmaSizes {
			fill(a.buf.Bytes(), byte(i))
			clear(b.buf.Bytes())
			a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
				SGList: []verbs.SGE{a.mr.SGE(0, n)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
			a.succeed(1)
			require.Equal(t, a.buf.Bytes()[:n], b.buf.Bytes()[:n], "size %d", n)
			require.Equal(t, make([]byte, bufLen-n), b.buf.Bytes()[n:], "size %d wrote too much", n)

			clear(a.buf.Bytes())
			a.send(verbs.SendWR{ID: 2, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled,
				SGList: []verbs.SGE{a.mr.SGE(0, n/2), a.mr.SGE(n/2, n-n/2)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
			wc := a.succeed(2)
			assert.EqualValues(t, n, wc.ByteLen)
			require.Equal(t, b.buf.Bytes()[:n], a.buf.Bytes()[:n], "size %d", n)
		}
	})
}

func TestAtomics(t *testing.T) {
	fabrics(t, defaultLink, func(t *testing.T, a, b *node) {
		word := b.buf.Bytes()[8:16]
		binary.NativeEndian.PutUint64(word, 40)
		a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, CompareAdd: 2,
			SGList: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr() + 8, RKey: b.mr.RKey()})
		a.succeed(1)
		assert.EqualValues(t, 40, binary.NativeEndian.Uint64(a.buf.Bytes()))
		a.send(verbs.SendWR{ID: 2, Opcode: verbs.OpAtomicCmpSwap, Flags: verbs.SendSignaled, CompareAdd: 42, Swap: 7,
			SGList: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr() + 8, RKey: b.mr.RKey()})
		a.succeed(2)
		assert.EqualValues(t, 42, binary.NativeEndian.Uint64(a.buf.Bytes()))
		assert.EqualValues(t, 7, binary.NativeEndian.Uint64(word))
	})
}

func TestSend_Sizes(t *testing.T) {
	fabrics(t, defaultLink, func(t *testing.T, a, b *node) {
		for i, n := range rdmaSizes {
			fill(a.buf.Bytes(), byte(i))
			clear(b.buf.Bytes())
			b.recv(9, 0, bufLen)
			a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpSendWithImm, Imm: 0xdead0000 + uint32(i),
				Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, n)}})
			wc := b.succeed(9)
			assert.Equal(t, verbs.WCRecv, wc.Opcode)
			assert.Equal(t, verbs.WCWithImm, wc.Flags)
			assert.Equal(t, 0xdead0000+uint32(i), wc.Imm)
			assert.EqualValues(t, n, wc.ByteLen)
			a.succeed(1)
			require.Equal(t, a.buf.Bytes()[:n], b.buf.Bytes()[:n], "size %d", n)
		}
	})
}

func TestWriteWithImm(t *testing.T) {
	fabrics(t, defaultLink, func(t *testing.T, a, b *node) {
		fill(a.buf.Bytes(), 3)
		b.recv(9, 0, 0)
		a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWriteWithImm, Imm: 5, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{a.mr.SGE(0, 1000)}, RemoteAddr: b.mr.Addr() + 50, RKey: b.mr.RKey()})
		wc := b.succeed(9)
		assert.Equal(t, verbs.WCRecvRDMAWithImm, wc.Opcode)
		assert.EqualValues(t, 1000, wc.ByteLen)
		assert.EqualValues(t, 5, wc.Imm)
		a.succeed(1)
		assert.Equal(t, a.buf.Bytes()[:1000], b.buf.Bytes()[50:1050])
	})
}

// A write behind a send without acknowledgement waits for it, and completes after it.
func TestOrder_WriteBehindSend(t *testing.T) {
	fabrics(t, defaultLink, func(t *testing.T, a, b *node) {
		fill(a.buf.Bytes(), 1)
		a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 10)}},
			verbs.SendWR{ID: 2, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
				SGList: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr() + 4096, RKey: b.mr.RKey()})
		for range 100 {
			a.idle()
		}
		assert.Equal(t, make([]byte, 8), b.buf.Bytes()[4096:4104], "the write overtook the send")
		b.recv(9, 0, 64) // ends the RNR wait of the send
		b.succeed(9)
		a.succeed(1)
		a.succeed(2)
		assert.Equal(t, a.buf.Bytes()[:8], b.buf.Bytes()[4096:4104])
	})
}

// Memory outside the arena is accessed by cross-memory attach, or through the ring if that is
// forbidden.
func TestPrivateMemory(t *testing.T) {
	for _, noCMA := range []bool{false, true} {
		name := map[bool]string{false: "cma", true: "ring"}[noCMA]
		t.Run(name, func(t *testing.T) {
			a, b := openNode(t, softhca.Config{NoCMA: noCMA}), openNode(t, softhca.Config{})
			connect(a, b, defaultLink)
			heap := make([]byte, 100000)
			mr, err := b.pd.RegMR(heap, anyone)
			require.NoError(t, err)
			defer func() { require.NoError(t, mr.Close()) }()

			fill(a.buf.Bytes(), 5)
			a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
				SGList: []verbs.SGE{a.mr.SGE(0, 60000), a.mr.SGE(60000, 40000)}, RemoteAddr: mr.Addr(), RKey: mr.RKey()})
			a.succeed(1)
			require.Equal(t, a.buf.Bytes()[:len(heap)], heap)

			clear(a.buf.Bytes())
			a.send(verbs.SendWR{ID: 2, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled,
				SGList: []verbs.SGE{a.mr.SGE(0, len(heap))}, RemoteAddr: mr.Addr(), RKey: mr.RKey()})
			a.succeed(2)
			require.Equal(t, heap, a.buf.Bytes()[:len(heap)])

			binary.NativeEndian.PutUint64(heap, 1)
			a.send(verbs.SendWR{ID: 3, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, CompareAdd: 9,
				SGList: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: mr.Addr(), RKey: mr.RKey()})
			a.succeed(3)
			assert.EqualValues(t, 1, binary.NativeEndian.Uint64(a.buf.Bytes()))
			assert.EqualValues(t, 10, binary.NativeEndian.Uint64(heap))
		})
	}
}

// Receives posted to a QP in ERR are flushed too.
func TestErr_LaterReceivesAreFlushed(t *testing.T) {
	fabrics(t, defaultLink, func(t *testing.T, a, b *node) {
		b.recv(1, 0, 64)
		require.NoError(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState))
		b.fail(1, verbs.WCWRFlushErr)
		b.recv(2, 0, 64)
		b.fail(2, verbs.WCWRFlushErr)
		b.idle()
	})
}

// Accesses to the last byte of Go heap memory create no pointer behind it, which builds with the race
// detector check.
func TestWriteAndRead_EndOfHeapMemory(t *testing.T) {
	a := openNode(t, softhca.Config{Fabric: softhca.FabricLoop})
	a.join(a.gid, a.qp.Number(), defaultLink)
	mem := make([]byte, 4096)
	mr, err := a.pd.RegMR(mem, anyone)
	require.NoError(t, err)
	fill(a.buf.Bytes()[:16], 3)
	a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{a.mr.SGE(0, 16)}, RemoteAddr: mr.Addr() + 4080, RKey: mr.RKey()})
	a.succeed(1)
	assert.Equal(t, a.buf.Bytes()[:16], mem[4080:])
	a.send(verbs.SendWR{ID: 2, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{a.mr.SGE(64, 16)}, RemoteAddr: mr.Addr() + 4080, RKey: mr.RKey()})
	a.succeed(2)
	assert.Equal(t, mem[4080:], a.buf.Bytes()[64:80])
	require.NoError(t, mr.Close())
}

// A send that is larger than the ring, and that finds no receive, is sent after a receive is posted.
func TestSend_LongWithoutReceive(t *testing.T) {
	const length = bufLen
	fabrics(t, defaultLink, func(t *testing.T, a, b *node) {
		fill(a.buf.Bytes(), 3)
		long := a.mr.SGE(0, length)
		a.send(verbs.SendWR{ID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{long, long}})
		for range 100 {
			require.Zero(t, a.cq.Poll(a.wcs[:]))
			require.Zero(t, b.cq.Poll(b.wcs[:]))
		}
		half := b.mr.SGE(0, length)
		_, err := b.qp.PostRecv([]verbs.RecvWR{{ID: 2, SGList: []verbs.SGE{half, half}}})
		require.NoError(t, err)
		a.succeed(1)
		b.succeed(2)
		require.True(t, bytes.Equal(a.buf.Bytes(), b.buf.Bytes()))
	})
}
