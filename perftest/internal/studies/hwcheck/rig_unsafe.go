package hwcheck

import (
	"bytes"
	"fmt"
	"time"
	"unsafe"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// rig contains what the steps share: two RC QPs of one port, connected with each other, and memory in two halves.
// Requests of the first QP are from the first half to the second.
type rig struct {
	cfg  Config
	dev  *verbs.Device
	undo cleanup.Stack

	ctx    *verbs.Context
	port   verbs.PortAttr
	path   verbs.AHAttr // to the port itself
	pd     *verbs.PD
	mem    []byte
	shadow []byte // expected contents of mem
	mr     *verbs.MR
	ch     *verbs.CompChannel
	cq     *verbs.CQ
	a, b   *verbs.QP
	nextID uint64
	seed   byte
}

// Lengths in bytes, and depths.
const (
	half       = 1 << 20
	sendDepth  = 64
	recvDepth  = 64
	cqDepth    = 512
	inlineLen  = 188 // fits in one BlueFlame buffer
	gap        = 64  // between ranges, to detect writes beyond them
	remoteAt   = half
	qkey       = 0x11111111
	maxReads   = 1
	ackTimeout = 14 // about 67 ms: 4.096us * 2^14 (IBTA volume 1, Local ACK Timeout)
)

const allRights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// addr returns the address of byte off of the memory.
func (r *rig) addr(off int) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.mem)))) + uint64(off)
}

// sge returns the SGE of a range of the memory.
func (r *rig) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: r.addr(off), Length: uint32(n), LKey: r.mr.LKey()}
}

// fill writes a pattern to a range of the memory, and to the expected contents.
func (r *rig) fill(off, n int) {
	r.seed++
	for i := range n {
		r.mem[off+i] = byte(i)*7 + byte(i>>8) + r.seed
	}
	copy(r.shadow[off:off+n], r.mem[off:off+n])
}

// expect records that the device copies a range.
func (r *rig) expect(to, from, n int) { copy(r.shadow[to:to+n], r.shadow[from:from+n]) }

// compare compares the whole memory with the expected contents.
func (r *rig) compare() error {
	if bytes.Equal(r.mem, r.shadow) {
		return nil
	}
	first, count := -1, 0
	for i := range r.mem {
		if r.mem[i] != r.shadow[i] {
			if first < 0 {
				first = i
			}
			count++
		}
	}
	at, got, want := first, r.mem[first], r.shadow[first]
	copy(r.shadow, r.mem) // so that the next step does not fail because of this one
	return fmt.Errorf("%d bytes differ, the first at %#x: %#x, want %#x", count, at, got, want)
}

// id returns a new ID for a work request.
func (r *rig) id() uint64 { r.nextID++; return r.nextID }

// post posts one list of work requests. It fails if not all are posted.
func (r *rig) post(qp *verbs.QP, wrs ...verbs.SendWR) error {
	n, err := qp.PostSend(wrs)
	if err != nil {
		return fmt.Errorf("post %d of %d: %w", n, len(wrs), err)
	}
	return nil
}

// wait polls cq until it has n completions, with any status.
func (r *rig) wait(cq *verbs.CQ, n int) (list []verbs.WC, err error) {
	deadline := time.Now().Add(r.cfg.Timeout)
	var wc [16]verbs.WC
	for len(list) < n {
		got := cq.Poll(wc[:])
		if got < 0 {
			return list, fmt.Errorf("the CQ is in error after %d completions", len(list))
		}
		list = append(list, wc[:got]...)
		if got == 0 && time.Now().After(deadline) {
			return list, fmt.Errorf("%d of %d completions within %v", len(list), n, r.cfg.Timeout)
		}
	}
	return list, nil
}

// complete waits for n completions, and returns an error for the first failed one.
func (r *rig) complete(n int) ([]verbs.WC, error) {
	list, err := r.wait(r.cq, n)
	for i := range list {
		if list[i].Status != verbs.WCSuccess {
			return list, fmt.Errorf("completion of work request %d: %v, vendor error %#x", list[i].ID, list[i].Status.Err(), list[i].VendorErr)
		}
	}
	return list, err
}

// write returns an RDMA write of a range of the first half to the second.
func (r *rig) write(off, n int, flags verbs.SendFlags) verbs.SendWR {
	wr := verbs.SendWR{ID: r.id(), Opcode: verbs.OpRDMAWrite, Flags: flags | verbs.SendSignaled, RemoteAddr: r.addr(remoteAt + off), RKey: r.mr.RKey()}
	if flags&verbs.SendInline != 0 {
		wr.Inline = r.mem[off : off+n]
	} else if n > 0 {
		wr.SGList = []verbs.SGE{r.sge(off, n)}
	}
	return wr
}

// connect connects two RC QPs, or an XRC initiator with a target.
func (r *rig) connect(qp *verbs.QP, peer uint32) error {
	const st = verbs.QPMaskState
	target := qp.Type() == verbs.QPTypeXRCRecv
	initiator := qp.Type() == verbs.QPTypeXRCSend
	if err := qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: r.cfg.Port, AccessFlags: allRights},
		st|verbs.QPMaskPKeyIndex|verbs.QPMaskPort|verbs.QPMaskAccessFlags); err != nil {
		return err
	}
	mask := st | verbs.QPMaskAV | verbs.QPMaskPathMTU | verbs.QPMaskDestQPN | verbs.QPMaskRQPSN
	if !initiator {
		mask |= verbs.QPMaskMaxDestRD | verbs.QPMaskMinRNRTimer
	}
	const psn = 0x123
	if err := qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR, AH: r.path, PathMTU: r.port.ActiveMTU, DestQPN: peer, RQPSN: psn, MaxDestRD: maxReads,
		MinRNRTimer: 12}, mask); err != nil {
		return err
	}
	mask = st | verbs.QPMaskTimeout | verbs.QPMaskSQPSN
	if !target {
		mask |= verbs.QPMaskRetryCnt | verbs.QPMaskRNRRetry | verbs.QPMaskMaxRDAtomic
	}
	return qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, Timeout: ackTimeout, RetryCnt: 7, RNRRetry: 6, SQPSN: psn, MaxRDAtomic: maxReads}, mask)
}
