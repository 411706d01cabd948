package dv

import (
	"io"
	"slices"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// inertHW is a device that executes nothing: it leaves the queues as they were written, and records
// the doorbells.
type inertHW struct {
	prm.Hardware // methods that are not implemented panic

	next      uint32 // next object number
	state     verbs.QPState
	pages     []*offheap.Block
	rings     []ring
	onRing    func() // if not nil, called at each doorbell
	drive     func() // if not nil, called by Drive
	attention uint32 // the attention word
	qps       map[uint32]prm.QPParams
	cqs       map[uint32]prm.CQParams
	srqs      map[uint32]prm.SRQParams
}

// ring is a store to a UAR page, with a doorbell.
type ring struct {
	off    uint32
	first8 uint64
	page   [prm.BFBufLen]byte // contents of the page from off
}

// firstNumber is the QPN of the golden vectors.
const firstNumber = 0x100

func (h *inertHW) number() uint32 { h.next++; return h.next - 1 }

func (h *inertHW) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{MaxQPWR: 1 << 15, MaxSGE: 30, MaxInline: 900, MaxCQE: 1 << 20, MaxSRQWR: 1 << 14, MaxSRQSGE: 8, PortCount: 1}, nil
}

func (h *inertHW) QueryPort(uint8) (verbs.PortAttr, error) {
	return verbs.PortAttr{State: verbs.PortActive, Ethernet: true, GIDs: 4}, nil
}

type inertDoorbell struct {
	hw   *inertHW
	page unsafe.Pointer
}

func (d inertDoorbell) Ring(off uint32, first8 uint64) {
	r := ring{off: off, first8: first8}
	copy(r.page[:], unsafe.Slice((*byte)(unsafe.Add(d.page, off)), len(r.page)))
	d.hw.rings = append(d.hw.rings, r)
	if d.hw.onRing != nil {
		d.hw.onRing()
	}
}

func (h *inertHW) AllocUAR(prm.UARType) (prm.UAR, error) {
	b, err := offheap.Alloc(prm.UARPageLen)
	if err != nil {
		return prm.UAR{}, err
	}
	h.pages = append(h.pages, b)
	page := unsafe.Pointer(unsafe.SliceData(b.Bytes()))
	return prm.UAR{Page: page, Doorbell: inertDoorbell{h, page}}, nil
}

func (h *inertHW) FreeUAR(prm.UAR) error                 { return nil }
func (h *inertHW) AllocPD() (uint32, error)              { return 1, nil }
func (h *inertHW) DeallocPD(uint32) error                { return nil }
func (h *inertHW) SetAsyncSink(prm.AsyncSink)            {}
func (h *inertHW) DestroyQP(uint32) error                { return nil }
func (h *inertHW) DestroyCQ(uint32) error                { return nil }
func (h *inertHW) DestroySRQ(uint32) error               { return nil }
func (h *inertHW) ArmSRQ(uint32, int) error              { return nil }
func (h *inertHW) Attention() *uint32                    { return &h.attention }
func (h *inertHW) QueryQP(uint32) (verbs.QPState, error) { return h.state, nil }

func (h *inertHW) Drive() {
	if h.drive != nil {
		h.drive()
	}
}

func (h *inertHW) ModifyQP(_ uint32, a *verbs.QPAttr, _ verbs.QPAttrMask) error {
	h.state = a.State
	return nil
}

func (h *inertHW) CreateCQ(p prm.CQParams) (uint32, error) {
	n := h.number()
	h.cqs[n] = p
	return n, nil
}

func (h *inertHW) CreateSRQ(p prm.SRQParams) (uint32, error) {
	n := h.number()
	h.srqs[n] = p
	return n, nil
}

// CreateXRCSRQ implements prm.XRCHardware. The handle equals the SRQN.
func (h *inertHW) CreateXRCSRQ(p prm.SRQParams) (handle, srqn uint32, err error) {
	n, err := h.CreateSRQ(p)
	return n, n, err
}

func (h *inertHW) OpenXRCD(verbs.XRCDInitAttr) (uint32, error) { return 1, nil }
func (h *inertHW) CloseXRCD(uint32) error                      { return nil }

// CreateTarget and OpenTarget are not supported.
func (h *inertHW) CreateTarget(uint32) (handle, qpn uint32, err error) {
	return 0, 0, ucs.ErrUnsupported
}
func (h *inertHW) OpenTarget(uint32, uint32) (uint32, error) { return 0, ucs.ErrUnsupported }

func (h *inertHW) CreateQP(p prm.QPParams) (uint32, error) {
	n := h.number()
	h.qps[n] = p
	return n, nil
}

// CreateAH returns the AV of the golden vectors: RoCE, SGID index 1, hop limit 64.
func (h *inertHW) CreateAH(_ uint32, a verbs.AHAttr) (handle uint32, b [prm.AVLen]byte, err error) {
	av := prm.AV{DLID: 0xf10d, MAC: [6]byte{2, 0, 0, 0, 0, 1}, HopLimit: a.HopLimit, SGIDIndex: a.SGIDIndex, DGID: a.DGID}
	av.Put(&b)
	return 0, b, nil
}

func (h *inertHW) DestroyAH(uint32) error { return nil }

func (h *inertHW) Close() (err error) {
	for _, b := range h.pages {
		err = b.Free()
	}
	return err
}

// bench is a device with one queue of each type.
type bench struct {
	hw  *inertHW
	pd  *verbs.PD
	td  *verbs.TD
	cq  *verbs.CQ
	srq *verbs.SRQ
	qp  *verbs.QP
	raw provider.RawQP
}

// newBench makes a bench whose QP has the QPN of the golden vectors.
func newBench(t require.TestingT, cleanup func(func()), typ verbs.QPType, limits verbs.QPCap) *bench {
	return newBenchOf(t, cleanup, typ, limits, mlx5.Config{})
}

// newBenchOf is newBench with a configuration of the driver.
func newBenchOf(t require.TestingT, cleanup func(func()), typ verbs.QPType, limits verbs.QPCap, cfg mlx5.Config) *bench {
	b := &bench{hw: &inertHW{qps: map[uint32]prm.QPParams{}, cqs: map[uint32]prm.CQParams{}, srqs: map[uint32]prm.SRQParams{}}}
	b.hw.next = firstNumber - 3
	dev := verbs.NewDevice("still0", func() (verbs.Provider, error) { return provider.New(b.hw, cfg) })
	ctx, err := dev.Open()
	require.NoError(t, err)
	b.pd, err = ctx.AllocPD()
	require.NoError(t, err)
	b.td, err = ctx.AllocTD(verbs.TDInitAttr{})
	require.NoError(t, err)
	channel, err := ctx.CreateCompChannel()
	require.NoError(t, err)
	b.cq, err = ctx.CreateCQ(verbs.CQInitAttr{Depth: 64, SingleThreaded: true, Channel: channel})
	require.NoError(t, err)
	recv := verbs.SRQInitAttr{MaxWR: 7, MaxSGE: 2, TD: b.td}
	var domain *verbs.XRCD
	if typ == verbs.QPTypeXRCSend {
		domain, err = ctx.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
		require.NoError(t, err)
		recv.Type, recv.XRCD, recv.CQ = verbs.SRQTypeXRC, domain, b.cq
	}
	b.srq, err = b.pd.CreateSRQ(recv)
	require.NoError(t, err)
	b.qp, err = b.pd.CreateQP(b.attr(typ, limits))
	require.NoError(t, err)
	b.raw, err = provider.RawQPOf(b.qp)
	require.NoError(t, err)
	b.toRTS(t)
	cleanup(func() {
		objects := []io.Closer{b.qp, b.srq, b.cq, channel, b.td, b.pd, ctx}
		if domain != nil {
			objects = slices.Insert(objects, 2, io.Closer(domain))
		}
		for _, c := range objects {
			require.NoError(t, c.Close())
		}
	})
	return b
}

// attr returns the attributes of the QP. An initiator has no receive queue.
func (b *bench) attr(typ verbs.QPType, limits verbs.QPCap) verbs.QPInitAttr {
	attr := verbs.QPInitAttr{Type: typ, SendCQ: b.cq, TD: b.td, Cap: limits}
	b.hw.next = firstNumber
	switch typ {
	case verbs.QPTypeUD:
		b.hw.next = firstNumber + 1
		attr.RecvCQ, attr.Cap.MaxRecvWR, attr.Cap.MaxRecvSGE = b.cq, 16, 2
	case verbs.QPTypeRC:
		attr.RecvCQ, attr.SRQ = b.cq, b.srq
	}
	return attr
}

func (b *bench) toRTS(t require.TestingT) {
	const st = verbs.QPMaskState
	if b.qp.Type() == verbs.QPTypeUD {
		require.NoError(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, st|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskQKey))
		require.NoError(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, st))
		require.NoError(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, st|verbs.QPMaskSQPSN))
		return
	}
	require.NoError(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, st|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskAccessFlags))
	mask := st | verbs.QPMaskAV | verbs.QPMaskPathMTU | verbs.QPMaskDestQPN | verbs.QPMaskRQPSN
	if b.qp.Type() == verbs.QPTypeRC {
		mask |= verbs.QPMaskMaxDestRD | verbs.QPMaskMinRNRTimer
	}
	require.NoError(t, b.qp.Modify(
		verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU4096, DestQPN: 0x77, AH: verbs.AHAttr{Port: 1, Global: true}}, mask))
	require.NoError(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS},
		st|verbs.QPMaskSQPSN|verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry|verbs.QPMaskMaxRDAtomic))
}

// bytesOf returns the memory of a ring.
func bytesOf(r provider.RawRing) []byte {
	return unsafe.Slice((*byte)(r.Buf), r.Count*r.Stride)
}

// slotBytes returns the memory of an entry of a completion queue.
func slotBytes(s *prm.CQESlot) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(s)), prm.CQELen)
}

// queue opens the send queue.
func (b *bench) queue() *sendQueue {
	q := &sendQueue{}
	if err := q.open(b.qp, b.raw, newRegister(b.raw.UAR)); err != nil {
		panic(err)
	}
	return q
}

// cqes returns the completion queue for writes of the device.
func (b *bench) cqes(t require.TestingT) prm.CQView {
	p := b.hw.cqs[firstNumber-3]
	view, err := prm.NewCQView(p.Buf, p.Count)
	require.NoError(t, err)
	return view
}

// cqe writes entry n.
func (b *bench) cqe(t require.TestingT, n uint32, e *prm.CQE) {
	view := b.cqes(t)
	view.Slot(n).Write(e, view.Owner(n))
}

// complete completes all posts of verbs, with a completion of the WQE that begins at basic block
// first.
func (b *bench) complete(t require.TestingT, n, first uint32) {
	b.cqe(t, n, &prm.CQE{Opcode: prm.CQEReq, UserIndex: b.hw.qps[b.qp.Number()].UserIndex, QPN: b.qp.Number(),
		WQECounter: uint16(first), SendOp: prm.OpSend})
	var wc [2]verbs.WC
	require.Equal(t, 1, b.cq.Poll(wc[:]))
}

// newRawEP makes an EP on a bench. It can only post.
func newRawEP(b *bench) *rcEP {
	it := &rcIface{}
	it.MaxInline, it.Moderation = 128, 0
	it.limitInline()
	e := &rcEP{it: it}
	e.Room, e.Credits = 1<<62, 1<<30
	e.sq = *b.queue()
	return e
}
