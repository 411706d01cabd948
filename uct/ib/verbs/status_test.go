package verbs_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// Every status that a QP of this device can produce, with a cause: what the
// requester sees, and what the responder's receive sees.
func TestStatus_Causes(t *testing.T) {
	cases := []struct {
		name      string
		path      path
		wr        func(a, b *side) verbs.SendWR
		prepare   func(a, b *side)
		requester verbs.WCStatus
		receiver  verbs.WCStatus
	}{
		{name: "success", path: defaultPath, requester: verbs.WCSuccess, receiver: none,
			wr: func(a, b *side) verbs.SendWR { return write(1, a, b, 8) }},
		{name: "atomic of 4 bytes, which are 8", path: defaultPath, requester: verbs.WCSuccess, receiver: none,
			wr: func(a, b *side) verbs.SendWR {
				return verbs.SendWR{ID: 1, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 4)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
			}},
		{name: "receive too small", path: defaultPath, requester: verbs.WCRemInvReqErr, receiver: verbs.WCLocLenErr,
			prepare: func(_, b *side) { b.recv(16, 7) },
			wr:      func(a, _ *side) verbs.SendWR { return send(1, a, 17) }},
		{name: "unknown local key", path: defaultPath, requester: verbs.WCLocProtErr, receiver: none,
			wr: func(a, b *side) verbs.SendWR {
				wr := write(1, a, b, 8)
				wr.SGList[0].LKey ^= 0x5500
				return wr
			}},
		{name: "local range", path: defaultPath, requester: verbs.WCLocProtErr, receiver: none,
			wr: func(a, b *side) verbs.SendWR {
				wr := write(1, a, b, 8)
				wr.SGList[0].Length = bufLen + 1
				return wr
			}},
		{name: "local region of another domain", path: defaultPath, requester: verbs.WCLocProtErr, receiver: none,
			wr: func(a, b *side) verbs.SendWR {
				wr := write(1, a, b, 8)
				wr.SGList[0] = a.device.mr(a.otherPD(), anyone).SGE(0, 8)
				return wr
			}},
		{name: "read into a region without local write", path: defaultPath, requester: verbs.WCLocProtErr, receiver: none,
			wr: func(a, b *side) verbs.SendWR {
				wr := write(1, a, b, 8)
				wr.Opcode = verbs.OpRDMARead
				wr.SGList[0] = a.device.mr(a.pd, 0).SGE(0, 8)
				return wr
			}},
		{name: "QP without the right to be written", path: path{access: verbs.AccessRemoteRead, rnr: 7}, requester: verbs.WCRemInvReqErr, receiver: none,
			wr: func(a, b *side) verbs.SendWR { return write(1, a, b, 8) }},
		{name: "unknown remote key", path: defaultPath, requester: verbs.WCRemAccessErr, receiver: none,
			wr: func(a, b *side) verbs.SendWR {
				wr := write(1, a, b, 8)
				wr.RKey ^= 0x5500
				return wr
			}},
		{name: "closed remote region", path: defaultPath, requester: verbs.WCRemAccessErr, receiver: none,
			prepare: func(_, b *side) { require.NoError(b.t, b.mr.Close()) },
			wr:      func(a, b *side) verbs.SendWR { return write(1, a, b, 8) }},
		{name: "remote range", path: defaultPath, requester: verbs.WCRemAccessErr, receiver: none,
			wr: func(a, b *side) verbs.SendWR {
				wr := write(1, a, b, 8)
				wr.RemoteAddr += bufLen - 7
				return wr
			}},
		{name: "remote range wraps", path: defaultPath, requester: verbs.WCRemAccessErr, receiver: none,
			wr: func(a, b *side) verbs.SendWR {
				wr := write(1, a, b, 8)
				wr.RemoteAddr = 1<<64 - 4
				return wr
			}},
		{name: "remote region without write", path: defaultPath, requester: verbs.WCRemAccessErr, receiver: none,
			wr: func(a, b *side) verbs.SendWR {
				wr := write(1, a, b, 8)
				ro := b.device.mr(b.pd, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
				wr.RemoteAddr, wr.RKey = ro.Addr(), ro.RKey()
				return wr
			}},
		{name: "remote region of another domain", path: defaultPath, requester: verbs.WCRemAccessErr, receiver: none,
			wr: func(a, b *side) verbs.SendWR {
				wr := write(1, a, b, 8)
				mr := b.device.mr(b.otherPD(), anyone)
				wr.RemoteAddr, wr.RKey = mr.Addr(), mr.RKey()
				return wr
			}},
		{name: "receive with a bad key", path: defaultPath, requester: verbs.WCRemOpErr, receiver: verbs.WCLocProtErr,
			prepare: func(_, b *side) {
				_, err := b.qp.PostRecv([]verbs.RecvWR{{ID: 7, SGList: []verbs.SGE{{Addr: b.mr.Addr(), Length: 64, LKey: b.mr.LKey() ^ 0x5500}}}})
				require.NoError(b.t, err)
			},
			wr: func(a, _ *side) verbs.SendWR { return send(1, a, 8) }},
		{name: "no receive", path: path{access: anyone, rnr: 1}, requester: verbs.WCRNRRetryExcErr, receiver: none,
			wr: func(a, _ *side) verbs.SendWR { return send(1, a, 8) }},
		{name: "peer was reset", path: defaultPath, requester: verbs.WCRetryExcErr, receiver: none,
			prepare: func(_, b *side) {
				require.NoError(b.t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
			},
			wr: func(a, b *side) verbs.SendWR { return write(1, a, b, 8) }},
	}
	for _, c := range cases {
		if other, ok := rxeStatuses[c.name]; ok && os.Getenv(deviceEnv) != "" {
			c.requester, c.receiver = other[0], other[1]
		}
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, c.path)
			if c.prepare != nil {
				c.prepare(a, b)
			}
			a.post(c.wr(a, b)) // errors complete also when unsignaled
			wc := a.one()
			assert.Equal(t, c.requester, wc.Status, "requester: %v", wc.Status)
			assert.Equal(t, uint64(1), wc.ID)
			assert.Equal(t, a.qp.Number(), wc.QPN)
			if c.receiver != none {
				wc := b.one()
				assert.Equal(t, c.receiver, wc.Status, "receiver: %v", wc.Status)
				assert.Equal(t, uint64(7), wc.ID)
			}
			if c.requester != verbs.WCSuccess {
				a.awaitState(verbs.QPStateErr)
			}
			b.quiet()
			a.quiet()
		})
	}
}

// none stands for the status of a side that gets no completion.
const none = verbs.WCStatus(255)

// rxeStatuses are the statuses, of requester and receiver, for which rxe of Linux 6.1 has others than mlx5.
var rxeStatuses = map[string][2]verbs.WCStatus{
	"receive too small":              {verbs.WCRemOpErr, verbs.WCLocQPOpErr},
	"unknown local key":              {verbs.WCLocQPOpErr, none},
	"local range":                    {verbs.WCRemAccessErr, none},
	"local region of another domain": {verbs.WCLocQPOpErr, none},
	"receive with a bad key":         {verbs.WCRemOpErr, verbs.WCLocQPOpErr},
}

// After an error the QP flushes what was posted behind it and what is posted
// later, signaled or not, and its receives.
func TestStatus_FlushOnError(t *testing.T) {
	a, b := pair(t, defaultPath)
	a.recv(64, 11, 12)
	bad := write(1, a, b, 8)
	bad.RKey ^= 0x5500
	unsignaled := write(3, a, b, 8)
	unsignaled.Flags = 0
	a.post(bad, write(2, a, b, 8), unsignaled)
	got := map[uint64]verbs.WCStatus{}
	var order []uint64
	for _, wc := range a.await(5) {
		got[wc.ID] = wc.Status
		order = append(order, wc.ID)
	}
	flush := verbs.WCWRFlushErr
	assert.Equal(t, map[uint64]verbs.WCStatus{1: verbs.WCRemAccessErr, 2: flush, 3: flush, 11: flush, 12: flush}, got)
	assert.Equal(t, []uint64{1, 2, 3}, keep(order, func(id uint64) bool { return id < 10 }))
	assert.Equal(t, []uint64{11, 12}, keep(order, func(id uint64) bool { return id > 10 }))

	a.post(unsignaled)
	assert.Equal(t, verbs.WCWRFlushErr, a.one().Status, "posting in ERR is allowed")
	a.recv(64, 13)
	a.post(write(4, a, b, 8))
	ids := map[uint64]verbs.WCStatus{}
	for _, wc := range a.await(2) {
		ids[wc.ID] = wc.Status
	}
	assert.Equal(t, map[uint64]verbs.WCStatus{13: flush, 4: flush}, ids)
}

func keep(in []uint64, f func(uint64) bool) (out []uint64) {
	for _, x := range in {
		if f(x) {
			out = append(out, x)
		}
	}
	return out
}

// A move to ERR flushes; through RESET the QP works again, with nothing left.
func TestStatus_ErrAndReset(t *testing.T) {
	a, b := pair(t, defaultPath)
	b.recv(64, 1, 2)
	require.NoError(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState))
	for i, wc := range b.await(2) {
		assert.Equal(t, uint64(i+1), wc.ID)
		assert.Equal(t, verbs.WCWRFlushErr, wc.Status)
	}
	for _, s := range []*side{a, b} {
		require.NoError(t, s.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
		assert.Equal(t, verbs.QPStateReset, s.qp.State())
	}
	a.join(b.qp.Number(), defaultPath)
	b.join(a.qp.Number(), defaultPath)
	b.recv(64, 3)
	a.post(send(4, a, 10))
	assert.Equal(t, verbs.WCSuccess, a.one().Status)
	wc := b.one()
	assert.Equal(t, verbs.WC{ID: 3, Opcode: verbs.WCRecv, ByteLen: 10, QPN: b.qp.Number()}, verbs.WC{ID: wc.ID, Opcode: wc.Opcode, ByteLen: wc.ByteLen, QPN: wc.QPN, Status: wc.Status})
}

// The victim of a bad access goes to ERR as well, and its context is told.
func TestStatus_TargetIsNotified(t *testing.T) {
	if os.Getenv(deviceEnv) != "" {
		t.Skip("rxe raises no event when it refuses an access")
	}
	a, b := pair(t, defaultPath)
	bad := write(1, a, b, 8)
	bad.RKey ^= 0x5500
	a.post(bad)
	assert.Equal(t, verbs.WCRemAccessErr, a.one().Status)
	b.awaitState(verbs.QPStateErr)
	ev, err := b.ctx.NextAsyncEvent()
	require.NoError(t, err)
	assert.Equal(t, verbs.EventQPAccessErr, ev.Type)
	assert.Same(t, b.qp, ev.QP)
}

func TestWCStatus_Texts(t *testing.T) {
	seen := map[string]bool{}
	for s := verbs.WCSuccess; s <= 23; s++ { // all of enum ibv_wc_status
		assert.NotEmpty(t, s.String())
		assert.False(t, seen[s.String()], "%q twice", s)
		seen[s.String()] = true
		assert.Equal(t, s == verbs.WCSuccess, s.Err() == nil)
	}
	assert.Equal(t, "unknown work completion status 99", verbs.WCStatus(99).String())
	var wcErr *verbs.WCError
	require.ErrorAs(t, verbs.WCRemAccessErr.Err(), &wcErr)
	assert.Equal(t, verbs.WCRemAccessErr, wcErr.Status)
	assert.Equal(t, "remote access error", wcErr.Error())
}
