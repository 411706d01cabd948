package ucp

import (
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// transfers describes how puts and gets over a transport move bytes. All lanes over the transport share
// it.
type transfers struct {
	put, get      [2]proto.Table // by registration of the local buffer: unregistered or registered
	putZcopy      zcopyRange
	getZcopy      zcopyRange
	domain        *region.Domain
	shortPut      int // maximum length for PutShort; -1 if there is none
	copy, copyGet int // maximum length for PutBcopy and GetBcopy
}

// zcopyRange is the range of lengths, in bytes, that one call moves without a copy.
type zcopyRange struct{ min, max int }

// The indexes of transfers.put and get.
const (
	unregistered = 0 // the buffer is not registered
	registered   = 1
)

// transfers chooses the protocols of a transport, once.
func (i *iface) transfers() *transfers {
	if i.moves == nil {
		i.moves = i.chooseTransfers()
	}
	return i.moves
}

func (i *iface) chooseTransfers() *transfers {
	caps, cfg := i.attr.Caps, proto.Config{ZcopyThresh: i.w.ctx.cfg.zcopyThresh()}
	put := &proto.Variants{
		Short: caps.Has(uct.CapPutShort), Bcopy: caps.Has(uct.CapPutBcopy), Zcopy: caps.Has(uct.CapPutZcopy),
		Limits: i.attr.Put, BcopyCost: i.attr.Costs[uct.PutBcopy], ZcopyCost: i.attr.Costs[uct.PutZcopy],
	}
	get := &proto.Variants{
		Short: caps.Has(uct.CapGetShort), Bcopy: caps.Has(uct.CapGetBcopy), Zcopy: caps.Has(uct.CapGetZcopy),
		Limits: i.attr.Get, BcopyCost: i.attr.Costs[uct.GetBcopy], ZcopyCost: i.attr.Costs[uct.GetZcopy],
	}
	t := &transfers{domain: i.domain}
	for k := range t.put {
		reached := k == registered || !i.domain.Attr.NeedMemH
		t.put[k], t.get[k] = proto.Choose(put, reached, cfg), proto.Choose(get, reached, cfg)
	}
	t.putZcopy, t.getZcopy = zcopyRangeOf(t.put[registered]), zcopyRangeOf(t.get[registered])
	t.shortPut, t.copy = t.put[registered].Longest(proto.Short), t.put[unregistered].Longest(proto.Bcopy)
	t.copyGet = t.get[unregistered].Longest(proto.Bcopy)
	return t
}

func zcopyRangeOf(t proto.Table) zcopyRange {
	return zcopyRange{t.Shortest(proto.Zcopy), t.Longest(proto.Zcopy)}
}

// of returns the index of the tables for a buffer in mem, which may be nil.
func (t *transfers) of(mem *region.Mem) int {
	if mem != nil && mem.In(t.domain) != nil {
		return registered
	}
	return unregistered
}

// transfer checks a put or get, which needs a right at the target, and makes its request.
// If there is nothing to move, both results are nil.
func (e *EP) transfer(s *stage, right uct.Access, buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	mem, err := e.checkTransfer(s, right, buf, raddr, key, p)
	if err != nil || len(buf) == 0 {
		return nil, err
	}
	r := e.newTransfer(s, buf, raddr, key, p)
	r.setMem(mem, right)
	return r, nil
}

// newTransfer makes the request of a put or get that was checked.
func (e *EP) newTransfer(s *stage, buf []byte, raddr uint64, key *RKey, p *OpParams) *Request {
	r := e.w.newRequest(e, s)
	r.buf, r.target, r.onDone = buf, peerRange{key, raddr}, p.onDone()
	return r
}

// setMem sets the registration of the buffer of a put or get, or registers the buffer if mem is nil and that is
// faster.
func (r *Request) setMem(mem *region.Mem, right uct.Access) {
	switch r.mem = mem; {
	case mem != nil:
	case right == uct.AccessRemoteWrite:
		r.registerLocal(putTables, uct.PutShort, 0)
	default:
		r.registerLocal(getTables, uct.GetShort, uct.AccessLocalWrite)
	}
}

// checkTransfer checks a put or get, and returns the registration of the buffer that p contains.
func (e *EP) checkTransfer(s *stage, right uct.Access, buf []byte, raddr uint64, key *RKey, p *OpParams) (*region.Mem, error) {
	a := action{stage: s, n: len(buf)}
	if err := e.refusal(a, key); err != nil {
		return nil, err
	}
	if !e.peer.Best[wireup.RMA].OK {
		return nil, e.wrong(a, ucs.ErrUnsupported, e.w.unreachable(wireup.RMA, e.peer.Addr))
	}
	if why := e.lostRoleErr(wireup.RMA); why != nil {
		return nil, e.errorOf(a, why)
	}
	if why := key.denies(raddr, len(buf), right); why != "" {
		return nil, e.wrong(a, ucs.ErrRemoteAccess, why)
	}
	var mem *region.Mem
	if p != nil && p.Mem != nil {
		mem = (*region.Mem)(p.Mem)
		if !mem.Covers(buf) {
			return nil, e.wrong(a, ucs.ErrInvalidParam, "the buffer is not in OpParams.Mem")
		}
	}
	return mem, e.checkFlags(a, p)
}

// calls are the functions that move the next n bytes of a request, by protocol.
type calls [proto.Zcopy + 1]func(r *Request, l *lane, key uct.RKey, n int) error

// noCall is the function for an operation that the transport does not have.
func noCall(*Request, *lane, uct.RKey, int) error { return ucs.ErrUnsupported }

// move posts the rest of a put or get, one piece after the other.
func (r *Request) move(tables func(*transfers) *[2]proto.Table, by *calls) error {
	return r.moveOver(r.ep.link.lanes.Use[wireup.RMA], tables, by)
}

func (r *Request) moveOver(l *lane, tables func(*transfers) *[2]proto.Table, by *calls) error {
	key, err := r.target.key.resolve(l.Iface.index, l.Remote)
	if err != nil {
		return err
	}
	t := l.Iface.transfers()
	way := tables(t)[t.of(r.mem)].Find(len(r.buf))
	for r.off < len(r.buf) {
		n, p := min(len(r.buf)-r.off, way.Piece), way.Protocol
		if n < way.Least {
			p = proto.Bcopy
		}
		if err := by[p](r, l, key, n); err != nil {
			return err
		}
		r.off += n
		r.flags |= reqPosted
	}
	return nil
}

// part returns the next n bytes and their address at the target.
func (r *Request) part(n int) ([]byte, uint64) {
	return r.buf[r.off : r.off+n], r.target.addr + uint64(r.off)
}

// piece returns the scatter list of the next n bytes, which is stored in the request.
func (r *Request) piece(l *lane, n int) ([]uct.IOV, uint64) {
	buf, raddr := r.part(n)
	return r.zcopyIOV(buf, r.mem, l.Iface.domain), raddr
}

// zcopyIOV returns the scatter list of a buffer. The transport must be able to access the buffer: it is registered, or the
// transport needs no registration.
func (r *Request) zcopyIOV(buf []byte, mem *region.Mem, d *region.Domain) []uct.IOV {
	r.flags |= reqZcopy
	r.iov[0].Buf = buf
	if mem != nil {
		r.iov[0].Mem = mem.In(d)
	}
	return r.iov[:]
}

// newZcopy returns a request for a put or get by one zcopy call; nil if one such call is not possible. b is the range of
// lengths.
func (k *RKey) newZcopy(b *zcopyRange, s *stage, e *EP, buf []byte, raddr uint64, p *OpParams) *Request {
	if k.ep != e {
		return nil
	}
	mem, ok := k.canZcopy(b, buf, raddr, p)
	if !ok {
		return nil
	}
	r := e.w.newDirect()
	r.ep, r.stage, r.off = e, s, len(buf)
	r.flags |= reqZcopy
	r.iov[0].Buf, r.iov[0].Mem = buf, mem
	r.onDone = p.onDone()
	return r
}

// canZcopy reports whether one zcopy call can transfer buf, and returns the transport's registration of buf, if there is
// one.
func (k *RKey) canZcopy(b *zcopyRange, buf []byte, raddr uint64, p *OpParams) (mem uct.Mem, ok bool) {
	n := len(buf)
	if n < b.min || n > b.max || uint64(n) > k.size || !k.opens(raddr, uint64(n)) {
		return nil, false
	}
	d := k.moves.domain
	if p != nil && p.Mem != nil {
		m := (*region.Mem)(p.Mem)
		if !m.Covers(buf) {
			return nil, false
		}
		mem = m.In(d)
	}
	return mem, mem != nil || !d.Attr.NeedMemH
}

func putTables(t *transfers) *[2]proto.Table { return &t.put }

func getTables(t *transfers) *[2]proto.Table { return &t.get }

func postPut(r *Request) error { return r.move(putTables, &putCalls) }

func postGet(r *Request) error { return r.move(getTables, &getCalls) }

var putCalls = calls{proto.None: noCall, proto.Short: putShort, proto.Bcopy: putBcopy, proto.Zcopy: putZcopy}

var getCalls = calls{proto.None: noCall, proto.Short: getShort, proto.Bcopy: getBcopy, proto.Zcopy: getZcopy}

func putShort(r *Request, l *lane, key uct.RKey, n int) error {
	buf, raddr := r.part(n)
	return l.Put.PutShort(buf, raddr, key)
}

func putBcopy(r *Request, l *lane, key uct.RKey, n int) error {
	buf, raddr := r.part(n)
	return l.Put.PutBcopy(buf, raddr, key)
}

func putZcopy(r *Request, l *lane, key uct.RKey, n int) error {
	iov, raddr := r.piece(l, n)
	r.comp.Count++
	return r.recordPost(l.Put.PutZcopy(iov, raddr, key, &r.comp))
}

func getShort(r *Request, l *lane, key uct.RKey, n int) error {
	buf, raddr := r.part(n)
	return l.Get.GetShort(buf, raddr, key)
}

func getBcopy(r *Request, l *lane, key uct.RKey, n int) error {
	buf, raddr := r.part(n)
	r.comp.Count++
	return r.recordPost(l.Get.GetBcopy(buf, raddr, key, &r.comp))
}

func getZcopy(r *Request, l *lane, key uct.RKey, n int) error {
	iov, raddr := r.piece(l, n)
	r.comp.Count++
	return r.recordPost(l.Get.GetZcopy(iov, raddr, key, &r.comp))
}

// recordPost records the result of a post for which comp was incremented.
func (r *Request) recordPost(pending bool, err error) error {
	if !pending || err != nil {
		r.comp.Count--
	}
	if err == nil {
		r.flags |= reqPosted
	}
	return err
}

// startNext starts the next stage, unless the request has failed or was given up.
func (r *Request) startNext(next *stage) {
	st := r.comp.Status
	if st == ucs.StatusOK {
		st = r.stopped()
	}
	if st != ucs.StatusOK || r.Done() {
		r.complete(st)
		return
	}
	r.stage, r.lane = next, 0
	r.flags = r.flags&^reqPosted | reqUnfenced
	r.comp.Count = 1
	r.launch()
}

// copies reports whether the operation may copy the local buffer: buf is not registered, or is shorter than limit
// and covered by Mem, and there is no OnDone. p may be nil.
func (p *OpParams) copies(buf []byte, limit int) bool {
	return p == nil || p.OnDone == nil && (p.Mem == nil || len(buf) < limit && (*region.Mem)(p.Mem).Covers(buf))
}

// fetches reports whether the transport has the fetching operation and the key permits it at
// raddr.
func (k *RKey) fetches(e *EP, op uct.AtomicOp, size int, raddr uint64) bool {
	return k != nil && k.ep == e && uint(size) < uint(len(k.fetch)) && k.fetch[size].Has(op) &&
		raddr&uint64(size-1) == 0 && k.opens(raddr, uint64(size))
}
