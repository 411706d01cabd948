package instr

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Attributes of the verbs rig: those that uct/ib/rc uses too.
const (
	verbsSendDepth  = 256
	verbsInline     = 128
	verbsReads      = 16
	verbsPort       = 1
	verbsModeration = 64
	verbsBatch      = 16 // work completions of one poll
)

// verbsRig counts verbs calls on an RC QP that is in a thread domain, with a
// single-threaded CQ: no locks, as in uct/ib/rc.
type verbsRig struct {
	near, far *verbsEnd
	wr        [1]verbs.SendWR // what the counted call posts
	wc        [verbsBatch]verbs.WC
	found     int // completions of the counted poll
	undo      cleanup.Stack
}

// verbsEnd is one end of the connection.
type verbsEnd struct {
	ctx *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

func openVerbs(fabric, _ string) (_ rig, err error) {
	r := &verbsRig{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.undo.Run())
		}
	}()
	dev, err := device(fabric)
	if err != nil {
		return nil, err
	}
	ctxs := make([]*verbs.Context, ends(fabric, ""))
	for i := range ctxs {
		if ctxs[i], err = dev.Open(); err != nil {
			return nil, err
		}
		r.undo.Add(ctxs[i].Close)
	}
	if r.near, err = r.openEnd(ctxs[0]); err != nil {
		return nil, err
	}
	if r.far, err = r.openEnd(ctxs[len(ctxs)-1]); err != nil {
		return nil, err
	}
	if err = r.near.connect(r.far); err != nil {
		return nil, err
	}
	return r, r.far.connect(r.near)
}

// openEnd makes the objects of one end.
func (r *verbsRig) openEnd(ctx *verbs.Context) (e *verbsEnd, err error) {
	e = &verbsEnd{ctx: ctx}
	if e.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	r.undo.Add(e.pd.Close)
	buf, err := ctx.AllocBuffer(maxSize)
	if err != nil {
		return nil, err
	}
	r.undo.Add(buf.Close)
	all := verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	if e.mr, err = e.pd.RegMR(buf.Bytes(), all); err != nil {
		return nil, err
	}
	r.undo.Add(e.mr.Close)
	return e, r.openQueues(e, all)
}

func (r *verbsRig) openQueues(e *verbsEnd, access verbs.Access) (err error) {
	if e.cq, err = e.ctx.CreateCQ(verbs.CQInitAttr{Depth: verbsSendDepth, SingleThreaded: true}); err != nil {
		return err
	}
	r.undo.Add(e.cq.Close)
	td, err := e.ctx.AllocTD(verbs.TDInitAttr{})
	if err != nil {
		return err
	}
	r.undo.Add(td.Close)
	e.qp, err = e.pd.CreateQP(verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: e.cq, RecvCQ: e.cq, TD: td,
		Cap: verbs.QPCap{MaxSendWR: verbsSendDepth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: verbsInline},
	})
	if err != nil {
		return err
	}
	r.undo.Add(e.qp.Close)
	return e.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: verbsPort, AccessFlags: access},
		verbs.QPMaskState|verbs.QPMaskPKeyIndex|verbs.QPMaskPort|verbs.QPMaskAccessFlags)
}

// connect takes the QP to RTS, towards peer.
func (e *verbsEnd) connect(peer *verbsEnd) error {
	gid, err := peer.ctx.QueryGID(verbsPort, 0)
	if err != nil {
		return err
	}
	err = e.qp.Modify(verbs.QPAttr{
		State: verbs.QPStateRTR, PathMTU: verbs.MTU4096, DestQPN: peer.qp.Number(), MaxDestRD: verbsReads,
		AH: verbs.AHAttr{Port: verbsPort, Global: true, DGID: gid, HopLimit: 1},
	}, verbs.QPMaskState|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|
		verbs.QPMaskRQPSN|verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer)
	if err != nil {
		return err
	}
	return e.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, MaxRDAtomic: verbsReads},
		verbs.QPMaskState|verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry|
			verbs.QPMaskSQPSN|verbs.QPMaskMaxRDAtomic)
}

// Close implements rig.
func (r *verbsRig) Close() error { return r.undo.Run() }

// steps implements rig. All work requests are signaled, as those of uct/ib/rc are
// on an idle endpoint.
func (r *verbsRig) steps(c Case) (steps, error) {
	switch c.Op {
	case Put, PutZcopy:
		r.wr[0] = r.write(c.Size)
		return steps{before: r.change, op: r.post, after: r.verify(c.Size)}, nil
	case Get, GetZcopy:
		r.wr[0] = r.request(verbs.OpRDMARead, c.Size)
		return steps{before: r.change, op: r.post, after: r.verify(c.Size)}, nil
	case Add, FAdd: // one operation: the adapter always returns the old value
		r.wr[0] = r.request(verbs.OpAtomicFetchAdd, wordLen)
		return steps{op: r.post, after: r.complete}, nil
	case Flush:
		r.wr[0] = r.write(c.Size)
		return steps{before: r.post, op: r.complete}, nil
	case PutWindow:
		r.wr[0] = r.write(c.Size)
		return steps{before: r.change, op: r.window, after: r.compare(c.Size)}, nil
	case GetWindow:
		r.wr[0] = r.request(verbs.OpRDMARead, c.Size)
		return steps{before: r.change, op: r.window, after: r.compare(c.Size)}, nil
	case FAddWindow:
		r.wr[0] = r.request(verbs.OpAtomicFetchAdd, wordLen)
		return steps{op: r.window}, nil
	case Idle:
		return steps{op: func() error { return want(r.near.cq.Poll(r.wc[:]), 0) }}, nil
	case Busy:
		r.wr[0] = r.write(c.Size)
		return steps{before: r.postOne, op: r.pollOne, after: r.completeRest}, nil
	}
	return steps{}, unsupported(c)
}

// want makes the repetition void if progress found something else.
func want(got, want int) error {
	if got != want {
		return errVoid
	}
	return nil
}

func (r *verbsRig) postOne() error {
	r.found = 0
	return r.post()
}

func (r *verbsRig) pollOne() error {
	r.found = r.near.cq.Poll(r.wc[:])
	return want(r.found, 1)
}

// completeRest takes the completion that pollOne did not find.
func (r *verbsRig) completeRest() error {
	if r.found == 0 {
		return r.complete()
	}
	return r.check(r.found)
}

// write is an RDMA write of the first n bytes: inline up to the limit.
func (r *verbsRig) write(n int) verbs.SendWR {
	wr := r.request(verbs.OpRDMAWrite, n)
	if n <= verbsInline {
		wr.Flags, wr.SGList, wr.Inline = wr.Flags|verbs.SendInline, nil, r.near.mr.Bytes()[:n]
	}
	return wr
}

func (r *verbsRig) request(op verbs.Opcode, n int) verbs.SendWR {
	return verbs.SendWR{
		Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{r.near.mr.SGE(0, n)}, CompareAdd: 1,
		RemoteAddr: r.far.mr.Addr(), RKey: r.far.mr.RKey(),
	}
}

func (r *verbsRig) post() error {
	_, err := r.near.qp.PostSend(r.wr[:])
	return err
}

// window posts a window, of which each verbsModeration-th and the last one are signaled, and
// polls until it is complete.
func (r *verbsRig) window() error {
	wr := &r.wr[0]
	left := 0
	for i := 1; i <= windowLen; i++ {
		wr.Flags &^= verbs.SendSignaled
		if i%verbsModeration == 0 || i == windowLen {
			wr.Flags |= verbs.SendSignaled
			left++
		}
		if err := r.post(); err != nil {
			return err
		}
	}
	for range polls {
		if left -= r.near.cq.Poll(r.wc[:]); left == 0 {
			return r.wc[0].Status.Err()
		}
		runtime.Gosched()
	}
	return errStuck
}

// complete polls until one completion has come.
func (r *verbsRig) complete() error {
	for range polls {
		if n := r.near.cq.Poll(r.wc[:]); n != 0 {
			return r.check(n)
		}
		runtime.Gosched()
	}
	return errStuck
}

// check wants exactly one good completion.
func (r *verbsRig) check(n int) error {
	if n != 1 {
		return fmt.Errorf("%d completions instead of one", n)
	}
	return r.wc[0].Status.Err()
}

// change makes both memories differ, and from the last repetition.
func (r *verbsRig) change() error {
	change(r.near.mr.Bytes(), r.far.mr.Bytes())
	return nil
}

func change(near, far []byte) {
	near[0]++
	far[0] = ^near[0]
}

// verify completes a put or get and compares what it moved.
func (r *verbsRig) verify(n int) func() error {
	return func() error {
		if err := r.complete(); err != nil {
			return err
		}
		return r.compare(n)()
	}
}

// compare compares what a put or get has moved.
func (r *verbsRig) compare(n int) func() error {
	return func() error {
		if !bytes.Equal(r.near.mr.Bytes()[:n], r.far.mr.Bytes()[:n]) {
			return errCorrupt
		}
		return nil
	}
}
