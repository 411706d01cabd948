package sm

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

func FuzzPeerGID(f *testing.F) {
	own, err := deviceAddr("")
	require.NoError(f, err)
	dir, err := deviceAddr(f.TempDir())
	require.NoError(f, err)
	f.Add(own, make([]byte, ifaceAddrLen))
	f.Add(dir, append(make([]byte, ifaceAddrLen-1), 1))
	f.Add(own, append(make([]byte, ifaceAddrLen-1), 1))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, device, iface []byte) {
		gid, err := peerGID(own, device, iface)
		if err != nil {
			return
		}
		assert.Equal(t, own, device)
		assert.Equal(t, iface, gid[:ifaceAddrLen])
		assert.NotZero(t, gid)
	})
}

func FuzzUnpackRKey(f *testing.F) {
	f.Add(memop.PackKey(nil, keyMagic, memop.NewKey(3)))
	f.Add(make([]byte, memop.KeyLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		key, err := memop.UnpackKey(b, keyMagic)
		if err != nil {
			assert.ErrorIs(t, err, uct.ErrInvalidRKey)
			return
		}
		assert.Equal(t, b, memop.PackKey(nil, keyMagic, uint64(key)))
	})
}

// hostile is an iface with a link whose peer is the test.
type hostile struct {
	s    *station
	link *inLink
	seg  []byte
	hdr  *linkHeader
}

func openHostile(t testing.TB) *hostile {
	s := openStation(t, Config{})
	seg, err := memfd.Create("link", linkLen, memfd.PeersWrite)
	require.NoError(t, err)
	control, err := memfd.Create("control", controlLen, memfd.PeersWrite)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.close(t)
		require.NoError(t, seg.Close())
		require.NoError(t, control.Close())
	})
	in := &attach.Inbound{Link: new(attach.Link), Seg: seg, Control: control}
	l := &inLink{it: s.iface, in: in, wakeFD: s.iface.waker.WakeFD(), rx: newConsumer(seg.Bytes())}
	return &hostile{s, l, seg.Bytes(), headerOf(seg.Bytes())}
}

// FuzzLink: whatever a peer writes to the header, slots and requests, nothing
// panics, handlers get slices of the segment, and memory without a valid key does
// not change.
func FuzzLink(f *testing.F) {
	h := openHostile(f)
	canary, err := h.s.md.Ext().Alloc.Alloc(4096, 0)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, canary.Close()) })
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(h.seg)))
	for id := range uint8(uct.MaxAMID + 1) {
		require.NoError(f, h.s.iface.SetAMHandler(id, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
			at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
			if len(data) > 0 && (at < lo+slotsOff || at+uintptr(len(data)) > lo+linkLen) {
				f.Fatal("a message outside the segment")
			}
			return false
		})))
	}
	real := h.s.mem.(*memory)
	req := request{kind: opPut, seg: 0, n: 8, raddr: real.Addr(), key: real.key}
	f.Add(uint32(4), uint32(2), uint32(64), uint32(0), uint64(kindOp)<<shiftKind|requestLen<<shiftLen, (*[requestLen]byte)(unsafe.Pointer(&req))[:])
	f.Add(uint32(4), uint32(2), uint32(64), uint32(0), uint64(kindSeg)<<shiftKind|8<<shiftLen, []byte{1, 0, 0, 0, 64, 0, 0, 0})
	f.Add(uint32(4), uint32(2), uint32(64), uint32(0), uint64(3)<<shiftID|120<<shiftLen, []byte("hello"))
	f.Add(uint32(0), uint32(1<<31), uint32(1<<31), uint32(999), uint64(1<<63), []byte{})
	f.Add(uint32(4096), uint32(256), uint32(65536), uint32(127), uint64(kindSeg)<<shiftKind|8<<shiftLen, []byte{255, 0, 0, 0, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, depth, segs, segLen, control uint32, word uint64, data []byte) {
		l := h.link
		*l = inLink{it: l.it, in: l.in, wakeFD: l.wakeFD, rx: newConsumer(h.seg)}
		h.hdr.depth, h.hdr.segs, h.hdr.segLen, h.hdr.dialerControl = depth, segs, segLen, control
		h.hdr.ready.Store(1)
		s := (*slot)(unsafe.Pointer(&h.seg[slotsOff]))
		copy(s.data[:], data)
		s.word.Store(word&^0xffffffff | 1)
		for range 3 {
			if l.rx.waiting() {
				l.poll()
			}
		}
		assert.Equal(t, make([]byte, 4096), canary.Bytes())
	})
}

// TestConsumer_Stopped: a stopped consumer sees no message, whatever its peer writes.
func TestConsumer_Stopped(t *testing.T) {
	h := openHostile(t)
	h.hdr.depth, h.hdr.segs, h.hdr.segLen = 4, 1, 64
	c := newConsumer(h.seg)
	assert.False(t, c.waiting())
	h.hdr.ready.Store(1)
	require.True(t, c.waiting())
	_, ok := c.begin()
	require.True(t, ok)
	publish := func() {
		for i := range uint64(4) {
			(*slot)(unsafe.Pointer(&h.seg[slotsOff+i*slotLen])).word.Store(i + 1)
		}
	}
	publish()
	require.True(t, c.waiting())
	c.stop()
	assert.False(t, c.waiting())
	publish()
	h.hdr.ready.Store(1)
	assert.False(t, c.waiting())
}

// TestDrain_Ends: Progress returns although another process, which still maps the ring of a dead peer, fills it while it is
// drained.
func TestDrain_Ends(t *testing.T) {
	h := openHostile(t)
	const depth = 64
	h.hdr.depth, h.hdr.segs, h.hdr.segLen = depth, 1, 64
	h.hdr.ready.Store(1)
	publish := func(i uint64) {
		s := (*slot)(unsafe.Pointer(&h.seg[slotsOff+i%depth*slotLen]))
		s.word.Store(uint64(uint32(i+1)) | 8<<shiftLen)
	}
	got := uint64(0)
	require.NoError(t, h.s.iface.SetAMHandler(0, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		got++
		publish(got)
		return false
	})))
	publish(0)
	n := h.link.drain()
	assert.EqualValues(t, got, n)
	assert.GreaterOrEqual(t, n, depth, "what had been sent")
	assert.Less(t, n, depth+2*pollBatch)
}

// TestAttentionAt_InvalidIndex: an index from the acceptor may be out of range.
func TestAttentionAt_InvalidIndex(t *testing.T) {
	var c control
	assert.Same(t, &c.attention[maxPeers-1], attentionAt(&c, maxPeers-1))
	assert.Nil(t, attentionAt(&c, maxPeers))
	assert.Nil(t, attentionAt(&c, 1<<32-1))
	assert.Nil(t, attentionAt(nil, 0))
}

// FuzzTable: whatever the owner of a table writes, accesses are inside the
// mapping of its arena.
func FuzzTable(f *testing.F) {
	arena, err := memfd.Create("arena", controlLen+1<<20, memfd.PeersWrite)
	require.NoError(f, err)
	tbl, err := memfd.Create("table", tableLen, memfd.PeersWrite)
	require.NoError(f, err)
	f.Cleanup(func() {
		require.NoError(f, arena.Close())
		require.NoError(f, tbl.Close())
	})
	base := unsafe.Pointer(unsafe.SliceData(arena.Bytes()))
	e := &endpoint{outLink: &outLink{grant: noGrant, arena: base, arenaLen: uint64(len(arena.Bytes())), table: newTable(tbl.Bytes())}}
	f.Add(uint64(1<<20), uint64(4096), uint64(controlLen), uint64(1<<20), uint64(8))
	f.Add(uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), uint64(1))
	f.Add(^uint64(0), ^uint64(0), uint64(1), uint64(0), ^uint64(0))
	f.Fuzz(func(t *testing.T, addr, length, offset, raddr, n uint64) {
		const key = 1<<memop.KeyIndexBits | 5
		e.grant = noGrant
		e.table.entry(key).show(key, uct.AccessAll, memArena, addr, length, offset)
		p := e.mapped(key, raddr, n, uct.AccessRemoteWrite)
		if p == nil {
			return
		}
		at := uint64(uintptr(p) - uintptr(base))
		assert.LessOrEqual(t, at, e.arenaLen)
		assert.LessOrEqual(t, n, e.arenaLen-at)
		assert.GreaterOrEqual(t, at, uint64(controlLen), "control blocks are no memory")
	})
}

// TestLayout: the layout that peers of other builds use does not change.
func TestLayout(t *testing.T) {
	assert.EqualValues(t, 128, unsafe.Offsetof(linkHeader{}.ready))
	assert.EqualValues(t, 256, unsafe.Offsetof(linkHeader{}.head))
	assert.EqualValues(t, 384, unsafe.Offsetof(linkHeader{}.guard))
	assert.EqualValues(t, 512, unsafe.Offsetof(linkHeader{}.returned))
	assert.EqualValues(t, 1536, unsafe.Offsetof(linkHeader{}.answer))
	assert.EqualValues(t, 128, unsafe.Offsetof(control{}.attention))
	key := make([]byte, 0, memop.KeyLen)
	assert.Equal(t, []byte("smem"), memop.PackKey(key, keyMagic, 1<<40)[:4])
	assert.Equal(t, binary.LittleEndian.Uint32([]byte("smem")), uint32(keyMagic))
}
