package rccore

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// writeResults simulates the data that the device writes for reads and atomics of e: numbers that count up
// from v, in the order of the work requests.
func (s *script) writeResults(e *EP, v uint64) {
	for o := e.opHead; o != nil; o = o.next {
		if o.kind != opGet && o.kind != opAtomic {
			continue
		}
		into := o.slot[:]
		if o.buf != noBuffer {
			into = s.tx.Bytes(o.buf)
		}
		binary.NativeEndian.PutUint64(into, v)
		v++
		if o == e.opTail {
			break
		}
	}
	if e.waiter.slot != nil {
		binary.NativeEndian.PutUint64(e.waiter.slot[:], v)
	}
}

// The results of reads and atomics are stored before their completion is called, and not earlier;
// after a failure, nothing is stored.
func TestEnd_Results(t *testing.T) {
	for _, st := range []verbs.WCStatus{verbs.WCSuccess, verbs.WCRemAccessErr} {
		s := newScript(t, Config{})
		e := s.connected()
		short, long := make([]byte, 9), make([]byte, bigBytes)
		var fetched, swapped uint64
		var c comps
		pending := func(pending bool, err error) {
			require.NoError(t, err)
			require.True(t, pending)
		}
		pending(e.GetBcopy(short, farAddr, farKey, c.get()))
		pending(e.GetBcopy(long, farAddr, farKey, c.get()))
		e.waiter.comp = &uct.Completion{} // the waiter is in use, so both atomics are ops
		pending(e.AtomicFetch(uct.AtomicAdd, 8, 1, &fetched, farAddr, farKey, c.get()))
		pending(e.AtomicCSwap(8, 1, 2, &swapped, farAddr, farKey, c.get()))
		e.waiter.comp = nil
		s.writeResults(e, 5)
		assert.Zero(t, short[0])
		s.complete(e, 1, st)
		if st != verbs.WCSuccess {
			for id := uint64(2); id <= 4; id++ {
				s.complete(e, id, verbs.WCWRFlushErr)
			}
			assert.Equal(t, []uct.Status{ucs.StatusRemoteAccess, ucs.StatusCanceled, ucs.StatusCanceled, ucs.StatusCanceled}, c.ended)
			assert.Equal(t, make([]byte, 9), short)
			assert.Equal(t, make([]byte, bigBytes), long)
			assert.Zero(t, fetched+swapped)
			s.allFree()
			continue
		}
		assert.Len(t, c.ended, 1)
		assert.EqualValues(t, 5, short[0])
		assert.Zero(t, long[0])
		s.complete(e, 4, st)
		assert.Equal(t, make([]uct.Status, 4), c.ended)
		assert.EqualValues(t, 6, long[0])
		assert.Equal(t, []uint64{7, 8}, []uint64{fetched, swapped})
		s.allFree()
	}
}

// Atomics that share a completion and a result store the old value of the last one, and the
// completion is called once.
func TestEnd_SharedResult(t *testing.T) {
	s := newScript(t, Config{})
	e := s.connected()
	var result uint64
	ran := 0
	c := &uct.Completion{Count: 3, Func: func(*uct.Completion) { ran++ }}
	for range 3 {
		_, err := e.AtomicFetch(uct.AtomicAdd, 8, 1, &result, farAddr, farKey, c)
		require.NoError(t, err)
	}
	s.allFree()
	s.writeResults(e, 7)
	s.complete(e, 1, verbs.WCSuccess)
	assert.EqualValues(t, 7, result)
	assert.Equal(t, 2, c.Count)
	s.writeResults(e, 9)
	s.complete(e, e.PI, verbs.WCSuccess)
	assert.EqualValues(t, 9, result)
	assert.Equal(t, 1, ran)
	s.writeResults(e, 11)
	_, err := e.AtomicFetch(uct.AtomicAdd, 8, 1, nil, farAddr, farKey, new(comps).get())
	require.NoError(t, err)
	s.complete(e, e.PI, verbs.WCSuccess)
	assert.EqualValues(t, 9, result, "nobody wants the old value")
}

// The failed operation and flushes complete with the status of the cause. Operations after it
// complete with the cause if that was the connection, otherwise with StatusCanceled. Operations
// before it have succeeded.
func TestEnd_Statuses(t *testing.T) {
	for _, tt := range []struct {
		wc     verbs.WC
		cause  ucs.Status
		behind ucs.Status
	}{
		{verbs.WC{Status: verbs.WCRemAccessErr}, ucs.StatusRemoteAccess, ucs.StatusCanceled},
		{verbs.WC{Status: verbs.WCLocProtErr}, ucs.StatusLocalAccess, ucs.StatusCanceled},
		{verbs.WC{Status: verbs.WCRemInvReqErr}, ucs.StatusRemoteInvalid, ucs.StatusCanceled},
		{verbs.WC{Status: verbs.WCRetryExcErr}, ucs.StatusTimedOut, ucs.StatusTimedOut},
		{verbs.WC{Status: verbs.WCRetryExcErr, VendorErr: verbs.VendorPeerClosed}, ucs.StatusPeerClosed, ucs.StatusPeerClosed},
		{verbs.WC{Status: verbs.WCRetryExcErr, VendorErr: verbs.VendorPeerGone}, ucs.StatusConnReset, ucs.StatusConnReset},
		{verbs.WC{Status: verbs.WCRNRRetryExcErr}, ucs.StatusRNR, ucs.StatusRNR},
		{verbs.WC{Status: verbs.WCRemOpErr}, ucs.StatusConnReset, ucs.StatusConnReset},
		{verbs.WC{Status: verbs.WCGeneralErr}, ucs.StatusIOError, ucs.StatusIOError},
	} {
		t.Run(tt.cause.String(), func(t *testing.T) {
			s := newScript(t, Config{})
			e := s.connected()
			var c comps
			pending := func(pending bool, err error) {
				require.NoError(t, err)
				require.True(t, pending)
			}
			pending(e.PutZcopy(s.pieces(1), farAddr, farKey, c.get())) // 1
			require.NoError(t, e.PutBcopy(fillBytes(bigBytes), farAddr, farKey))
			pending(e.GetBcopy(make([]byte, 8), farAddr, farKey, c.get())) // 3
			pending(e.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), farAddr, farKey, c.get()))
			pending(e.AMZcopy(1, nil, s.pieces(1), c.get()))
			pending(e.Flush(c.get())) // of 5
			pending(e.Flush(c.get()))
			require.EqualValues(t, 5, e.PI)
			tt.wc.QPN, tt.wc.ID = e.QPN, 3
			s.wcs = append(s.wcs, tt.wc)
			s.Progress()
			assert.Equal(t, []uct.Status{ucs.StatusOK, tt.cause}, c.ended)
			assert.Equal(t, verbs.QPStateErr, e.link.(*QPLink).QP.State())
			assert.Equal(t, []uct.EP{e}, s.failed)
			s.complete(e, 4, verbs.WCWRFlushErr)
			assert.Equal(t, []uct.Status{ucs.StatusOK, tt.cause, tt.behind}, c.ended)
			s.complete(e, e.PI, verbs.WCWRFlushErr)
			assert.Equal(t, []uct.Status{ucs.StatusOK, tt.cause, tt.behind, tt.behind, tt.cause, tt.cause}, c.ended)
			assert.Len(t, s.errs, 1)
			assert.ErrorIs(t, s.errs[0], tt.cause.Err())
			s.allFree()
			assert.Equal(t, s.cfg.TxCQDepth, s.cqFree)
		})
	}
}

// If the last work requests of a failed EP are unsignaled, it posts a signaled one, which the
// device flushes, so that they complete.
func TestEnd_UnsignaledTail(t *testing.T) {
	s := newScript(t, Config{})
	e := s.connected()
	require.NoError(t, e.PutShort(nil, farAddr, farKey))
	require.NoError(t, e.PutBcopy(fillBytes(bigBytes), farAddr, farKey))
	s.took()
	s.complete(e, 1, verbs.WCSuccess)
	e.Fail(ucs.StatusConnReset, errFault)
	wr := s.one()
	assert.Equal(t, verbs.SendWR{ID: 3, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled}, wr)
	assert.Less(t, s.tx.Free(), s.cfg.TxBuffers)
	s.complete(e, 3, verbs.WCWRFlushErr)
	s.allFree()
	assert.Equal(t, s.cfg.TxCQDepth, s.cqFree)
	e.Fail(ucs.StatusTimedOut, errFault)
	assert.Len(t, s.errs, 1, "once")
	assert.Empty(t, s.took())
}

// stuckLink is a link whose device does not move the queue to ERR.
type stuckLink struct{ Link }

func (stuckLink) ToERR() error { return ucs.ErrBusy }

// The error of a failed EP contains the error of the device that does not move the queue to ERR.
func TestEnd_DeviceDoesNotFlush(t *testing.T) {
	s := newScript(t, Config{})
	e := s.connected()
	require.NoError(t, e.PutShort(nil, farAddr, farKey))
	e.link = stuckLink{e.link}
	e.Fail(ucs.StatusConnReset, errFault)
	require.Len(t, s.errs, 1)
	assert.ErrorIs(t, e.Close(), ucs.ErrBusy, "it is tried again")
	assert.Equal(t, 1, s.closing.Len())
	s.complete(e, 1, verbs.WCWRFlushErr)
	assert.Zero(t, s.closing.Len())
	for _, want := range []error{uct.ErrEPFailed, ucs.ErrConnReset, ucs.ErrBusy} {
		assert.ErrorIs(t, s.errs[0], want)
	}
}

// If an operation needs a signaled work request and the completion queue has no slot, it is posted
// when a slot is free.
func TestEnd_SignalWaitsForSlot(t *testing.T) {
	s := newScript(t, Config{TxDepth: 8, TxCQDepth: 4})
	other, e := s.connected(), s.connected()
	s.Progress() // before any EP has posted
	put := func() { require.NoError(t, other.PutShort(nil, farAddr, farKey)) }
	var c comps
	_, err := e.PutZcopy(s.pieces(1), farAddr, farKey, &uct.Completion{Count: 1, Func: func(*uct.Completion) { put() }}) // in the slot that is now free
	require.NoError(t, err)
	_, err = e.PutZcopy(s.pieces(1), farAddr, farKey, c.get())
	require.NoError(t, err)
	put()
	put()
	s.arrive(other, uint32(rcwire.AM(0, 0)), nil) // slots may be reclaimed after it
	s.took()
	s.complete(e, 1, verbs.WCSuccess)
	s.Progress()
	assert.EqualValues(t, 2, e.PI, "all places are in use")
	s.took()
	s.complete(other, 1, verbs.WCSuccess)
	s.Progress()
	assert.Equal(t, verbs.SendWR{ID: 3, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled}, s.one())
	s.complete(e, 3, verbs.WCSuccess)
	assert.Len(t, c.ended, 1)
}

// Flush waits for the work requests posted before it. It posts one only if the last one is
// unsignaled.
func TestFlush(t *testing.T) {
	s := newScript(t, Config{})
	e := s.connected()
	var c comps
	for name, flush := range map[string]func(*uct.Completion) (bool, error){"ep": e.Flush, "iface": s.Iface.Flush} {
		pending, err := flush(c.get())
		require.NoError(t, err)
		assert.False(t, pending, "%s: nothing is in flight", name)
		base := e.PI
		require.NoError(t, e.PutShort(nil, farAddr, farKey))
		require.NoError(t, e.PutShort(nil, farAddr, farKey))
		s.took()
		for range 3 {
			pending, err = flush(c.get())
			require.NoError(t, err)
			assert.True(t, pending)
		}
		pending, err = flush(nil)
		require.NoError(t, err)
		assert.True(t, pending)
		assert.Equal(t, verbs.SendWR{ID: base + 3, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled}, s.one(), name)
		s.complete(e, base+1, verbs.WCSuccess)
		assert.Empty(t, c.ended)
		s.complete(e, base+3, verbs.WCSuccess)
		assert.Equal(t, make([]uct.Status, 3), c.ended, name)
		assert.Empty(t, s.took())
		c.ended = nil
		s.allFree()
	}
}

// A flush that needs an op returns ErrNoResource if none is free. The first flush of an EP needs
// none.
func TestFlush_NoOps(t *testing.T) {
	s := newScript(t, Config{})
	e, other := s.connected(), s.connected()
	var c comps
	require.NoError(t, e.PutShort(nil, farAddr, farKey))
	require.NoError(t, other.PutShort(nil, farAddr, farKey))
	kept := s.ops
	s.ops = opPool{}
	pending, err := e.Flush(c.get())
	require.NoError(t, err)
	assert.True(t, pending)
	_, err = e.Flush(c.get())
	assert.Equal(t, uct.ErrNoResource, err)
	s.ops.put(new(op))
	_, err = s.Iface.Flush(c.get())
	assert.Equal(t, uct.ErrNoResource, err, "it needs two")
	s.ops = kept
	pending, err = s.Iface.Flush(c.get())
	require.NoError(t, err)
	assert.True(t, pending)
	s.complete(e, 1, verbs.WCSuccess)
	assert.Len(t, c.ended, 1)
	s.complete(other, 1, verbs.WCSuccess)
	assert.Len(t, c.ended, 2)
	s.allFree()
}

// Flush of the iface waits for EPs with work requests in flight, and not for idle or failed ones.
func TestFlush_IfaceScript(t *testing.T) {
	s := newScript(t, Config{})
	a, b, idle, failed := s.connected(), s.connected(), s.connected(), s.connected()
	var c comps
	for _, e := range []*EP{a, b, failed} {
		require.NoError(t, e.PutShort(nil, farAddr, farKey))
	}
	failed.Fail(ucs.StatusConnReset, errFault)
	pending, err := s.Iface.Flush(c.get())
	require.NoError(t, err)
	assert.True(t, pending)
	s.complete(a, 1, verbs.WCSuccess)
	assert.Empty(t, c.ended)
	s.complete(b, 1, verbs.WCSuccess)
	assert.Len(t, c.ended, 1)
	assert.Zero(t, idle.PI)
	pending, err = s.Iface.Flush(c.get())
	require.NoError(t, err)
	assert.False(t, pending)
}

// On an idle EP, Check posts a write of 0 bytes; otherwise it waits for the work requests in
// flight.
func TestCheck(t *testing.T) {
	s := newScript(t, Config{TxDepth: 2})
	e := s.newEP()
	_, err := e.Check(nil)
	assert.ErrorIs(t, err, ucs.ErrInvalidState)
	e = s.connected()
	var c comps
	pending, err := e.Check(c.get())
	require.NoError(t, err)
	assert.True(t, pending)
	assert.Equal(t, verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled}, s.one())
	pending, err = e.Check(c.get())
	require.NoError(t, err)
	assert.True(t, pending)
	assert.Empty(t, s.took())
	s.complete(e, 1, verbs.WCSuccess)
	assert.Len(t, c.ended, 2)
	pending, err = e.Check(nil)
	require.NoError(t, err)
	assert.True(t, pending)
	s.complete(e, 2, verbs.WCSuccess)
	s.refuse = ucs.ErrIO
	_, err = e.Check(c.get())
	assert.ErrorIs(t, err, uct.ErrEPFailed)
	_, err = e.Check(c.get())
	assert.ErrorIs(t, err, uct.ErrEPFailed)
	assert.Len(t, c.ended, 2)
}

// Completions go to their EPs, also if several QPNs have the same low byte, for any number of
// completions per poll.
func TestProgress_ManyEPs(t *testing.T) {
	const eps = 300
	s := newScript(t, Config{TxDepth: 2})
	byEnd := map[uint8]int{}
	var all []*EP
	ended := make([]int, eps)
	for i := range eps {
		e := s.newEP()
		require.NoError(t, e.Connect(s.DeviceAddr(nil), e.EPAddr(nil)))
		byEnd[uint8(e.QPN)]++
		all = append(all, e)
		_, err := e.PutZcopy(s.pieces(1), farAddr, farKey, &uct.Completion{Count: 1, Func: func(*uct.Completion) { ended[i]++ }})
		require.NoError(t, err)
	}
	require.Less(t, len(byEnd), eps, "some have the same last byte")
	for _, step := range []int{1, 7} { // one, then several per poll, of mixed EPs
		for i := range eps {
			at := i * 7 % eps
			if step == 7 {
				_, err := all[at].PutZcopy(s.pieces(1), farAddr, farKey, &uct.Completion{Count: 1, Func: func(*uct.Completion) { ended[at]++ }})
				require.NoError(t, err)
			}
			s.wcs = append(s.wcs, verbs.WC{QPN: all[at].QPN, ID: all[at].PI})
			if len(s.wcs) == step {
				assert.Equal(t, step, s.Progress())
			}
		}
		for len(s.wcs) > 0 {
			s.Progress()
		}
	}
	for _, n := range ended {
		require.Equal(t, 2, n)
	}
	assert.Zero(t, s.Progress())
	s.wcs = append(s.wcs, verbs.WC{QPN: 0xabcdef, ID: 1}, verbs.WC{QPN: 0xabcdef, ID: 1, Status: verbs.WCRemAccessErr})
	assert.Equal(t, 2, s.Progress(), "of an EP that is gone")
	assert.Empty(t, s.errs)
}

// A closed EP sends the disconnect message after the work requests in flight, and ends when it is
// complete.
func TestClose_SendsDisconnect(t *testing.T) {
	const depth = 3
	for _, before := range []int{0, 1, depth} {
		s := newScript(t, Config{TxDepth: depth})
		s.disconnectTimeout = 1 << 40
		e := s.connected()
		for range before {
			require.NoError(t, e.PutShort(nil, farAddr, farKey))
		}
		s.took()
		require.NoError(t, e.Close())
		require.NoError(t, e.Close())
		if before == depth {
			assert.Empty(t, s.took(), "no room")
			assert.True(t, e.disconnectPending)
			s.complete(e, depth-1, verbs.WCSuccess)
		}
		wr := s.one()
		assert.Equal(t, verbs.SendWR{ID: uint64(before) + 1, Opcode: verbs.OpSendWithImm, Flags: verbs.SendSignaled,
			Imm: uint32(rcwire.Disconnect())}, wr)
		assert.Equal(t, 1, s.closing.Len())
		assert.NotZero(t, s.progressInterval(), "somebody has to look")
		s.complete(e, wr.ID, verbs.WCSuccess)
		assert.Zero(t, s.closing.Len())
		assert.Zero(t, s.progressInterval())
		assert.Zero(t, s.eps.n)
		assert.Nil(t, s.Find(e.QPN))
		assert.Equal(t, []uct.EP{e}, s.removed)
		assert.Equal(t, s.cfg.TxCQDepth, s.cqFree)
		assert.Empty(t, s.errs)
	}
}

// If the peer does not acknowledge within the time limit, a closed EP cancels its work requests in
// flight.
func TestClose_CancelsAfterLimit(t *testing.T) {
	for name, pendingNotice := range map[string]bool{"sent": false, "not sent": true} {
		s := newScript(t, Config{TxDepth: 2})
		s.disconnectTimeout = 1 << 40
		e := s.connected()
		var c comps
		for range 2 {
			if _, err := e.PutZcopy(s.pieces(1), farAddr, farKey, c.get()); err != nil || !pendingNotice {
				break
			}
		}
		require.NoError(t, e.Close())
		require.Equal(t, pendingNotice, e.disconnectPending, name)
		s.Progress()
		assert.Equal(t, verbs.QPStateRTS, e.link.(*QPLink).QP.State(), name)
		e.disconnectLimit, s.disconnectTimeout = timelimit.New(1), 1
		for e.disconnectLimit.Waits() {
			s.Progress()
		}
		assert.Equal(t, verbs.QPStateErr, e.link.(*QPLink).QP.State(), name)
		assert.False(t, e.disconnectPending, name)
		assert.Equal(t, 1, s.closing.Len(), name)
		for id := e.CI + 1; id <= e.PI; id++ {
			s.complete(e, id, verbs.WCWRFlushErr)
		}
		for _, st := range c.ended {
			assert.Equal(t, ucs.StatusCanceled, st, name)
		}
		assert.NotEmpty(t, c.ended, name)
		assert.Zero(t, s.closing.Len(), name)
		assert.Empty(t, s.errs, name)
	}
}

// If the peer has closed too, neither side waits for the other.
func TestClose_PeerHasClosed(t *testing.T) {
	s := newScript(t, Config{})
	s.disconnectTimeout = 1 << 40
	e := s.connected()
	require.NoError(t, e.Close())
	s.arrive(e, uint32(rcwire.Disconnect()), nil)
	assert.Equal(t, verbs.QPStateErr, e.link.(*QPLink).QP.State())
	assert.Equal(t, 1, s.closing.Len(), "the device has its message")
	s.complete(e, e.PI, verbs.WCWRFlushErr)
	assert.Zero(t, s.closing.Len())
	assert.Empty(t, s.errs)
}

// A failed EP sends no message when it is closed, and waits for its work requests in flight.
func TestClose_FailedEPSendsNothing(t *testing.T) {
	s := newScript(t, Config{})
	e := s.connected()
	require.NoError(t, e.PutShort(nil, farAddr, farKey))
	e.Fail(ucs.StatusConnReset, errFault)
	s.took()
	require.NoError(t, e.Close())
	assert.Empty(t, s.took())
	assert.Equal(t, 1, s.closing.Len())
	s.complete(e, 1, verbs.WCWRFlushErr)
	assert.Zero(t, s.closing.Len())
	e = s.connected()
	e.Fail(ucs.StatusConnReset, errFault)
	require.NoError(t, e.Close())
	assert.Zero(t, s.closing.Len(), "nothing is in flight")
	e = s.newEP()
	require.NoError(t, e.Close())
	assert.Zero(t, s.closing.Len(), "it was never connected")
	assert.Empty(t, s.took())
}

// CancelOps completes the operations of an EP whose link has discarded the work requests.
func TestEP_Canceled(t *testing.T) {
	s := newScript(t, Config{})
	e := s.connected()
	e.CancelOps() // no effect
	var c comps
	for range 2 {
		_, err := e.PutZcopy(s.pieces(1), farAddr, farKey, c.get())
		require.NoError(t, err)
	}
	e.Fail(ucs.StatusConnReset, errFault)
	e.CancelOps()
	assert.Equal(t, []uct.Status{ucs.StatusConnReset, ucs.StatusConnReset}, c.ended)
	assert.Equal(t, e.PI, e.CI)
	s.took()
	e.SendDisconnect()
	assert.Equal(t, uint32(rcwire.Disconnect()), s.one().Imm)
}

// If the completion queue has overrun, all EPs fail and their operations complete, once.
func TestCQError_CompletesOperationsOnce(t *testing.T) {
	ext := &extension{}
	s := newScript(t, Config{}, func(p *Params) { p.Extension = ext })
	ext.s = s
	open, closed, unused := s.connected(), s.connected(), s.newEP()
	var c comps
	for _, e := range []*EP{open, closed} {
		_, err := e.PutZcopy(s.pieces(1), farAddr, farKey, c.get())
		require.NoError(t, err)
	}
	require.NoError(t, closed.Close())
	s.broken = true
	for range 3 {
		assert.Zero(t, s.Progress())
	}
	assert.Equal(t, []uct.Status{ucs.StatusIOError, ucs.StatusCanceled}, c.ended)
	assert.Equal(t, []uct.EP{open, unused}, s.failed)
	assert.Equal(t, 1, ext.lost)
	assert.Equal(t, []uct.EP{open, unused}, ext.failed)
	assert.Zero(t, s.closing.Len())
	_, err := s.NewEP(uct.EPParams{})
	assert.ErrorIs(t, err, ErrCQLost)
	assert.Equal(t, verbs.QPStateReset, open.link.(*QPLink).QP.State())
}
