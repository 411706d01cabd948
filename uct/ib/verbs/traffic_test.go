package verbs_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// A list is executed in order, and its signaled members complete in order.
func TestPostSend_List(t *testing.T) {
	a, b := pair(t, defaultPath)
	list := make([]verbs.SendWR, 20)
	for i := range list {
		list[i] = verbs.SendWR{ID: uint64(i), Opcode: verbs.OpRDMAWrite, Flags: verbs.SendInline,
			Inline: []byte{byte(i)}, RemoteAddr: b.mr.Addr() + uint64(i/2), RKey: b.mr.RKey()}
		if i%5 == 4 {
			list[i].Flags |= verbs.SendSignaled
		}
	}
	a.post(list...)
	for i, wc := range a.await(4) {
		assert.Equal(t, uint64(i*5+4), wc.ID)
		assert.Equal(t, verbs.WCSuccess, wc.Status)
	}
	for i := range 10 {
		assert.Equal(t, byte(2*i+1), b.mr.Bytes()[i], "the later one stays")
	}
}

func TestPostSend_TooMuchInline(t *testing.T) {
	a, b := pair(t, defaultPath)
	wr := write(1, a, b, 8)
	wr.Flags |= verbs.SendInline
	wr.Inline = make([]byte, a.qp.Cap().MaxInline)
	good := wr
	wr.Inline = append(wr.Inline, 0)
	n, err := a.qp.PostSend([]verbs.SendWR{good, wr, good})
	assert.Equal(t, 1, n)
	assert.ErrorIs(t, err, ucs.ErrTooLong)
	assert.Equal(t, verbs.WCSuccess, a.one().Status)
}

// A queue that nobody polls fills up; polling makes room.
func TestPostSend_Full(t *testing.T) {
	a, b := pair(t, defaultPath)
	depth := a.qp.Cap().MaxSendWR
	list := make([]verbs.SendWR, depth+1)
	for i := range list {
		list[i] = write(uint64(i), a, b, 8)
	}
	n, err := a.qp.PostSend(list)
	assert.Equal(t, depth, n)
	assert.True(t, err == ucs.ErrNoResource, "bare, got %v", err)
	a.await(depth)
	a.post(list[depth])
	assert.Equal(t, uint64(depth), a.one().ID)
}

// A fenced send goes out after the read before it has brought its data.
func TestPostSend_Fence(t *testing.T) {
	a, b := pair(t, defaultPath)
	for i := range 50 {
		binary.NativeEndian.PutUint64(b.mr.Bytes(), uint64(i+1))
		b.recv(64, uint64(i))
		read := write(1, a, b, 8)
		read.Opcode = verbs.OpRDMARead
		relay := send(2, a, 8)
		relay.Flags |= verbs.SendFence
		a.post(read, relay)
		wc := a.await(2)
		assert.Equal(t, []uint64{1, 2}, []uint64{wc[0].ID, wc[1].ID})
		b.one()
		assert.Equal(t, uint64(i+1), binary.NativeEndian.Uint64(b.mr.Bytes()), "what was read is what was sent")
	}
}

func TestAtomics_ReturnOldValue(t *testing.T) {
	a, b := pair(t, defaultPath)
	word := b.mr.Bytes()[8:16]
	binary.NativeEndian.PutUint64(word, 40)
	atomic := verbs.SendWR{Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr() + 8, RKey: b.mr.RKey()}
	steps := []struct {
		op        verbs.Opcode
		cmp, swap uint64
		old, now  uint64
		wc        verbs.WCOpcode
	}{
		{verbs.OpAtomicFetchAdd, 2, 99, 40, 42, verbs.WCFetchAdd},
		{verbs.OpAtomicCmpSwap, 41, 7, 42, 42, verbs.WCCompSwap},
		{verbs.OpAtomicCmpSwap, 42, 7, 42, 7, verbs.WCCompSwap},
		{verbs.OpAtomicFetchAdd, 1<<64 - 8, 0, 7, 1<<64 - 1, verbs.WCFetchAdd},
	}
	for _, s := range steps {
		atomic.Opcode, atomic.CompareAdd, atomic.Swap = s.op, s.cmp, s.swap
		a.post(atomic)
		wc := a.one()
		assert.Equal(t, verbs.WC{Opcode: s.wc, ByteLen: 8, QPN: a.qp.Number()}, wc)
		assert.Equal(t, s.old, binary.NativeEndian.Uint64(a.mr.Bytes()))
		assert.Equal(t, s.now, binary.NativeEndian.Uint64(word))
	}
}

// Receives of an SRQ go out in the order posted, whichever QP takes them, and the
// limit event comes once for each time it is armed.
func TestSRQ_OrderAndLimit(t *testing.T) {
	d := openDevice(t)
	srq := d.srq(verbs.SRQInitAttr{MaxWR: 16, MaxSGE: 1})
	cq := d.cq(verbs.CQInitAttr{})
	var to, from [2]*side
	for i := range to {
		to[i], from[i] = d.side(verbs.QPInitAttr{SRQ: srq, SendCQ: cq}), d.side(verbs.QPInitAttr{})
		to[i].join(from[i].qp.Number(), defaultPath)
		from[i].join(to[i].qp.Number(), defaultPath)
	}
	_, err := to[0].qp.PostRecv([]verbs.RecvWR{{}})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam, "receives are posted to the SRQ")
	for i := range 10 {
		_, err := srq.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGList: []verbs.SGE{to[0].mr.SGE(i*64, 64)}}})
		require.NoError(t, err)
	}
	require.NoError(t, srq.Modify(verbs.SRQAttr{Limit: 8}, verbs.SRQMaskLimit))
	got, err := srq.Query()
	require.NoError(t, err)
	assert.Equal(t, 8, got.Limit)
	for i := range 4 {
		from[i%2].mr.Bytes()[0] = byte(100 + i)
		from[i%2].post(send(1, from[i%2], 8))
		assert.Equal(t, verbs.WCSuccess, from[i%2].one().Status)
		wc := await(t, cq, 1)[0]
		assert.Equal(t, uint64(i), wc.ID)
		assert.Equal(t, to[i%2].qp.Number(), wc.QPN)
		assert.Equal(t, byte(100+i), to[0].mr.Bytes()[i*64])
	}
	ev, err := d.ctx.NextAsyncEvent()
	require.NoError(t, err)
	assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventSRQLimitReached, SRQ: srq}, ev)

	if os.Getenv(deviceEnv) != "" {
		return // rxe raises no event for the last receive of a QP
	}
	// The event was raised once: the next one in line is that of the QP below.
	require.NoError(t, to[0].qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState))
	ev, err = d.ctx.NextAsyncEvent()
	require.NoError(t, err)
	assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventQPLastWQEReached, QP: to[0].qp}, ev, "its receives stay in the SRQ")
	from[1].post(send(1, from[1], 8))
	assert.Equal(t, uint64(4), await(t, cq, 1)[0].ID)
}

// A QP that is closed with arrivals that nobody polled takes no receives along.
func TestSRQ_OutlivesItsQPs(t *testing.T) {
	d := openDevice(t)
	srq := d.srq(verbs.SRQInitAttr{MaxWR: 4, MaxSGE: 1})
	cq := d.cq(verbs.CQInitAttr{})
	mr := d.mr(d.pd, anyone)
	for i := range 2 {
		_, err := srq.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGList: []verbs.SGE{mr.SGE(i*64, 64)}}})
		require.NoError(t, err)
	}
	for i := range 20 { // a receive that is lost would be missing soon
		to, from := d.side(verbs.QPInitAttr{SRQ: srq, SendCQ: cq}), d.side(verbs.QPInitAttr{})
		to.join(from.qp.Number(), defaultPath)
		from.join(to.qp.Number(), defaultPath)
		from.mr.Bytes()[0] = byte(i)
		from.post(send(1, from, 8))
		require.Equal(t, verbs.WCSuccess, from.one().Status)
		require.Equal(t, byte(i), mr.Bytes()[i%2*64], "the receives take turns")
		require.NoError(t, to.qp.Close())
		require.Zero(t, cq.Poll(make([]verbs.WC, 1)))
	}
}

// The keys of a receive are those of the SRQ's domain, not of the QP's.
func TestSRQ_OfAnotherDomain(t *testing.T) {
	if os.Getenv(deviceEnv) != "" {
		t.Skip("rxe takes the keys of the QP's domain")
	}
	d := openDevice(t)
	pd := d.otherPD()
	srq, err := pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 4, MaxSGE: 1})
	require.NoError(t, err)
	d.closeLater(srq.Close)
	mr := d.mr(pd, anyone)
	a, b := d.side(verbs.QPInitAttr{}), d.side(verbs.QPInitAttr{SRQ: srq})
	a.join(b.qp.Number(), defaultPath)
	b.join(a.qp.Number(), defaultPath)
	_, err = srq.PostRecv([]verbs.RecvWR{{ID: 1, SGList: []verbs.SGE{mr.SGE(0, 64)}}, {ID: 2, SGList: []verbs.SGE{b.mr.SGE(0, 64)}}})
	require.NoError(t, err)
	a.post(send(1, a, 8))
	assert.Equal(t, verbs.WCSuccess, a.one().Status)
	assert.Equal(t, verbs.WCSuccess, b.one().Status)
	a.post(send(2, a, 8))
	assert.Equal(t, verbs.WCRemOpErr, a.one().Status)
	assert.Equal(t, verbs.WCLocProtErr, b.one().Status)
}

func TestUD(t *testing.T) {
	const grh = 40
	d := openDevice(t)
	a, b := d.datagramSide(verbs.QPInitAttr{}), d.datagramSide(verbs.QPInitAttr{})
	ah, err := d.pd.CreateAH(verbs.AHAttr{DGID: d.gid, SGIDIndex: d.gidIndex, Global: true, Port: 1})
	require.NoError(t, err)
	d.closeLater(ah.Close)
	wr := verbs.SendWR{ID: 5, Opcode: verbs.OpSendWithImm, Imm: 0xcafe, Flags: verbs.SendSignaled | verbs.SendInline,
		Inline: []byte("datagram"), AH: ah, RemoteQPN: b.qp.Number(), RemoteQKey: udKey}
	b.recv(256, 7)
	a.post(wr)
	assert.Equal(t, verbs.WC{ID: 5, QPN: a.qp.Number(), Flags: verbs.WCWithImm}, a.one())
	wc := b.one()
	assert.Equal(t, verbs.WC{ID: 7, Opcode: verbs.WCRecv, ByteLen: grh + 8, Imm: 0xcafe, Flags: verbs.WCGRH | verbs.WCWithImm,
		QPN: b.qp.Number(), SrcQP: a.qp.Number()}, wc)
	assert.Equal(t, "datagram", string(b.mr.Bytes()[grh:grh+8]))
	if d.gid.IPv4() { // an IPv4 header at the end of the area
		assert.Equal(t, d.gid[12:], b.mr.Bytes()[32:36], "source address")
	} else {
		assert.Equal(t, d.gid[:], b.mr.Bytes()[8:24], "source GID in the GRH")
	}

	// What nobody wants is lost, and the sender does not learn of it.
	wrongKey, noQP := wr, wr
	wrongKey.RemoteQKey++
	noQP.RemoteQPN = 0xfffffe
	b.recv(256, 8)
	a.post(wrongKey, noQP, wr)
	a.await(3)
	assert.Equal(t, uint64(8), b.one().ID)
	b.quiet()
	a.post(wr) // no receive
	assert.Equal(t, verbs.WCSuccess, a.one().Status)
}

// A QP in a thread domain works like any other; levels 1 and 2 differ in pages.
func TestThreadDomain(t *testing.T) {
	d := openDevice(t)
	if !d.ctx.HasTD() {
		t.Skip("the device has no thread domains")
	}
	b := d.side(verbs.QPInitAttr{})
	for _, level := range []int{1, 2} {
		td, err := d.ctx.AllocTD(verbs.TDInitAttr{Sharing: level})
		require.NoError(t, err)
		d.closeLater(td.Close)
		a := d.side(verbs.QPInitAttr{TD: td, SendCQ: d.cq(verbs.CQInitAttr{SingleThreaded: true})})
		a.join(b.qp.Number(), defaultPath)
		if b.qp.State() != verbs.QPStateReset {
			require.NoError(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
		}
		b.join(a.qp.Number(), defaultPath)
		a.post(write(1, a, b, 100))
		assert.Equal(t, verbs.WCSuccess, a.one().Status)
	}
}

func channel(d *device) *verbs.CompChannel {
	d.t.Helper()
	ch, err := d.ctx.CreateCompChannel()
	require.NoError(d.t, err)
	d.closeLater(ch.Close)
	return ch
}

// Only a solicited completion, or an error, raises an event of a CQ that is armed
// for solicited ones.
func TestEvent_Solicited(t *testing.T) {
	d := openDevice(t)
	ch := channel(d)
	a, b := d.side(verbs.QPInitAttr{}), d.side(verbs.QPInitAttr{SendCQ: d.cq(verbs.CQInitAttr{Channel: ch})})
	a.join(b.qp.Number(), defaultPath)
	b.join(a.qp.Number(), defaultPath)
	b.recv(64, 1, 2, 3)
	require.NoError(t, b.cq.Arm(true))
	a.post(send(1, a, 8))
	a.one()
	b.one()
	assert.Nil(t, ch.TryGet())
	urgent := send(2, a, 8)
	urgent.Flags |= verbs.SendSolicited
	a.post(urgent)
	a.one()
	b.one()
	assert.Same(t, b.cq, ch.TryGet())
	assert.Nil(t, ch.TryGet())
	require.NoError(t, b.cq.Arm(true))
	require.NoError(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState))
	assert.Equal(t, verbs.WCWRFlushErr, b.one().Status)
	assert.Same(t, b.cq, ch.TryGet(), "an error is solicited")
}

// The classic loop of arm, poll again, wait never misses a completion that comes
// between poll and arm.
func TestEvent_ArmRace(t *testing.T) {
	const total = 2000
	d := openDevice(t)
	ch := channel(d)
	a, b := d.side(verbs.QPInitAttr{}), d.side(verbs.QPInitAttr{SendCQ: d.cq(verbs.CQInitAttr{Channel: ch})})
	a.join(b.qp.Number(), defaultPath)
	b.join(a.qp.Number(), defaultPath)
	var wg sync.WaitGroup
	wg.Go(func() {
		var wc [8]verbs.WC
		wr := []verbs.SendWR{{Opcode: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: []byte("x")}}
		for sent, done := 0, 0; done < total; runtime.Gosched() {
			if sent < total {
				n, _ := a.qp.PostSend(wr)
				sent += n
			}
			done += a.cq.Poll(wc[:])
		}
	})
	b.recv(8, 1, 2, 3, 4, 5, 6, 7, 8)
	recv := []verbs.RecvWR{{ID: 9, SGList: []verbs.SGE{b.mr.SGE(0, 8)}}}
	got := 0
	drain := func() (n int) {
		var wc [4]verbs.WC
		for {
			k := b.cq.Poll(wc[:])
			if k == 0 {
				return n
			}
			for range k {
				_, err := b.qp.PostRecv(recv)
				require.NoError(t, err)
			}
			n += k
		}
	}
	for got < total {
		require.NoError(t, b.cq.Arm(false))
		if n := drain(); n > 0 {
			got += n
			continue
		}
		// Nothing since Arm: what comes now raises an event, so this ends.
		testenv.ProgressWithin(t, patience, func() bool { return ch.Pending() || a.cq.Poll(nil) != 0 })
		assert.Same(t, b.cq, ch.TryGet())
		got += drain()
	}
	wg.Wait()
	assert.Equal(t, total, got)
}

// Several goroutines share a QP and its CQ; all that was posted completes once.
func TestConcurrent_SharedQP(t *testing.T) {
	const posters, each = 4, 300
	a, b := pair(t, defaultPath)
	var mu sync.Mutex
	seen := map[uint64]int{}
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			var wc [8]verbs.WC
			wr := []verbs.SendWR{write(0, a, b, 8)}
			poll := func() {
				k := a.cq.Poll(wc[:])
				mu.Lock()
				for _, c := range wc[:k] {
					assert.Equal(t, verbs.WCSuccess, c.Status)
					seen[c.ID]++
				}
				mu.Unlock()
			}
			for i := range each {
				wr[0].ID = uint64(p*each + i)
				for n := 0; n == 0; runtime.Gosched() {
					n, _ = a.qp.PostSend(wr)
					poll()
				}
			}
		})
	}
	wg.Wait()
	for _, wc := range a.await(posters*each - len(seen)) {
		seen[wc.ID]++
	}
	require.Len(t, seen, posters*each)
	for id, n := range seen {
		assert.Equal(t, 1, n, "completions of %d", id)
	}
}

func TestDataPath_DoesNotAllocate(t *testing.T) {
	a, b := pair(t, defaultPath)
	wc := make([]verbs.WC, 4)
	run := func(wr verbs.SendWR) func() {
		list := []verbs.SendWR{wr}
		return func() {
			_, _ = a.qp.PostSend(list)
			for a.cq.Poll(wc) == 0 {
				runtime.Gosched()
			}
		}
	}
	inline := write(1, a, b, 8)
	inline.Flags |= verbs.SendInline
	inline.Inline = []byte("12345678")
	read, add := write(1, a, b, 8), write(1, a, b, 8)
	read.Opcode, add.Opcode = verbs.OpRDMARead, verbs.OpAtomicFetchAdd
	for _, wr := range []verbs.SendWR{inline, write(1, a, b, 1000), read, add} {
		testenv.NoAllocs(t, fmt.Sprintf("opcode %d, flags %#x", wr.Opcode, wr.Flags), run(wr))
	}
	recv := []verbs.RecvWR{{SGList: []verbs.SGE{b.mr.SGE(0, 64)}}}
	message := run(send(1, a, 8))
	testenv.NoAllocs(t, "send and receive", func() {
		_, _ = b.qp.PostRecv(recv)
		message()
		for b.cq.Poll(wc) == 0 {
			runtime.Gosched()
		}
	})
	testenv.NoAllocs(t, "idle poll", func() { a.cq.Poll(wc) })
}
