package sm

import (
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/memop"
)

// acceptor is a peer whose segments the test writes.
type acceptor struct {
	s     *station
	out   *attach.Outbound
	table table
	hdr   *linkHeader
}

const hostileKey = 1<<memop.KeyIndexBits | 5

func openAcceptor(t testing.TB) *acceptor {
	s := openStation(t, Config{FIFOSize: 8, Segs: 4, SegSize: 256})
	segment := func(n int) *memfd.Segment {
		seg, err := memfd.Create("hostile", n, memfd.PeersWrite)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, seg.Close()) })
		return seg
	}
	t.Cleanup(func() { s.close(t) })
	out := &attach.Outbound{Link: &attach.Link{WakeFD: s.iface.waker.WakeFD()},
		Table: segment(tableLen), Arena: segment(controlLen + 1<<20), Seg: segment(linkLen)}
	a := &acceptor{s: s, out: out, table: newTable(out.Table.Bytes()), hdr: headerOf(out.Seg.Bytes())}
	a.table.header().version.Store(layoutVersion)
	return a
}

// connect makes an EP to it, or says why not.
func (a *acceptor) connect(t testing.TB) (*endpoint, error) {
	ep, err := a.s.iface.NewEP(uct.EPParams{DeviceAddr: a.s.iface.DeviceAddr(nil), IfaceAddr: a.s.iface.IfaceAddr(nil)})
	require.NoError(t, err)
	e := ep.(*endpoint)
	l := e.outLink
	if l.adopt(a.out) != nil {
		return nil, e.Close()
	}
	l.out = nil // the segments are the test's
	l.setState(epUp)
	return e, nil
}

// postAll posts everything; what comes of it does not matter.
func (a *acceptor) postAll(e *endpoint, raddr uint64, mem []byte) {
	key, old := uct.RKey(hostileKey), new(uint64)
	c := &uct.Completion{Count: 1 << 20, Func: func(*uct.Completion) {}}
	iov := []uct.IOV{{Buf: mem[64:164]}, {Buf: mem[164:1064]}}
	_ = e.AMShort(1, 2, mem[64:72])
	_, _ = e.AMBcopy(1, &blank{mem[64:264]})
	_ = e.PutShort(mem[64:80], raddr, key)
	_, _ = e.PutZcopy(iov, raddr, key, c)
	_, _ = e.GetBcopy(mem[64:320], raddr, key, c)
	_, _ = e.GetZcopy(iov, raddr, key, c)
	_, _ = e.AtomicFetch(uct.AtomicAdd, 8, 1, old, raddr&^7, key, c)
}

// FuzzAcceptor lets a peer that was connected to lie in all that it may write: what it
// offers, its table, which slots and segments it has done with, and its answers.
func FuzzAcceptor(f *testing.F) {
	a := openAcceptor(f)
	f.Add(uint32(0), uint32(0), uint32(memPrivate), uint64(1<<20), uint64(4096), uint64(0), uint64(1), uint32(1), uint64(0))
	f.Add(uint32(0), uint32(1023), uint32(memArena), uint64(1<<20), uint64(4096), uint64(controlLen), uint64(8), uint32(0), uint64(1))
	f.Add(uint32(127), uint32(1024), uint32(7), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint32(0), ^uint64(0))
	mem := make([]byte, 1128)
	f.Fuzz(func(t *testing.T, control, attention, kind uint32, addr, length, offset, head uint64, returned uint32, status uint64) {
		a.hdr.acceptorControl, a.hdr.attention = control, attention
		a.hdr.head.Store(0)
		for i := range a.hdr.returned {
			a.hdr.returned[i].Store(0)
		}
		a.table.entry(hostileKey).show(hostileKey, uct.AccessAll, kind, addr, length, offset)
		e, err := a.connect(t)
		require.NoError(t, err)
		if e == nil {
			return
		}
		for range 3 {
			a.postAll(e, addr, mem)
			a.hdr.head.Add(head)
			for i := range a.hdr.returned {
				a.hdr.returned[i].Add(returned)
				a.hdr.answer[i] = answer{status: status}
			}
			a.s.iface.Progress()
			if e.state != epUp {
				break
			}
		}
		require.NoError(t, e.Close())
		assert.Equal(t, make([]byte, 64), mem[:64], "beside the buffers")
		assert.Equal(t, make([]byte, 64), mem[len(mem)-64:], "beside the buffers")
	})
}

// liar is a word that is right and wrong by turns.
type liar struct {
	word         *uint32
	right, wrong uint32
}

// flip changes words as fast as it can until stop is set: who reads one twice, and
// checks it once, falls for it. Each lie stands for a while, so that it is seen, too.
func flip(stop *atomic.Bool, liars []liar) {
	stand := func(turns int) {
		for i := range turns {
			runtime.KeepAlive(i)
		}
	}
	for !stop.Load() {
		for n := range 200 {
			for i := range liars {
				atomic.StoreUint32(liars[i].word, liars[i].wrong)
			}
			stand(n)
			for i := range liars {
				atomic.StoreUint32(liars[i].word, liars[i].right)
			}
			stand(n)
		}
		runtime.Gosched()
	}
}

func TestFlips(t *testing.T) {
	rounds := testenv.Rounds(20_000, 200_000)
	flipped := func(liars []liar, round func()) {
		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			flip(&stop, liars)
		}()
		defer func() { // also when a round panics: the segments go then
			stop.Store(true)
			<-done
		}()
		for range rounds {
			round()
		}
	}
	t.Run("dialer", func(t *testing.T) {
		h := openHostile(t)
		s := (*slot)(unsafe.Pointer(&h.seg[slotsOff]))
		ref := (*segRef)(unsafe.Pointer(&s.data))
		require.NoError(t, h.s.iface.SetAMHandler(0, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
			assert.LessOrEqual(t, len(data), 64)
			return false
		})))
		h.hdr.ready.Store(1)
		s.word.Store(uint64(kindSeg)<<shiftKind | 8<<shiftLen | 1)
		flipped([]liar{
			{&ref.seg, 0, 1 << 31}, {&ref.len, 64, 1 << 31}, {&h.hdr.depth, 4, 1 << 31}, {&h.hdr.segs, 1, 1 << 31},
			{&h.hdr.segLen, 64, 1 << 31}, {&h.hdr.dialerControl, 0, 1 << 31},
		}, func() {
			*h.link = inLink{it: h.link.it, in: h.link.in, wakeFD: h.link.wakeFD, rx: newConsumer(h.seg)}
			h.link.poll()
		})
	})
	t.Run("acceptor", func(t *testing.T) {
		a := openAcceptor(t)
		mem := make([]byte, 1128)
		entry := a.table.entry(hostileKey)
		entry.show(hostileKey, uct.AccessAll, memArena, 1<<20, 4096, controlLen)
		flipped([]liar{
			{&a.hdr.acceptorControl, 0, 1 << 31}, {&a.hdr.attention, 0, 1 << 31},
			{(*uint32)(unsafe.Pointer(&entry.kind)), memArena, memPrivate},
			{(*uint32)(unsafe.Pointer(&entry.Start)), controlLen, 1<<32 - 1},
		}, func() {
			if e, err := a.connect(t); e != nil {
				a.postAll(e, 1<<20, mem)
				a.s.iface.Progress()
				require.NoError(t, e.Close())
			} else {
				require.NoError(t, err)
			}
		})
	})
	t.Run("acceptor, long copies", func(t *testing.T) {
		a := openAcceptor(t)
		e, err := a.connect(t)
		require.NoError(t, err)
		defer func() { require.NoError(t, e.Close()) }()
		entry := a.table.entry(hostileKey)
		entry.show(hostileKey, uct.AccessAll, memArena, 1<<20, 1<<30, controlLen)
		iov := []uct.IOV{{Buf: make([]byte, visitMax+8)}}
		flipped([]liar{{(*uint32)(unsafe.Pointer(&entry.kind)), memArena, memPrivate}}, func() {
			for range 10 { // they are short
				c := &uct.Completion{Count: 1, Func: func(*uct.Completion) {}}
				if pending, err := e.GetZcopy(iov, 1<<20, hostileKey, c); err != nil || !pending {
					require.True(t, e.ops.empty(), "what has ended is not written to later")
				}
				e.cancelOps(ucs.StatusCanceled)
			}
		})
	})
}
