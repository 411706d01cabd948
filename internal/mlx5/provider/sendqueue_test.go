package provider

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// ringBytes is n bytes of the QP's send ring from BB i on.
func ringBytes(qp *verbs.QP, i uint32, n int) []byte {
	q := qp.Provider().(*queuePair)
	var out []byte
	for len(out) < n {
		out = append(out, q.sq.wqes.BB(i)[:]...)
		i++
	}
	return out[:n]
}

// What is in the ring is what rings: a WQE whole by BlueFlame, a list by the first eight
// bytes of its last one.
func TestPostSend_Rings(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	r.hw.record = true
	qp := r.qp(verbs.QPInitAttr{})
	q := qp.Provider().(*queuePair)
	post(t, qp, inlineWrite(1, 8))
	assert.Equal(t, uint16(1), q.sq.dbrec.Send())
	require.Len(t, r.hw.rings, 1)
	assert.Equal(t, q.sq.uuar.base, r.hw.rings[0].off)
	assert.Equal(t, ringBytes(qp, 0, 64), r.hw.rings[0].bytes(64), "BlueFlame carries the whole WQE")
	assert.Equal(t, ringBytes(qp, 0, 8), r.hw.rings[0].argument())

	post(t, qp, inlineWrite(2, 8), inlineWrite(3, 8), inlineWrite(4, 8))
	assert.Equal(t, uint16(4), q.sq.dbrec.Send())
	require.Len(t, r.hw.rings, 2, "a list rings once")
	assert.Equal(t, q.sq.uuar.base+prm.BFBufLen, r.hw.rings[1].off, "buffers alternate")
	assert.Equal(t, ringBytes(qp, 3, 8), r.hw.rings[1].bytes(8), "the last WQE's control segment")
	assert.Len(t, poll(t, qp.SendCQ(), 4), 4)
}

// Inline bytes that cross the end of the ring go on at its start, in the ring and
// in the BlueFlame register.
func TestPostSend_InlineWraps(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	r.hw.record = true
	qp := r.qp(verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1, MaxInline: 60}})
	q := qp.Provider().(*queuePair)
	require.Equal(t, uint32(8), q.sq.wqes.Count())
	for range 7 {
		post(t, qp, inlineWrite(0, 8))
		poll(t, qp.SendCQ(), 1)
	}
	r.hw.rings = nil
	post(t, qp, inlineWrite(0, 60))
	assert.Equal(t, uint16(9), q.sq.dbrec.Send())
	assert.Equal(t, byte(6), ringBytes(qp, 7, 8)[7], "ds")
	assert.Equal(t, pattern(60), ringBytes(qp, 7, 128)[36:96])
	assert.Equal(t, ringBytes(qp, 7, 128), r.hw.rings[0].bytes(128))
	seen := r.fake(qp).seen
	assert.Equal(t, uint64(60), seen[len(seen)-1].Len)
}

func TestPostSend_QueueFull(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	qp := r.qp(verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	depth := qp.Cap().MaxSendWR
	require.Equal(t, 4, depth)
	list := make([]verbs.SendWR, 6)
	for i := range list {
		list[i] = inlineWrite(uint64(i), 8)
		list[i].Flags &^= verbs.SendSignaled
	}
	list[3].Flags |= verbs.SendSignaled
	n, err := qp.PostSend(list)
	assert.Equal(t, 4, n)
	assert.True(t, err == ucs.ErrNoResource, "bare: %v", err)
	n, err = qp.PostSend(list[4:])
	assert.Zero(t, n)
	assert.True(t, err == ucs.ErrNoResource)

	wc := poll(t, qp.SendCQ(), 8)
	require.Len(t, wc, 1)
	assert.Equal(t, uint64(3), wc[0].ID)
	n, err = qp.PostSend(list[:4])
	assert.Equal(t, 4, n, "one completion retires all before it")
	assert.NoError(t, err)
}

// The producer index passes 2^16 and the ring's end many times.
func TestPostSend_IndexWraps(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	qp := r.qp(verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1}})
	var wc [4]verbs.WC
	wr := []verbs.SendWR{inlineWrite(0, 8)}
	for i := range 1<<16 + 100 {
		wr[0].ID = uint64(i)
		n, err := qp.PostSend(wr)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, 1, qp.SendCQ().Poll(wc[:]))
		require.Equal(t, verbs.WC{ID: uint64(i), Opcode: verbs.WCRDMAWrite, QPN: qp.Number()}, wc[0])
	}
}

func TestPostSend_Refused(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	rc := r.qp(verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 2}})
	ud := r.qp(verbs.QPInitAttr{Type: verbs.QPTypeUD, Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 2}})
	sge := verbs.SGE{Addr: 1, Length: 1, LKey: 1}
	cases := []struct {
		name string
		qp   *verbs.QP
		wr   verbs.SendWR
		want error
		text string
	}{
		{"unknown opcode", rc, verbs.SendWR{Opcode: 200}, ucs.ErrInvalidParam, "opcode 200"},
		{"RDMA on UD", ud, verbs.SendWR{Opcode: verbs.OpRDMAWrite, AH: r.ah()}, ucs.ErrInvalidParam, "opcode 0"},
		{"UD without AH", ud, verbs.SendWR{Opcode: verbs.OpSend}, ucs.ErrInvalidParam, "no address handle"},
		{"inline too long", rc, inlineWrite(0, rc.Cap().MaxInline+1), ucs.ErrTooLong, fmt.Sprintf("limit %d", rc.Cap().MaxInline)},
		{"inline read", rc, verbs.SendWR{Opcode: verbs.OpRDMARead, Flags: verbs.SendInline, Inline: pattern(1)}, ucs.ErrInvalidParam, "cannot be inline"},
		{"inline atomic", rc, verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendInline, Inline: pattern(8)}, ucs.ErrInvalidParam, "cannot be inline"},
		{"too many SGEs", rc, verbs.SendWR{Opcode: verbs.OpSend, SGList: make([]verbs.SGE, rc.Cap().MaxSendSGE+1)}, ucs.ErrInvalidParam, "SGEs, limit"},
		{"atomic without SGE", rc, verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd}, ucs.ErrInvalidParam, "want 1"},
		{"SGE of 2 GiB", rc, verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{{Length: 1 << 31}}}, ucs.ErrTooLong, "2147483648 bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := c.qp.Provider().(*queuePair).sq.pi
			good := verbs.SendWR{Opcode: verbs.OpSend, AH: r.ah(), SGList: []verbs.SGE{sge}, Flags: verbs.SendSignaled}
			n, err := c.qp.PostSend([]verbs.SendWR{good, c.wr, good})
			assert.Equal(t, 1, n, "those before it are posted")
			assert.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, c.text)
			assert.Equal(t, before+uint32(prm.BBs(2+btoi(c.qp == ud)*3)), c.qp.Provider().(*queuePair).sq.pi)
			assert.Len(t, poll(t, c.qp.SendCQ(), 2), 1)
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// BlueFlame or doorbell: the rules of libmlx5.
func TestPostSend_BlueFlameRules(t *testing.T) {
	sge := verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{{Addr: 1, Length: 1, LKey: 1}}}
	big := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendInline, Inline: pattern(240)}
	cases := []struct {
		name string
		cfg  mlx5.Config
		wr   []verbs.SendWR
		bf   bool
	}{
		{"inline", mlx5.Config{}, []verbs.SendWR{inlineWrite(0, 8)}, true},
		{"pointers", mlx5.Config{}, []verbs.SendWR{sge}, true},
		{"pointers, inline preferred", mlx5.Config{InlineBF: true}, []verbs.SendWR{sge}, false},
		{"inline, inline preferred", mlx5.Config{InlineBF: true}, []verbs.SendWR{inlineWrite(0, 8)}, true},
		{"shut up", mlx5.Config{ShutUpBF: true}, []verbs.SendWR{inlineWrite(0, 8)}, false},
		{"list", mlx5.Config{}, []verbs.SendWR{inlineWrite(0, 8), inlineWrite(0, 8)}, false},
		{"control segment only", mlx5.Config{}, []verbs.SendWR{{Opcode: verbs.OpSend}}, false},
		{"longer than the buffer", mlx5.Config{}, []verbs.SendWR{big}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.cfg)
			r.hw.record = true
			qp := r.qp(verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 4, MaxInline: 300}})
			for i := range c.wr {
				c.wr[i].Flags &^= verbs.SendSignaled
			}
			post(t, qp, c.wr...)
			require.Len(t, r.hw.rings, 1)
			got := r.hw.rings[0].bytes(32)
			assert.Equal(t, c.bf, got[16] != 0 || got[31] != 0 || got[20] != 0, "% x", got)
		})
	}
}

// Without BlueFlame doorbells alternate between the two buffers of a register as well,
// where there are two: not on the first micro-UAR of all, nor on the page without
// BlueFlame that the lazy policy gives.
func TestPostSend_ShutUpBFAlternates(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  mlx5.Config
		td   bool
		step uint32
	}{
		"static":                {mlx5.Config{}, false, prm.BFBufLen},
		"static, first of all":  {mlx5.Config{TotalUUARs: 1, LowLatUUARs: mlx5.NoLowLatUUARs}, false, prm.BFBufLen},
		"static, thread domain": {mlx5.Config{}, true, prm.BFBufLen},
		"lazy":                  {mlx5.Config{UARPolicy: mlx5.UARLazy}, false, 0},
		"lazy, thread domain":   {mlx5.Config{UARPolicy: mlx5.UARLazy}, true, prm.BFBufLen},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.ShutUpBF = true
			r := newRig(t, c.cfg)
			r.hw.record = true
			attr := verbs.QPInitAttr{}
			if c.td {
				td, err := r.ctx.AllocTD(verbs.TDInitAttr{})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, td.Close()) })
				attr.TD = td
			}
			qp := r.qp(attr)
			base := qp.Provider().(*queuePair).sq.uuar.base
			for i := range uint32(4) {
				post(t, qp, inlineWrite(0, 8))
				got := r.hw.rings[i]
				assert.Equal(t, base+i%2*c.step, got.off)
				assert.Equal(t, ringBytes(qp, i, 8), got.bytes(8))
				assert.Equal(t, make([]byte, 8), got.bytes(16)[8:], "eight bytes")
			}
		})
	}
}

func TestPostSend_SigAll(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	qp := r.qp(verbs.QPInitAttr{SigAll: true})
	post(t, qp, verbs.SendWR{ID: 5, Opcode: verbs.OpSend})
	wc := poll(t, qp.SendCQ(), 2)
	require.Len(t, wc, 1)
	assert.Equal(t, verbs.WC{ID: 5, Opcode: verbs.WCSend, QPN: qp.Number()}, wc[0])
}

func TestPostSend_CompletionOfEachOpcode(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	qp := r.qp(verbs.QPInitAttr{})
	data := []verbs.SGE{{Addr: 1, Length: 40, LKey: 1}}
	word := []verbs.SGE{{Addr: 1, Length: 8, LKey: 1}}
	cases := []struct {
		wr   verbs.SendWR
		want verbs.WC
	}{
		{verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGList: data}, verbs.WC{Opcode: verbs.WCRDMAWrite}},
		{verbs.SendWR{Opcode: verbs.OpRDMAWriteWithImm, SGList: data}, verbs.WC{Opcode: verbs.WCRDMAWrite, Flags: verbs.WCWithImm}},
		{verbs.SendWR{Opcode: verbs.OpSend, SGList: data}, verbs.WC{Opcode: verbs.WCSend}},
		{verbs.SendWR{Opcode: verbs.OpSendWithImm, SGList: data}, verbs.WC{Opcode: verbs.WCSend, Flags: verbs.WCWithImm}},
		{verbs.SendWR{Opcode: verbs.OpRDMARead, SGList: data}, verbs.WC{Opcode: verbs.WCRDMARead, ByteLen: 40}},
		{verbs.SendWR{Opcode: verbs.OpAtomicCmpSwap, SGList: word}, verbs.WC{Opcode: verbs.WCCompSwap, ByteLen: 8}},
		{verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, SGList: word}, verbs.WC{Opcode: verbs.WCFetchAdd, ByteLen: 8}},
	}
	for i, c := range cases {
		c.wr.ID, c.want.ID = uint64(i+1), uint64(i+1)
		c.wr.Flags |= verbs.SendSignaled
		c.want.QPN = qp.Number()
		post(t, qp, c.wr)
		assert.Equal(t, []verbs.WC{c.want}, poll(t, qp.SendCQ(), 2))
	}
}

// Several goroutines post on one QP, and poll its CQ: nothing is lost or doubled.
func TestPostSend_Concurrent(t *testing.T) {
	const posters, each = 4, 500
	r := newRig(t, mlx5.Config{})
	qp := r.qp(verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 16}, SendCQ: r.cq(verbs.CQInitAttr{Depth: 64})})
	// The fake executes without a lock of its own: it is stalled, and run under
	// one lock by the thread that posted.
	r.hw.stalled = true
	var mu sync.Mutex
	seen := make(map[uint64]int)
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			var wc [8]verbs.WC
			for i := range each {
				wr := []verbs.SendWR{inlineWrite(uint64(p*each+i), 8)}
				for posted := 0; posted == 0; runtime.Gosched() {
					posted, _ = qp.PostSend(wr)
					mu.Lock()
					r.hw.run(r.fake(qp))
					for _, c := range wc[:qp.SendCQ().Poll(wc[:])] {
						seen[c.ID]++
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for _, c := range poll(t, qp.SendCQ(), 64) {
		seen[c.ID]++
	}
	assert.Len(t, seen, posters*each)
	for id, n := range seen {
		assert.Equal(t, 1, n, "completions of %d", id)
	}
}
