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

// A list is transferred without a copy if the memory of the other side is contiguous and reachable: the
// sender of a list puts from its pieces, the receiver of a list gets into them. One call of a
// transport transfers several pieces. Other lists, and generic data, which has no addresses, are sent
// in fragments.

// maxPieces is the maximum number of pieces of a list that is transferred without a copy. It is the default
// capacity of the registration cache in regions.
const maxPieces = 256

type listPiece struct {
	buf    []byte
	end    int        // offset of its end in the list, in bytes
	mem    uct.Mem    // nil if the transport needs no registration
	cached *cachedReg // the cached registration of mem; nil if there is none
}

// pieceList is the pieces of a list that a put or get transfers. The transport may use them until the
// operation is complete.
type pieceList struct {
	domain *region.Domain // with which they are registered
	pieces []listPiece
	at     int // index of the piece where the next call starts
	iov    []uct.IOV
	next   *pieceList // in Worker.transfers.freeLists
}

// listOp has the differences between puts and gets of lists.
type listOp struct {
	cap    uct.Caps
	first  uct.Variant // the variant for proto.Short
	access uct.Access  // access of the transport to the pieces
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

// pieces returns the first n bytes of a list as registered pieces. It returns nil if there are none
// or if a copy is required: the data has no addresses, there are too many pieces, one cannot be
// registered, or one is so small that this costs more than a copy and the configuration does not
// force the scheme.
func (e *EP) pieces(d *data.Buffer, n int, op *listOp) *pieceList {
	i := e.transport(wireup.RMA)
	if n == 0 || d.Generic() || i == nil || !op.movesAnyLength(i) {
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

// movesAnyLength reports whether a transport moves pieces of any length.
func (op *listOp) movesAnyLength(i *iface) bool {
	return i.attr.Caps.Has(op.cap) && op.limits(i.attr).MinZcopy <= 1
}

// pays reports whether a piece of n bytes must be transferred without a copy.
func (op *listOp) pays(i *iface, n int) bool {
	return !i.domain.Attr.NeedMemH || i.w.ctx.cfg.rndvScheme() == op.scheme || i.registrationPays(op.tables(i.transfers()), n, op.first)
}

// add registers and adds a piece that ends at offset end. It reports false if the piece cannot be
// registered.
func (x *pieceList) add(i *iface, buf []byte, end int, op *listOp) bool {
	p := listPiece{buf: buf, end: end}
	if i.domain.Attr.NeedMemH {
		if !i.canRegister(len(buf)) {
			return false
		}
		l, err := i.w.registerCached(i.domain, buf, op.access)
		if err != nil {
			return false
		}
		p.cached, p.mem = l, l.Mem.In(i.domain)
	}
	x.pieces = append(x.pieces, p)
	return true
}

// newPieceList returns an empty list.
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

// freePieces frees a list and releases the registrations of its pieces.
func (w *Worker) freePieces(x *pieceList) {
	for k := range x.pieces {
		if l := x.pieces[k].cached; l != nil {
			l.release()
		}
	}
	clear(x.pieces)
	clear(x.iov[:cap(x.iov)])
	x.pieces, x.iov = x.pieces[:0], x.iov[:0]
	x.next, w.transfers.freeLists = w.transfers.freeLists, x
}

// len is the length in bytes.
func (x *pieceList) len() int { return x.pieces[len(x.pieces)-1].end }

// take fills x.iov for the next call, which starts at offset off, and returns the number of bytes.
func (x *pieceList) take(off int, limits *uct.OpLimits) (n int) {
	if off == 0 { // also after a retry
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

// moveList posts the rest of a put or get of a list, from offset r.off.
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
		if err := r.recordPost(op.call(l, x.iov, r.target.addr+uint64(r.off), key, &r.comp)); err != nil {
			return err
		}
		r.off += n
		r.flags |= reqPosted
	}
	return nil
}

// errNoPieces is the error of a lane whose domain cannot register the pieces of a list.
var errNoPieces = fmt.Errorf("%w: pieces of a list", ucs.ErrUnsupported)

// renewPieces registers the pieces with the domain of a lane that has replaced the lane they were
// made for. No operation on them is in flight. It reports false if they cannot be registered.
func (r *Request) renewPieces(i *iface, op *listOp) bool {
	old, x := r.pieces, r.worker.newPieceList(i.domain)
	for k := range old.pieces {
		if p := &old.pieces[k]; !op.movesAnyLength(i) || !x.add(i, p.buf, p.end, op) {
			r.worker.freePieces(x)
			return false
		}
	}
	r.pieces = x
	r.worker.freePieces(old)
	return true
}
