package ucp

import (
	"fmt"

	"github.com/gucx/gucx/ucp/internal/data"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Data in pieces goes without a copy where the other side's memory is in one piece and can be
// reached: the sender of a list puts from its pieces, the receiver of one gets into them. A
// transport takes several with one call. Otherwise it goes in fragments, as generic data does,
// which has no addresses.

// maxPieces is how many pieces a list may have that goes without a copy: as many regions as
// the cache keeps by default. Each is looked up there, which takes as long as copying some
// hundred bytes.
const maxPieces = 256

// listPiece is a piece of a list.
type listPiece struct {
	buf   []byte
	end   int     // where it ends in the message
	mem   uct.Mem // nil if the transport reaches memory by itself
	lease *lease  // of mem; nil without one
}

// pieceList are the pieces of a message that a put or get moves. They are the transport's
// until it has ended.
type pieceList struct {
	domain *region.Domain // that reaches them
	pieces []listPiece
	at     int // of pieces: the one where the next call begins
	iov    []uct.IOV
	next   *pieceList // in Worker.transfers.freeLists
}

// listOp is what puts and gets of lists differ in.
type listOp struct {
	cap    uct.Caps
	first  uct.Variant // proto.Short of it
	access uct.Access  // to the pieces
	scheme proto.Scheme
	tables func(*transfers) *[2]proto.Table
	limits func(*uct.IfaceAttr) *uct.OpLimits
	call   func(l *lane, iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error)
}

var (
	putList = listOp{
		cap: uct.CapPutZcopy, first: uct.PutShort, scheme: proto.Put, tables: putTables,
		limits: func(a *uct.IfaceAttr) *uct.OpLimits { return &a.Put },
		call: func(l *lane, iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
			return l.Put.PutZcopy(iov, raddr, key, c)
		},
	}
	getList = listOp{
		cap: uct.CapGetZcopy, first: uct.GetShort, access: uct.AccessLocalWrite, scheme: proto.Get, tables: getTables,
		limits: func(a *uct.IfaceAttr) *uct.OpLimits { return &a.Get },
		call: func(l *lane, iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
			return l.Get.GetZcopy(iov, raddr, key, c)
		},
	}
)

// pieces makes the first n bytes of a list ready for an operation. It returns nil if there are no
// pieces, or if they are to be copied: they have no addresses, are too many, cannot be registered,
// or are so short that this does not pay and the configuration does not name the scheme.
func (e *EP) pieces(d *data.Buffer, n int, op *listOp) *pieceList {
	i := e.transport(wireup.RMA)
	if n == 0 || d.Generic() || i == nil || !op.over(i) {
		return nil
	}
	x := e.w.newPieceList(i.domain)
	var one [1]uct.IOV
	for off := 0; off < n; {
		_, got := d.Slices(off, n-off, one[:])
		if off += got; got == 0 || len(x.pieces) == maxPieces || !op.pays(i, got) || !x.add(i, one[0].Buf, off, op) {
			e.w.freePieces(x)
			return nil
		}
	}
	return x
}

// over reports that a transport takes pieces of any length.
func (op *listOp) over(i *iface) bool {
	return i.attr.Caps.Has(op.cap) && op.limits(i.attr).MinZcopy <= 1
}

// pays reports that a piece of n bytes is to be moved without a copy.
func (op *listOp) pays(i *iface, n int) bool {
	return !i.domain.Attr.NeedMemH || i.w.ctx.cfg.rndvScheme() == op.scheme || i.leasePays(op.tables(i.transfers()), n, op.first)
}

// add adds a piece. It reports false if that cannot be registered.
func (x *pieceList) add(i *iface, buf []byte, end int, op *listOp) bool {
	p := listPiece{buf: buf, end: end}
	if i.domain.Attr.NeedMemH {
		if !i.leases(len(buf)) {
			return false
		}
		l, err := i.w.lease(i.domain, buf, op.access)
		if err != nil {
			return false
		}
		p.lease, p.mem = l, l.Mem.In(i.domain)
	}
	x.pieces = append(x.pieces, p)
	return true
}

// newPieceList takes an empty list.
func (w *Worker) newPieceList(d *region.Domain) *pieceList {
	x := w.transfers.freeLists
	if x == nil {
		x = &pieceList{}
	} else {
		w.transfers.freeLists = x.next
	}
	x.domain, x.at, x.next = d, 0, nil
	return x
}

// freePieces gives a list back, and the memory of its pieces.
func (w *Worker) freePieces(x *pieceList) {
	for k := range x.pieces {
		if l := x.pieces[k].lease; l != nil {
			l.end()
		}
	}
	clear(x.pieces)
	clear(x.iov[:cap(x.iov)])
	x.pieces, x.iov = x.pieces[:0], x.iov[:0]
	x.next, w.transfers.freeLists = w.transfers.freeLists, x
}

// len is the length in bytes.
func (x *pieceList) len() int { return x.pieces[len(x.pieces)-1].end }

// take makes the scatter list of the next call, from off on, and returns how many bytes it has.
func (x *pieceList) take(off int, limits *uct.OpLimits) (n int) {
	if off == 0 { // also if the operation is repeated
		x.at = 0
	}
	for x.pieces[x.at].end <= off {
		x.at++
	}
	x.iov = x.iov[:0]
	for k := x.at; k < len(x.pieces) && len(x.iov) < limits.MaxIOV && n < limits.MaxZcopy; k++ {
		p := &x.pieces[k]
		b := p.buf[len(p.buf)-(p.end-off-n):]
		b = b[:min(len(b), limits.MaxZcopy-n)]
		x.iov = append(x.iov, uct.IOV{Buf: b, Mem: p.mem})
		n += len(b)
	}
	return n
}

// moveList posts the rest of a put or get of a list.
func (r *Request) moveList(op *listOp) error {
	l := r.ep.link.lanes.Use[wireup.RMA]
	if l.Iface.domain != r.pieces.domain && !r.renewPieces(l.Iface, op) {
		return errNoPieces
	}
	x := r.pieces
	key, err := r.target.key.resolve(l.Iface.index, l.Remote)
	if err != nil {
		return err
	}
	r.flags |= reqZcopy
	for total := x.len(); r.off < total; {
		n := x.take(r.off, op.limits(l.Iface.attr))
		r.comp.Count++
		if err := r.took(op.call(l, x.iov, r.target.addr+uint64(r.off), key, &r.comp)); err != nil {
			return err
		}
		r.off += n
		r.flags |= reqPosted
	}
	return nil
}

// errNoPieces says that the transport of a lane does not reach the pieces of a list.
var errNoPieces = fmt.Errorf("%w: pieces of a list", ucs.ErrUnsupported)

// renewPieces makes the list ready for a lane of another domain, which has taken the place of
// the one that it was made for. No transport has any of it. It reports false if that cannot be.
func (r *Request) renewPieces(i *iface, op *listOp) bool {
	old, x := r.pieces, r.worker.newPieceList(i.domain)
	for k := range old.pieces {
		if p := &old.pieces[k]; !op.over(i) || !x.add(i, p.buf, p.end, op) {
			r.worker.freePieces(x)
			return false
		}
	}
	r.pieces = x
	r.worker.freePieces(old)
	return true
}
