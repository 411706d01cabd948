package rccore

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// script is an iface over a simulated device: it records posted work requests, and polls return
// completions that the test has made.
type script struct {
	Iface
	t      *testing.T
	memory uct.Mem // 64 KiB
	posted []verbs.SendWR
	wcs    []verbs.WC // for the next polls
	polls  int
	broken bool     // polls report that the queue has overrun
	refuse error    // error of the next post
	recvs  []uint64 // IDs of posted receives, in order
	failed []uct.EP

	removed []uct.EP
	errs    []error // errors that OnError got
	last    bool    // the test ends: all work requests succeed
}

// scriptDriver is the Driver of a script.
type scriptDriver struct{ *script }

func (d scriptDriver) Attach(*verbs.CQ, *verbs.SRQ) (CompQueue, buffer.RecvPoster, error) {
	return d, d, nil
}

func (d scriptDriver) MakeEP(Link) (uct.EP, *EP, SendQueue, error) {
	e := new(EP)
	return e, e, d, nil
}

func (d scriptDriver) RemoveEP(ep uct.EP) { d.removed = append(d.removed, ep) }
func (scriptDriver) Arm(bool) error       { return nil }
func (d scriptDriver) Watch() *ucs.Watch  { return nil }
func (d scriptDriver) left() (wcs []verbs.WC) {
	for _, e := range slices.Concat(d.open.All(), d.closing.All()) {
		if e.PI != e.CI {
			wcs = append(wcs, verbs.WC{QPN: e.QPN, ID: e.PI})
		}
	}
	return wcs
}

func (d scriptDriver) Poll(wc []verbs.WC) int {
	d.polls++
	if d.broken {
		return -1
	}
	if d.last {
		d.wcs = append(d.wcs, d.left()...)
	}
	n := copy(wc, d.wcs)
	d.wcs = d.wcs[n:]
	return n
}

func (d scriptDriver) PostSend(wr []verbs.SendWR) (int, error) {
	if err := d.refuse; err != nil {
		d.refuse = nil
		return 0, err
	}
	for _, w := range wr {
		w.SGList, w.Inline = slices.Clone(w.SGList), slices.Clone(w.Inline)
		d.posted = append(d.posted, w)
	}
	return len(wr), nil
}

func (d scriptDriver) PostRecv(wr []verbs.RecvWR) (int, error) {
	for _, w := range wr {
		d.recvs = append(d.recvs, w.ID)
	}
	return len(wr), nil
}

// newScript opens an iface over a script.
func newScript(t *testing.T, cfg Config, change ...func(*Params)) *script {
	t.Helper()
	s := &script{t: t}
	md := ibtest.NewMD(t, softhca.FabricLoop)
	p := Params{Name: "script", Port: 1, Config: cfg, Driver: scriptDriver{s}, Self: &s.Iface}
	for _, c := range change {
		c(&p)
	}
	require.NoError(t, Open(&s.Iface, md, p, uct.IfaceParams{Device: ibtest.Device, OnError: func(ep uct.EP, err error) {
		s.failed, s.errs = append(s.failed, ep), append(s.errs, err)
	}}))
	t.Cleanup(func() {
		s.last = true
		require.NoError(t, s.Close())
	})
	var err error
	s.memory, err = md.Alloc(64<<10, uct.AccessAll)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.memory.Close()) })
	return s
}

// newEP creates an EP that is not connected.
func (s *script) newEP() *EP {
	s.t.Helper()
	ep, err := s.NewEP(uct.EPParams{})
	require.NoError(s.t, err)
	return ep.(*EP)
}

// connected creates an EP that is connected with itself.
func (s *script) connected() *EP {
	s.t.Helper()
	e := s.newEP()
	require.NoError(s.t, e.Connect(s.DeviceAddr(nil), e.EPAddr(nil)))
	return e
}

// took returns what was posted since the last call.
func (s *script) took() []verbs.SendWR {
	wrs := s.posted
	s.posted = nil
	return wrs
}

// one returns the only work request posted since the last call.
func (s *script) one() verbs.SendWR {
	s.t.Helper()
	wrs := s.took()
	require.Len(s.t, wrs, 1)
	return wrs[0]
}

// signaled returns the IDs of the signaled work requests posted since the last call.
func (s *script) signaled() (ids []uint64) {
	for _, wr := range s.took() {
		if wr.Flags&verbs.SendSignaled != 0 {
			ids = append(ids, wr.ID)
		}
	}
	return ids
}

// complete adds the completion of a work request of e, and so of all unsignaled ones before it.
func (s *script) complete(e *EP, id uint64, st verbs.WCStatus) {
	s.wcs = append(s.wcs, verbs.WC{QPN: e.QPN, ID: id, Status: st})
	assert.Equal(s.t, 1, s.Progress())
}

// arrive adds the completion of a message to e.
func (s *script) arrive(e *EP, imm uint32, payload []byte) {
	s.arriveAs(verbs.WC{QPN: e.QPN, Opcode: verbs.WCRecv, Flags: verbs.WCWithImm, Imm: imm, ByteLen: uint32(len(payload))}, payload)
}

// arriveAs adds the completion wc of a receive.
func (s *script) arriveAs(wc verbs.WC, payload []byte) {
	s.t.Helper()
	require.NotEmpty(s.t, s.recvs)
	wc.ID = s.recvs[0]
	s.recvs = s.recvs[1:]
	b := s.rx.Buf(wc.ID)
	copy(b.Bytes(b.Len()), payload)
	s.wcs = append(s.wcs, wc)
	assert.Equal(s.t, 1, s.Progress())
}

// allFree checks that no bounce buffer, op or slot of the completion queue is in use.
func (s *script) allFree() {
	s.t.Helper()
	assert.Equal(s.t, s.cfg.TxBuffers, s.tx.Free(), "bounce buffers")
	assert.Equal(s.t, s.ops.total, s.ops.freeCount, "ops")
}

// Targets and sizes of the operations of the tests.
const (
	farAddr  = 0x1000
	farKey   = uct.RKey(77)
	bigBytes = 600 // longer than inline data and slots
)

// operation is an operation of an EP.
type operation struct {
	name    string
	message bool // consumes a credit
	reads   bool // Fence must wait for it
	ends    bool // has a completion
	want    verbs.SendWR
	post    func(e *EP, c *uct.Completion) error
}

// pieces returns an IOV list of n times 10 bytes of the memory of a script.
func (s *script) pieces(n int) (iov []uct.IOV) {
	for i := range n {
		iov = append(iov, uct.IOV{Buf: s.memory.Bytes()[100*i:][:10], Mem: s.memory})
	}
	return iov
}

// operations returns all operations of an EP.
func (s *script) operations() []operation {
	pending := func(_ bool, err error) error { return err }
	big := fillBytes(bigBytes)
	const far, key = farAddr, farKey
	to := func(op verbs.Opcode) verbs.SendWR {
		return verbs.SendWR{Opcode: op, RemoteAddr: far, RKey: uint32(key)}
	}
	word := func(op verbs.Opcode) verbs.SendWR { w := to(op); w.Imm = 99; return w }
	am := verbs.SendWR{Opcode: verbs.OpSendWithImm, Imm: 3}
	add, swap := to(verbs.OpAtomicFetchAdd), to(verbs.OpAtomicCmpSwap)
	add.CompareAdd, swap.CompareAdd, swap.Swap = 5, 6, 7
	return []operation{
		{"put short", false, false, false, to(verbs.OpRDMAWrite), func(e *EP, _ *uct.Completion) error { return e.PutShort(big[:4], far, key) }},
		{"put bcopy inline", false, false, false, to(verbs.OpRDMAWrite), func(e *EP, _ *uct.Completion) error { return e.PutBcopy(big[:4], far, key) }},
		{"put bcopy", false, false, false, to(verbs.OpRDMAWrite), func(e *EP, _ *uct.Completion) error { return e.PutBcopy(big, far, key) }},
		{"put zcopy", false, false, true, to(verbs.OpRDMAWrite), func(e *EP, c *uct.Completion) error { return pending(e.PutZcopy(s.pieces(1), far, key, c)) }},
		{"put zcopy list", false, false, true, to(verbs.OpRDMAWrite), func(e *EP, c *uct.Completion) error { return pending(e.PutZcopy(s.pieces(2), far, key, c)) }},
		{"put zcopy alone", false, false, false, to(verbs.OpRDMAWrite), func(e *EP, _ *uct.Completion) error { return pending(e.PutZcopy(s.pieces(1), far, key, nil)) }},
		{"get bcopy", false, true, true, to(verbs.OpRDMARead), func(e *EP, c *uct.Completion) error { return pending(e.GetBcopy(make([]byte, 8), far, key, c)) }},
		{"get bcopy long", false, true, true, to(verbs.OpRDMARead), func(e *EP, c *uct.Completion) error { return pending(e.GetBcopy(make([]byte, bigBytes), far, key, c)) }},
		{"get zcopy", false, true, true, to(verbs.OpRDMARead), func(e *EP, c *uct.Completion) error { return pending(e.GetZcopy(s.pieces(1), far, key, c)) }},
		{"get zcopy list", false, true, true, to(verbs.OpRDMARead), func(e *EP, c *uct.Completion) error { return pending(e.GetZcopy(s.pieces(2), far, key, c)) }},
		{"get zcopy alone", false, true, false, to(verbs.OpRDMARead), func(e *EP, _ *uct.Completion) error { return pending(e.GetZcopy(s.pieces(1), far, key, nil)) }},
		{"add", false, true, false, add, func(e *EP, _ *uct.Completion) error { return e.AtomicPost(uct.AtomicAdd, 8, 5, far, key) }},
		{"fetch add", false, true, true, add, func(e *EP, c *uct.Completion) error {
			return pending(e.AtomicFetch(uct.AtomicAdd, 8, 5, new(uint64), far, key, c))
		}},
		{"compare and swap", false, true, true, swap, func(e *EP, c *uct.Completion) error { return pending(e.AtomicCSwap(8, 6, 7, new(uint64), far, key, c)) }},
		{"am short", true, false, false, am, func(e *EP, _ *uct.Completion) error { return e.AMShort(3, 1, big[:4]) }},
		{"am bcopy", true, false, false, am, func(e *EP, _ *uct.Completion) error { _, err := e.AMBcopy(3, &fill{bigBytes}); return err }},
		{"am zcopy", true, false, true, am, func(e *EP, c *uct.Completion) error { return pending(e.AMZcopy(3, big[:4], s.pieces(2), c)) }},
		{"notify bcopy", true, false, false, word(verbs.OpRDMAWriteWithImm), func(e *EP, _ *uct.Completion) error { return e.NotifyBcopy(big, far, key, 99) }},
		{"notify zcopy", true, false, true, word(verbs.OpRDMAWriteWithImm), func(e *EP, c *uct.Completion) error { return pending(e.NotifyZcopy(s.pieces(2), far, key, 99, c)) }},
	}
}

func fillBytes(n int) []byte {
	b := make([]byte, n)
	(&fill{n}).Pack(b)
	return b
}

// eachOperation runs f for each operation, each on an EP of its own.
func eachOperation(t *testing.T, cfg Config, f func(t *testing.T, s *script, e *EP, op operation)) {
	s := newScript(t, cfg)
	for _, op := range s.operations() {
		t.Run(op.name, func(t *testing.T) {
			outer := s.t
			s.t = t
			defer func() { s.t = outer }()
			e := s.connected()
			s.took()
			f(t, s, e, op)
			if e.state != stateClosed {
				s.last = true
				require.NoError(t, e.Close())
				for s.closing.Len() > 0 {
					s.Progress()
				}
				s.last = false
			}
			s.wcs, s.errs, s.failed = nil, nil, nil
			s.allFree()
		})
	}
}

// Each operation posts a numbered work request with its parameters, signaled because no other one
// is in flight.
func TestPost_WorkRequest(t *testing.T) {
	eachOperation(t, Config{}, func(t *testing.T, s *script, e *EP, op operation) {
		var c comps
		require.NoError(t, op.post(e, c.get()))
		wr := s.one()
		assert.NotZero(t, wr.Flags&verbs.SendSignaled)
		assert.Zero(t, wr.Flags&verbs.SendFence)
		var data []byte
		if wr.Flags&verbs.SendInline != 0 {
			assert.Empty(t, wr.SGList)
			data = wr.Inline
		}
		size := len(data)
		for _, sge := range wr.SGList {
			size += int(sge.Length)
		}
		wr.Flags, wr.SGList, wr.Inline = 0, nil, nil
		want := op.want
		want.ID = 1
		assert.Equal(t, want, wr)
		assert.Equal(t, map[string]int{
			"put short": 4, "put bcopy inline": 4, "put bcopy": bigBytes, "put zcopy": 10, "put zcopy list": 20, "put zcopy alone": 10,
			"get bcopy": 8, "get bcopy long": bigBytes, "get zcopy": 10, "get zcopy list": 20, "get zcopy alone": 10,
			"add": 8, "fetch add": 8, "compare and swap": 8,
			"am short": 8 + 4, "am bcopy": bigBytes, "am zcopy": 4 + 20, "notify bcopy": bigBytes, "notify zcopy": 20,
		}[op.name], size)
		assert.EqualValues(t, 1, e.PI)
		assert.Zero(t, e.CI)
		assert.Empty(t, c.ended)
		s.complete(e, 1, verbs.WCSuccess)
		assert.Equal(t, op.ends, len(c.ended) == 1)
		for _, st := range c.ended {
			assert.Equal(t, ucs.StatusOK, st)
		}
		assert.EqualValues(t, 1, e.CI)
		assert.Empty(t, s.took(), "nothing more is posted")
		s.allFree()
	})
}

// An atomic at a multiple of 8 is posted; at other addresses it returns an error.
func TestPost_AtomicsAligned(t *testing.T) {
	s := newScript(t, Config{})
	e := s.connected()
	for off := range uint64(17) {
		errs := []error{e.AtomicPost(uct.AtomicAdd, 8, 1, farAddr+off, farKey), nil, nil}
		_, errs[1] = e.AtomicFetch(uct.AtomicAdd, 8, 1, nil, farAddr+off, farKey, new(comps).get())
		_, errs[2] = e.AtomicCSwap(8, 1, 2, nil, farAddr+off, farKey, new(comps).get())
		want := error(nil)
		if off%8 != 0 {
			want = uct.ErrInvalidParam
		}
		assert.Equal(t, []error{want, want, want}, errs, "offset %d", off)
		posted := s.took()
		if want != nil {
			assert.Empty(t, posted)
			continue
		}
		require.Len(t, posted, 3)
		for _, wr := range posted {
			assert.EqualValues(t, farAddr+off, wr.RemoteAddr)
		}
	}
}

// Each operation is posted while the queue has a slot. Without one it returns an error and holds no
// resource.
func TestPost_Room(t *testing.T) {
	const depth = 3
	eachOperation(t, Config{TxDepth: depth}, func(t *testing.T, s *script, e *EP, op operation) {
		var c comps
		for range depth - 1 {
			require.NoError(t, e.PutShort(nil, farAddr, farKey))
		}
		require.NoError(t, op.post(e, c.get()), "the last place")
		credits, ops, buffers := e.Credits, s.ops.freeCount, s.tx.Free()
		assert.Equal(t, uct.ErrNoResource, op.post(e, c.get()))
		assert.Len(t, s.took(), depth)
		assert.EqualValues(t, depth, e.PI)
		assert.Equal(t, credits, e.Credits)
		assert.Equal(t, ops, s.ops.freeCount)
		assert.Equal(t, buffers, s.tx.Free())
		s.complete(e, 1, verbs.WCSuccess)
		require.NoError(t, op.post(e, c.get()), "a place is free")
		assert.Equal(t, uct.ErrNoResource, op.post(e, c.get()))
	})
}

// A message consumes one credit, and returns an error without one. Other operations need none.
func TestPost_Credits(t *testing.T) {
	eachOperation(t, Config{FCWindow: 2}, func(t *testing.T, s *script, e *EP, op operation) {
		var c comps
		for range 2 {
			require.NoError(t, op.post(e, c.get()))
		}
		if !op.message {
			assert.EqualValues(t, 2, e.Credits)
			require.NoError(t, op.post(e, c.get()))
			return
		}
		assert.Zero(t, e.Credits)
		ops, buffers := s.ops.freeCount, s.tx.Free()
		assert.Equal(t, uct.ErrNoResource, op.post(e, c.get()))
		assert.Len(t, s.took(), 2)
		assert.Equal(t, ops, s.ops.freeCount)
		assert.Equal(t, buffers, s.tx.Free())
	})
}

// If the device refuses an operation, the EP fails, once. The operation holds no resource, and its
// completion is not called.
func TestPost_DeviceError(t *testing.T) {
	eachOperation(t, Config{}, func(t *testing.T, s *script, e *EP, op operation) {
		var c comps
		s.refuse = ucs.ErrIO
		err := op.post(e, c.get())
		require.ErrorIs(t, err, uct.ErrEPFailed)
		assert.ErrorIs(t, err, ucs.ErrIO)
		assert.Zero(t, e.PI)
		assert.Empty(t, c.ended)
		assert.Equal(t, []uct.EP{e}, s.failed)
		require.Len(t, s.errs, 1)
		assert.Equal(t, err, s.errs[0])
		s.allFree()
		assert.Equal(t, err, op.post(e, c.get()), "it has failed")
		assert.Empty(t, s.took())
	})
}

// Operations before Connect, after a failure and after Close return the error of the state.
func TestPost_States(t *testing.T) {
	eachOperation(t, Config{}, func(t *testing.T, s *script, e *EP, op operation) {
		var c comps
		assert.ErrorIs(t, op.post(s.newEP(), c.get()), ucs.ErrInvalidState)
		other := s.connected()
		other.Fail(ucs.StatusConnReset, errFault)
		assert.ErrorIs(t, op.post(other, c.get()), ucs.ErrConnReset)
		require.NoError(t, e.Close())
		s.took()
		assert.ErrorIs(t, op.post(e, c.get()), uct.ErrClosed)
		assert.Empty(t, s.took())
		assert.Empty(t, c.ended)
		s.last = true
		for s.closing.Len() > 0 {
			s.Progress()
		}
		s.last = false
	})
}

// After Fence, the next operation waits for reads and atomics of each kind before it, and only for
// those.
func TestPost_Fence(t *testing.T) {
	eachOperation(t, Config{}, func(t *testing.T, s *script, e *EP, op operation) {
		var c comps
		fenced := func() bool { return s.one().Flags&verbs.SendFence != 0 }
		require.NoError(t, op.post(e, c.get()))
		assert.False(t, fenced())
		require.NoError(t, e.Fence())
		require.NoError(t, e.PutShort(nil, farAddr, farKey))
		assert.Equal(t, op.reads, fenced(), "behind it")
		s.complete(e, e.PI, verbs.WCSuccess)

		require.NoError(t, e.AtomicPost(uct.AtomicAdd, 8, 1, farAddr, farKey))
		require.NoError(t, e.Fence())
		assert.False(t, fenced())
		require.NoError(t, op.post(e, c.get()))
		assert.True(t, fenced(), "it is the next")
		require.NoError(t, op.post(e, c.get()))
		assert.False(t, fenced(), "once")
		for range 2 * reserveStep { // the EP reserves more slots
			require.NoError(t, e.PutShort(nil, farAddr, farKey))
			require.False(t, fenced(), "once")
		}
		s.complete(e, e.PI, verbs.WCSuccess)
		require.NoError(t, s.Fence())
		require.NoError(t, op.post(e, c.get()))
		assert.False(t, fenced(), "reads are complete")
	})
}

// With Moderation m, the first work request of an idle EP is signaled, and each one that is m after
// the last signaled one. An operation with a completion is signaled if no signaled one is in
// flight; a zero-copy message always.
func TestPost_Signals(t *testing.T) {
	const moderation = 4
	eachOperation(t, Config{Moderation: moderation}, func(t *testing.T, s *script, e *EP, op operation) {
		var c comps
		for range 11 {
			require.NoError(t, op.post(e, c.get()))
		}
		want := []uint64{1, 6, 11}
		if op.name == "am zcopy" {
			want = []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
		}
		assert.Equal(t, want, s.signaled(), "all at once")
		s.complete(e, 6, verbs.WCSuccess)
		for range 4 { // after 11, which is in flight if it is signaled
			require.NoError(t, op.post(e, c.get()))
		}
		if op.name != "am zcopy" {
			assert.Empty(t, s.signaled(), "one is on its way")
		}
		s.took()
		s.complete(e, 11, verbs.WCSuccess)
		if !op.ends || op.name == "am zcopy" {
			assert.Empty(t, s.took())
			return
		}
		wr := s.one() // 15 has a completion, and no signaled one is in flight
		assert.Equal(t, verbs.SendWR{ID: 16, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled}, wr)
		assert.Len(t, c.ended, 11)
		s.complete(e, 16, verbs.WCSuccess)
		assert.Len(t, c.ended, 15)
		assert.Empty(t, s.took())

		require.NoError(t, e.PutShort(nil, farAddr, farKey)) // signaled
		require.NoError(t, e.PutShort(nil, farAddr, farKey)) // unsignaled
		s.complete(e, 17, verbs.WCSuccess)
		s.took()
		require.NoError(t, op.post(e, c.get()))
		assert.NotZero(t, s.one().Flags&verbs.SendSignaled, "behind one without completion none is on its way")
	})
}
