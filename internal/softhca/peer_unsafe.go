package softhca

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/ucs"
)

// attach sets up the dialer's side of a link.
func (l *outLink) attach(out *attach.Outbound) error {
	t, ok := table.New(out.Table.Bytes())
	if !ok || !t.Valid() || len(out.Table.Bytes()) < table.SharedLen {
		return fmt.Errorf("%w: table of %s", ucs.ErrInvalidAddr, l.gid)
	}
	arena := out.Arena.Bytes()
	if len(arena) < arenaStart {
		return fmt.Errorf("%w: arena of %d bytes of %s", ucs.ErrInvalidAddr, len(arena), l.gid)
	}
	l.table = t
	l.arena = unsafe.Pointer(unsafe.SliceData(arena))
	l.arenaLen = uint64(len(arena))
	l.ctl = (*control)(l.arena)
	l.claims = table.ClaimsAt(arena[claimsOff:])
	l.wakeFD = out.WakeFD
	l.pid = out.PeerPID
	l.mem = linkMem{unsafe.Pointer(unsafe.SliceData(out.Seg.Bytes()))}
	l.req = l.mem.producer(linkReq)
	l.resp = l.mem.consumer(linkResp)
	l.closeFunc = out.Close
	l.cma = !l.hca.cfg.NoCMA && l.probe() == nil
	return nil
}

// probe returns nil if the kernel allows cross-memory attach to the peer.
func (l *outLink) probe() error {
	var v cma.Vec
	h := l.table.Cookie()
	return v.Probe(l.pid, h[0].Load(), h[1].Load())
}

// newInLink sets up the acceptor's side of a link.
func newInLink(h *hca, in *attach.Inbound) (*inLink, error) {
	seg, ctl := in.Seg.Bytes(), in.Control.Bytes()
	if len(seg) < linkLen || len(ctl) < pageLen {
		return nil, ucs.ErrInvalidParam
	}
	mem := linkMem{unsafe.Pointer(unsafe.SliceData(seg))}
	l := &inLink{hca: h, gid: table.GIDWords(in.PeerGID), pid: in.PeerPID, ctl: (*control)(unsafe.Pointer(unsafe.SliceData(ctl))),
		wakeFD: in.WakeFD, mem: mem, sameUser: int(in.PeerUID) == os.Geteuid(),
		hangUp: in.HangUp, peerStays: in.PeerStays, closeFunc: in.Close}
	l.req = mem.consumer(linkReq)
	l.resp = mem.producer(linkResp)
	l.state.Store(linkUp)
	return l, nil
}

// connectSelf sets up both sides of the only link of the loop fabric. linkMu is held.
func (l *outLink) connectSelf() {
	h := l.hca
	block, err := offheap.Alloc(linkLen)
	if err != nil {
		l.goDown(endBusy)
		return
	}
	l.self = true
	l.table = h.table
	l.ctl, l.wakeFD = h.ctl, h.wakeFD
	l.claims = h.claims
	l.mem = linkMem{unsafe.Pointer(unsafe.SliceData(block.Bytes()))}
	l.req = l.mem.producer(linkReq)
	l.resp = l.mem.consumer(linkResp)
	in := &inLink{hca: h, gid: h.gidWords, pid: os.Getpid(), ctl: h.ctl, wakeFD: h.wakeFD, mem: l.mem,
		hangUp: func() {}, peerStays: func() bool { return false }, closeFunc: block.Free}
	in.req = l.mem.consumer(linkReq)
	in.resp = l.mem.producer(linkResp)
	in.state.Store(linkUp)
	h.setInbound(append(*h.inbound.Load(), in))
	h.setOutbound(append(*h.outbound.Load(), l))
	l.state.Store(linkUp)
}

// uarPage is a UAR page: memory, and the doorbell of its registers.
type uarPage struct {
	hca   *hca
	block *offheap.Block
}

func (u *uarPage) base() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(u.block.Bytes())) }

// wordOf returns the word inside an atomic, for a caller that loads it with sync/atomic.
func wordOf(v *atomic.Uint32) *uint32 { return (*uint32)(unsafe.Pointer(v)) }

// controlOf returns the control page at the start of an arena.
func controlOf(mem []byte) *control { return (*control)(unsafe.Pointer(unsafe.SliceData(mem))) }

// withoutQueues sets up a QP without queues: its doorbell record is in the QP and always 0.
func (qp *queuePair) withoutQueues() {
	qp.dbrec = prm.NewDBRec(unsafe.Pointer(&qp.records))
	qp.rq = &recvQueue{hca: qp.hca, dbrec: qp.dbrec}
}
