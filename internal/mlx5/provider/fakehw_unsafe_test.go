package provider

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// fakeHW is a device that executes at the doorbell, in the caller: it decodes the
// WQEs and completes them, moving no data. A test looks at what it saw, makes
// work requests fail, stalls it, and makes messages arrive.
type fakeHW struct {
	prm.Hardware // what is not implemented panics

	uars     int
	uarLimit int
	nextNum  uint32
	cqs      map[uint32]*fakeCQ
	qps      map[uint32]*fakeQP
	srqs     map[uint32]*fakeRQ
	sink     prm.AsyncSink
	closed   bool
	pages    []*offheap.Block

	rings     []ring // doorbells seen, if record
	record    bool
	stalled   bool // doorbells execute nothing
	fail      func(w *prm.WQE) prm.Syndrome
	attention atomic.Uint32
	drives    int
	driving   func() // if not nil, called by Drive
	attrs     []verbs.QPAttrMask
	refuse    error // of the next Create call
}

type ring struct {
	off    uint32
	first8 uint64
	page   [prm.BFBufLen]byte // what lies at off
}

type fakeCQ struct {
	view  prm.CQView
	dbrec prm.DBRec
	pi    uint32
	sink  prm.CQSink
	armed uint32
}

type fakeQP struct {
	qpn, uidx uint32
	sq        prm.SQView
	dbrec     prm.DBRec
	ci        uint16
	send, rcv *fakeCQ
	rq        *fakeRQ
	srq       bool
	state     verbs.QPState
	wqe       prm.WQE
	seen      []prm.WQE
}

type fakeRQ struct {
	view     prm.RQView
	dbrec    prm.DBRec
	consumed uint16
	next     uint16
	maxSGE   int
	limit    int
}

func newFakeHW() *fakeHW {
	return &fakeHW{nextNum: 0x100, cqs: map[uint32]*fakeCQ{}, qps: map[uint32]*fakeQP{}, srqs: map[uint32]*fakeRQ{}, uarLimit: 8192}
}

func (h *fakeHW) number() uint32 { h.nextNum++; return h.nextNum - 1 }

func (h *fakeHW) refused() error {
	err := h.refuse
	h.refuse = nil
	return err
}

func (h *fakeHW) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{MaxQPWR: 32768, MaxSGE: 30, MaxCQE: 1 << 22, MaxSRQWR: 32767, MaxSRQSGE: 30, MaxInline: 900,
		MaxMRSize: 1 << 30, MaxRDAtomic: 16, MaxInitRD: 16, PhysPorts: 1}, nil
}

func (h *fakeHW) QueryPort(port uint8) (verbs.PortAttr, error) {
	if port != 1 {
		return verbs.PortAttr{}, ucs.ErrInvalidParam
	}
	return verbs.PortAttr{State: verbs.PortActive, GIDs: 4, Ethernet: true}, nil
}

func (h *fakeHW) AllocUAR(prm.UARType) (prm.UAR, error) {
	if h.uars == h.uarLimit {
		return prm.UAR{}, ucs.ErrNoMemory
	}
	b, err := offheap.Alloc(prm.UARPageLen)
	if err != nil {
		return prm.UAR{}, err
	}
	h.pages = append(h.pages, b)
	h.uars++
	u := &fakeDoorbell{hw: h, page: unsafe.Pointer(unsafe.SliceData(b.Bytes()))}
	return prm.UAR{Index: uint32(len(h.pages)), Page: u.page, Doorbell: u}, nil
}

func (h *fakeHW) FreeUAR(prm.UAR) error              { h.uars--; return nil }
func (h *fakeHW) AllocPD() (uint32, error)           { return h.number(), h.refused() }
func (h *fakeHW) DeallocPD(uint32) error             { return nil }
func (h *fakeHW) SetAsyncSink(s prm.AsyncSink)       { h.sink = s }
func (h *fakeHW) DeregMR(uint32, verbs.Buffer) error { return nil }
func (h *fakeHW) DestroyQP(n uint32) error           { delete(h.qps, n); return nil }
func (h *fakeHW) DestroyCQ(n uint32) error           { delete(h.cqs, n); return nil }
func (h *fakeHW) DestroySRQ(n uint32) error          { delete(h.srqs, n); return nil }
func (h *fakeHW) Attention() *uint32                 { return (*uint32)(unsafe.Pointer(&h.attention)) }
func (h *fakeHW) ArmSRQ(n uint32, limit int) error {
	h.srqs[n].limit = limit
	return nil
}

func (h *fakeHW) RegMR(uint32, []byte, verbs.Access) (lkey, rkey uint32, err error) {
	n := h.number()
	return n, n, h.refused()
}

func (h *fakeHW) CreateAH(_ uint32, attr verbs.AHAttr) (handle uint32, b [prm.AVLen]byte, err error) {
	av := prm.AV{DGID: attr.DGID, HopLimit: attr.HopLimit, SGIDIndex: attr.SGIDIndex, DLID: 0xf10d, MAC: [6]byte{2, 0, 0, 0, 0, 1}}
	av.Put(&b)
	return 0, b, h.refused()
}

func (h *fakeHW) DestroyAH(uint32) error { return nil }

func (h *fakeHW) Close() error {
	h.closed = true
	for _, b := range h.pages {
		_ = b.Free()
	}
	return nil
}

func (h *fakeHW) CreateCQ(p prm.CQParams) (uint32, error) {
	view, err := prm.NewCQView(p.Buf, p.Count)
	if err != nil {
		return 0, err
	}
	n := h.number()
	h.cqs[n] = &fakeCQ{view: view, dbrec: p.DBRec, sink: p.Sink}
	return n, h.refused()
}

func (h *fakeHW) CreateSRQ(p prm.SRQParams) (uint32, error) {
	view, err := prm.NewRQView(p.Buf, p.Count, p.Stride)
	if err != nil {
		return 0, err
	}
	n := h.number()
	h.srqs[n] = &fakeRQ{view: view, dbrec: p.DBRec, maxSGE: p.MaxSGE}
	return n, h.refused()
}

func (h *fakeHW) CreateQP(p prm.QPParams) (uint32, error) {
	n := h.number()
	q := &fakeQP{qpn: n, uidx: p.UserIndex, dbrec: p.DBRec, send: h.cqs[p.SendCQN], rcv: h.cqs[p.RecvCQN]}
	var err error
	if q.sq, err = prm.NewSQView(p.SQ, p.SQCount, n, p.Type); err != nil {
		return 0, err
	}
	if p.SRQN != 0 {
		q.rq, q.srq = h.srqs[p.SRQN], true
	} else if p.RQ != nil {
		q.rq = &fakeRQ{dbrec: q.dbrec, maxSGE: p.RQMaxSGE}
		if q.rq.view, err = prm.NewRQView(p.RQ, p.RQCount, p.RQStride); err != nil {
			return 0, err
		}
	}
	h.qps[n] = q
	return n, h.refused()
}

func (h *fakeHW) ModifyQP(n uint32, attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	h.attrs = append(h.attrs, mask)
	q := h.qps[n]
	if mask&verbs.QPMaskState != 0 {
		q.state = attr.State
		if attr.State == verbs.QPStateReset {
			q.ci = 0
			if !q.srq && q.rq != nil {
				q.rq.consumed = 0
			}
		}
	}
	return h.refused()
}

func (h *fakeHW) QueryQP(n uint32) (verbs.QPState, error) {
	if q := h.qps[n]; q != nil {
		return q.state, nil
	}
	return 0, ucs.ErrInvalidParam
}

type fakeDoorbell struct {
	hw   *fakeHW
	page unsafe.Pointer
}

func (d *fakeDoorbell) Ring(off uint32, first8 uint64) {
	h := d.hw
	if h.record {
		r := ring{off: off, first8: first8}
		copy(r.page[:], unsafe.Slice((*byte)(unsafe.Add(d.page, off)), prm.BFBufLen))
		h.rings = append(h.rings, r)
	}
	if off == prm.CQArm {
		h.arm(uint32(first8>>32), uint32(first8))
		return
	}
	if _, qpn := prm.SplitCtrlWord(first8); !h.stalled {
		h.run(h.qps[qpn])
	}
}

// run executes what is posted.
func (h *fakeHW) run(q *fakeQP) {
	for pi := q.dbrec.Send(); q.ci != pi; {
		bbs, syn := prm.DecodeWQE(&q.sq, q.ci, pi, &q.wqe)
		if h.fail != nil && syn == prm.SyndromeOK {
			syn = h.fail(&q.wqe)
		}
		if h.record {
			q.seen = append(q.seen, q.wqe)
		}
		q.ci += uint16(bbs)
		if syn != prm.SyndromeOK {
			q.send.push(&prm.CQE{Opcode: prm.CQEReqErr, UserIndex: q.uidx, WQECounter: q.wqe.Index, QPN: q.qpn, SendOp: q.wqe.Op, Syndrome: syn, VendorErr: 0x77})
		} else if q.wqe.Flags.Signaled() {
			q.send.push(&prm.CQE{Opcode: prm.CQEReq, UserIndex: q.uidx, WQECounter: q.wqe.Index, QPN: q.qpn, SendOp: q.wqe.Op, ByteCount: uint32(q.wqe.Len)})
		}
	}
}

// arrive completes a receive of the QP with what e says of the message.
func (h *fakeHW) arrive(t testing.TB, q *fakeQP, e prm.CQE) {
	t.Helper()
	rq := q.rq
	require.NotEqual(t, rq.dbrec.Recv(), rq.consumed, "no receive is posted")
	e.UserIndex, e.QPN, e.WQECounter = q.uidx, q.qpn, rq.consumed
	if q.srq {
		e.WQECounter = rq.next
		rq.next = prm.SRQNext(&rq.view.Entry(uint32(rq.next))[0])
	}
	rq.consumed++
	q.rcv.push(&e)
}

func (c *fakeCQ) push(e *prm.CQE) {
	c.view.Slot(c.pi).Write(e, c.view.Owner(c.pi))
	c.pi++
	if c.armed != 0 && (c.armed == 1 || e.Solicited || e.IsError()) {
		c.armed = 0
		c.sink.CompletionEvent()
	}
}

func (h *fakeHW) arm(word, cqn uint32) {
	c := h.cqs[cqn]
	_, solicited, ci := prm.SplitArmWord(word)
	c.armed = 1
	if solicited {
		c.armed = 2
	} else if ci != c.pi&(1<<24-1) {
		c.armed = 0
		c.sink.CompletionEvent()
	}
}

// bytes is the first n bytes of what a doorbell stored.
func (r *ring) bytes(n int) []byte { return r.page[:n] }

// argument is the doorbell's argument as bytes.
func (r *ring) argument() []byte { return binary.BigEndian.AppendUint64(nil, r.first8) }

func (h *fakeHW) Drive() {
	h.attention.Store(0)
	h.drives++
	if h.driving != nil {
		h.driving()
	}
}

// slotBytes is an entry of a completion queue as it lies in memory.
func slotBytes(s *prm.CQESlot) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(s)), prm.CQELen)
}
