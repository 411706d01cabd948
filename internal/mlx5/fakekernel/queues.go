package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func (f *file) compChannel(r *request) error {
	r.in(attrCoreIn, 8)
	out := r.out(attrCoreOut, 4)
	if r.err != nil {
		return r.err
	}
	p, err := newPipe()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for fd, old := range f.channels {
		if old.hungUp() {
			_ = old.close()
			delete(f.channels, fd)
		}
	}
	f.channels[uint32(p.read)] = p
	out.put32(0, uint32(p.read))
	return nil
}

// eventSink passes the events of a CQ to the channel of its process.
type eventSink struct {
	channel    *pipe
	userHandle uint64
}

// CompletionEvent implements prm.CQSink.
func (s eventSink) CompletionEvent() { s.channel.write(uint64Bytes(s.userHandle)) }

// createCQ executes a method with struct mlx5_ib_create_cq as driver data.
func (f *file) createCQ(r *request) error {
	depth, user, vector := r.in(1, 4), r.in(2, 8), r.in(4, 4)
	got, driver, reply := r.out(6, 4), r.in(uverbs.AttrDriverIn, 32), r.out(uverbs.AttrDriverOut, 8)
	if r.object(0); r.err != nil {
		return r.err
	}
	const uarPageIndex = 2 // MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX
	if driver.u32(16) != prm.CQELen || driver[20] != 0 || driver.u16(22) != uarPageIndex || vector.u32(0) >= 4 || depth.u32(0) >= 1<<22 {
		return unix.EINVAL
	}
	uar, err := f.uarPage(uint32(driver.u16(24)))
	if err != nil {
		return err
	}
	params := prm.CQParams{Buf: at(driver.u64(0)), Count: pow2(depth.u32(0) + 1), DBRec: prm.NewDBRec(at(driver.u64(8))), UAR: uar.uar}
	if r.has(3) {
		f.mu.Lock()
		channel := f.channels[uint32(r.object(3))]
		f.mu.Unlock()
		if channel == nil {
			return unix.EBADF
		}
		params.Sink = eventSink{channel: channel, userHandle: user.u64(0)}
	}
	cqn, err := f.hw.CreateCQ(params)
	if err != nil {
		return err
	}
	forget := f.watchCQ(cqn, &params)
	o := f.add(&object{kind: kindCQ, number: cqn, hw: cqn, userHandle: user.u64(0), parents: []*object{uar}, destroy: func() error {
		forget()
		return f.hw.DestroyCQ(cqn)
	}})
	r.made(0, o.handle)
	got.put32(0, params.Count-1)
	reply.put32(0, cqn)
	return nil
}

// basicSRQs is the first number of basic SRQs. XRC SRQs, which peers address by number, have lower numbers.
const basicSRQs = 1 << 23

// createSRQ executes a method with struct mlx5_ib_create_srq as driver data. It computes the length of the queue like the
// driver.
func (f *file) createSRQ(r *request) error {
	user, depth, sges, limit, typ := r.in(4, 8), r.in(5, 4), r.in(6, 4), r.in(7, 4), verbs.SRQType(r.constant(9))
	gotDepth, gotSGEs, driver, reply := r.out(11, 4), r.out(12, 4), r.in(uverbs.AttrDriverIn, 32), r.out(uverbs.AttrDriverOut, 8)
	pdHandle := r.object(1)
	if r.object(0); r.err != nil {
		return r.err
	}
	pd, err := f.find(kindPD, pdHandle)
	if err != nil {
		return err
	}
	if limit.u32(0) != 0 || driver.u32(16) != 0 || sges.u32(0) < 1 || sges.u32(0) > 31 || depth.u32(0) >= 1<<15 {
		return unix.EINVAL
	}
	stride := max(pow2(prm.SRQNextLen+prm.SegLen*sges.u32(0)), 2*prm.SegLen)
	params := prm.SRQParams{PDN: pd.hw, Buf: at(driver.u64(0)), Count: pow2(depth.u32(0) + 1), Stride: log2(stride),
		DBRec: prm.NewDBRec(at(driver.u64(8))), MaxSGE: int(sges.u32(0)), UserIndex: driver.u32(24)}
	o := &object{kind: kindSRQ, userHandle: user.u64(0), parents: []*object{pd}}
	switch typ {
	case verbs.SRQTypeBasic:
		o.hw, err = f.hw.CreateSRQ(params)
		o.number = o.hw | basicSRQs
	case verbs.SRQTypeXRC:
		err = f.createXRCSRQ(r, o, params)
	default:
		err = unix.EINVAL
	}
	if err != nil {
		return err
	}
	forget := f.watchSRQ(o.hw, params.DBRec)
	o.destroy = func() error {
		forget()
		return f.hw.DestroySRQ(o.hw)
	}
	r.made(0, f.add(o).handle)
	gotDepth.put32(0, params.Count-1)
	gotSGEs.put32(0, sges.u32(0))
	reply.put32(0, o.number)
	return nil
}

func (f *file) createXRCSRQ(r *request, o *object, params prm.SRQParams) error {
	number := r.out(13, 4)
	domainHandle, cqHandle := r.object(2), r.object(3)
	if r.err != nil {
		return r.err
	}
	domain, err := f.find(kindXRCD, domainHandle)
	if err != nil {
		return err
	}
	cq, err := f.find(kindCQ, cqHandle)
	if err != nil {
		return err
	}
	o.parents = append(o.parents, domain, cq)
	params.XRCDN, params.CQN = domain.hw, cq.hw
	if o.hw, o.number, err = f.hw.CreateXRCSRQ(params); err != nil {
		return err
	}
	number.put32(0, o.number)
	return nil
}

// modifySRQ executes a command with struct ib_uverbs_modify_srq.
func (f *file) modifySRQ(r *request) error {
	in := r.in(attrCoreIn, 16)
	if r.err != nil {
		return r.err
	}
	srq, err := f.find(kindSRQ, uint64(in.u32(0)))
	if err != nil {
		return err
	}
	const limit = 2 // IB_SRQ_LIMIT
	if in.u32(4) != limit {
		return unix.EINVAL
	}
	return f.hw.ArmSRQ(srq.hw, int(in.u32(12)))
}

// createQP executes a method with struct mlx5_ib_create_qp as driver data.
func (f *file) createQP(r *request) error {
	user, limits, typ := r.in(7, 8), r.in(8, 20), verbs.QPType(r.constant(9))
	got, number, driver, reply := r.out(13, 20), r.out(14, 4), r.in(uverbs.AttrDriverIn, 56), r.out(uverbs.AttrDriverOut, 40)
	if r.object(0); r.err != nil {
		return r.err
	}
	const uarPageIndex = 1 << 10 // MLX5_QP_FLAG_UAR_PAGE_INDEX
	if driver.u32(28) != uarPageIndex {
		return unix.EINVAL
	}
	o := &object{kind: kindQP, userHandle: user.u64(0)}
	var err error
	if typ == verbs.QPTypeXRCRecv {
		err = f.createTarget(r, o)
	} else {
		err = f.createQueues(r, o, typ, driver)
	}
	if err != nil {
		return err
	}
	r.made(0, f.add(o).handle)
	copy(got, limits)
	number.put32(0, o.number)
	reply.put32(0, 1<<31) // MLX5_IB_INVALID_BFREG: the process has allocated the UAR page
	return nil
}

// createQueues creates a QP with queues, that is, any QP but an XRC target.
func (f *file) createQueues(r *request, o *object, typ verbs.QPType, driver input) error {
	uar, err := f.uarPage(driver.u32(36))
	if err != nil {
		return err
	}
	o.parents = append(o.parents, uar)
	parent := func(kind, id uint16) (number uint32) {
		p, e := f.find(kind, r.object(id))
		if err == nil {
			err = e
		}
		if e != nil {
			return 0
		}
		o.parents = append(o.parents, p)
		return p.hw
	}
	recvCount, shift := driver.u32(20), driver.u32(24)
	params := prm.QPParams{Type: typ, PDN: parent(kindPD, 2), SendCQN: parent(kindCQ, 4), DBRec: prm.NewDBRec(at(driver.u64(8))),
		SQCount: driver.u32(16), UAR: uar.uar, UserIndex: driver.u32(32)}
	if typ != verbs.QPTypeXRCSend {
		params.RecvCQN = parent(kindCQ, 5)
	}
	if r.has(3) {
		params.SRQN = parent(kindSRQ, 3)
	}
	if err != nil || r.err != nil || shift > 9 || recvCount > prm.MaxQueueLen {
		return unix.EINVAL
	}
	if recvCount > 0 {
		params.RQ, params.RQCount, params.RQStride, params.RQMaxSGE = at(driver.u64(0)), recvCount, uint8(shift), 1<<shift/prm.SegLen
	}
	params.SQ = at(driver.u64(0) + uint64(recvCount)<<shift)
	if o.hw, err = f.hw.CreateQP(params); err != nil {
		return err
	}
	o.number = o.hw
	forget := f.watchQP(o.hw, &params)
	o.destroy = func() error {
		forget()
		return f.hw.DestroyQP(o.hw)
	}
	return nil
}

func (f *file) createTarget(r *request, o *object) error {
	domain, err := f.find(kindXRCD, r.object(1))
	if err != nil {
		return err
	}
	if o.hw, o.number, err = f.hw.CreateTarget(domain.hw); err != nil {
		return err
	}
	o.parents, o.destroy = []*object{domain}, func() error { return f.hw.DestroyQP(o.hw) }
	return nil
}

// openQP executes a command with struct ib_uverbs_open_qp.
func (f *file) openQP(r *request) error {
	in, out := r.in(attrCoreIn, 32), r.out(attrCoreOut, 32)
	if r.err != nil {
		return r.err
	}
	domain, err := f.find(kindXRCD, uint64(in.u32(16)))
	if err != nil {
		return err
	}
	o := &object{kind: kindQP, userHandle: in.u64(8), number: in.u32(20), parents: []*object{domain}}
	if o.hw, err = f.hw.OpenTarget(domain.hw, o.number); err != nil {
		return err
	}
	o.destroy = func() error { return f.hw.DestroyQP(o.hw) }
	out.put32(0, f.add(o).handle)
	out.put32(4, o.number)
	return nil
}

// openXRCD executes a command with struct ib_uverbs_open_xrcd.
func (f *file) openXRCD(r *request) error {
	in, out := r.in(attrCoreIn, 16), r.out(attrCoreOut, 4)
	if r.err != nil {
		return r.err
	}
	n, err := f.hw.OpenXRCD(verbs.XRCDInitAttr{FD: int(int32(in.u32(8))), Flags: int(in.u32(12))})
	if err != nil {
		return err
	}
	out.put32(0, f.add(&object{kind: kindXRCD, hw: n, destroy: func() error { return f.hw.CloseXRCD(n) }}).handle)
	return nil
}

// modifyQP executes a command with struct ib_uverbs_modify_qp.
func (f *file) modifyQP(r *request) error {
	in := r.in(attrCoreIn, 112)
	if r.err != nil {
		return r.err
	}
	qp, err := f.find(kindQP, uint64(in.u32(64)))
	if err != nil {
		return err
	}
	attr := verbs.QPAttr{
		AH: verbs.AHAttr{DGID: verbs.GID(in[:16]), FlowLabel: in.u32(16), DLID: in.u16(20), SGIDIndex: in[24], HopLimit: in[25],
			TrafficClass: in[26], SL: in[27], Global: in[30] != 0, Port: in[31]},
		QKey: in.u32(72), RQPSN: in.u32(76), SQPSN: in.u32(80), DestQPN: in.u32(84), AccessFlags: verbs.Access(in.u32(88)),
		PKeyIndex: in.u16(92), State: verbs.QPState(in[96]), CurState: verbs.QPState(in[97]), PathMTU: verbs.MTU(in[98]),
		MaxRDAtomic: in[101], MaxDestRD: in[102], MinRNRTimer: in[103], Port: in[104], Timeout: in[105], RetryCnt: in[106], RNRRetry: in[107],
	}
	return f.hw.ModifyQP(qp.hw, &attr, verbs.QPAttrMask(in.u32(68)))
}

// queryQP fills the state in struct ib_uverbs_query_qp_resp, but no other attributes.
func (f *file) queryQP(r *request) error {
	in, out := r.in(attrCoreIn, 16), r.out(attrCoreOut, 128)
	if r.err != nil {
		return r.err
	}
	qp, err := f.find(kindQP, uint64(in.u32(8)))
	if err != nil {
		return err
	}
	state, err := f.hw.QueryQP(qp.hw)
	if err != nil {
		return err
	}
	clear(out)
	out[108] = byte(state)
	return nil
}
