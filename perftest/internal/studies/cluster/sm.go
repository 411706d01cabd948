package cluster

import (
	"slices"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// SharedMemory is time of the CPU that operations over sm take, beside what the model has for all of them: copies by their length;
// Params.LineTransfer for each cache line that the receiver of a message waits for; and what sm declares for
// cross-memory attach, if an operation without a copy accesses memory that is not mapped. A sender waits for no cache
// line: sm prefetches those of later messages.
type SharedMemory struct {
	// Post is spent before an operation is posted, by its variant, also if there is no room for it.
	Post [uct.NumVariants]timing.Time
	// Receive is spent on an active message before its handler.
	Receive timing.Time
	// Poll is spent on each call of Progress.
	Poll timing.Time
}

// Lines of an active message that its receiver waits for: that of the slot, which has short messages whole, and the next one of it
// or the first one of the segment. The processor prefetches the others of a segment, which are read in order.
const (
	lineLen   = 64
	wordLen   = 8 // of the slot before the message, and of each word of a header
	mostLines = 2
)

// linesOf returns the number of cache lines that the receiver of a message of n bytes waits for.
func linesOf(n int) timing.Time {
	if n <= lineLen-wordLen {
		return 1
	}
	return mostLines
}

// sharedMemory is the layer around sm. In this process all ranks reach each other over sm; the layer hides those of
// other nodes. It lets time pass for operations, and wakes the rank at the other end.
type sharedMemory struct {
	c       *Cluster
	opening *Rank               // opens ifaces now
	ifaces  map[string]*smIface // by iface address
	attach  timing.Time         // what an operation by cross-memory attach takes beside the copy
}

func (s *sharedMemory) layer() wrap.Hooks {
	return wrap.Hooks{
		MD: func(m *wrap.MD) { s.attach = timing.Time(m.Attr().RegReach.Send.Nanoseconds()) * timing.Nanosecond },
		Iface: func(i *wrap.Iface) {
			x := &smIface{Iface: i.Iface, IfaceAddresser: i.Has.Address, s: s, rank: s.opening}
			s.ifaces[string(x.IfaceAddr(nil))] = x
			i.Iface, i.Has.Address = x, x
		},
	}
}

// spend lets time pass for what a rank does.
func (s *sharedMemory) spend(d timing.Time) { s.c.model.Spend(d) }

// smIface is the iface of a rank.
type smIface struct {
	uct.Iface
	uct.IfaceAddresser
	s       *sharedMemory
	rank    *Rank
	waiting []*Rank // had no room for a message to this one, or wait for it to execute an operation
}

// Reachable implements uct.IfaceAddresser.
func (i *smIface) Reachable(deviceAddr, ifaceAddr []byte) (ok bool, why string) {
	peer := i.s.ifaces[string(ifaceAddr)]
	if peer == nil || i.s.c.node(peer.rank.id) != i.s.c.node(i.rank.id) {
		return false, "another node"
	}
	return i.IfaceAddresser.Reachable(deviceAddr, ifaceAddr)
}

// Progress implements uct.Iface.
func (i *smIface) Progress() int {
	i.s.spend(i.s.c.cfg.SM.Poll)
	n := i.Iface.Progress()
	if n > 0 { // there is room again, and replies are stored
		for _, r := range i.waiting {
			r.notify()
		}
		i.waiting = i.waiting[:0]
	}
	return n
}

// wakeLater makes Progress wake a rank when it has handled something.
func (i *smIface) wakeLater(r *Rank) {
	if !slices.Contains(i.waiting, r) {
		i.waiting = append(i.waiting, r)
	}
}

// SetAMHandler implements uct.Iface.
func (i *smIface) SetAMHandler(id uint8, h uct.AMHandler) error {
	if h == nil {
		return i.Iface.SetAMHandler(id, nil)
	}
	return i.Iface.SetAMHandler(id, uct.AMHandlerFunc(func(data []byte, d uct.Desc) bool {
		c := i.s.c
		i.s.spend(linesOf(len(data))*c.cfg.Params.LineTransfer + c.cfg.SM.Receive)
		c.model.Copy(len(data))
		return h.HandleAM(data, d)
	}))
}

// NewEP implements uct.Iface.
func (i *smIface) NewEP(p uct.EPParams) (uct.EP, error) {
	e, err := i.Iface.NewEP(p)
	if err != nil {
		return nil, err
	}
	w := e.(*wrap.EP) // of the layer below this one
	x := &smEP{s: i.s, from: i.rank, to: i.s.ifaces[string(p.IfaceAddr)], m: w.Has.Map}
	am, words := smSender{w.Has.AM, x}, smWords{w.Has.Words, x}
	w.Intercept(x)
	w.Has.AM, w.Has.Words = am, words
	w.Has.Put, w.Has.Get = smPutter{w.Has.Put, x}, smGetter{w.Has.Get, x}
	return e, nil
}

// smEP lets time pass for operations of an EP. It implements wrap.Interceptor.
type smEP struct {
	s    *sharedMemory
	from *Rank
	to   *smIface
	m    uct.Mapper
}

// Before implements wrap.Interceptor.
func (e *smEP) Before(v uct.Variant) error {
	e.s.spend(e.s.c.cfg.SM.Post[v])
	return nil
}

// After implements wrap.Interceptor. The caller's CPU executes puts, gets and atomics, or waits until the peer has.
func (e *smEP) After(v uct.Variant, n int, err error) {
	switch v {
	case uct.AMShort, uct.AMBcopy, uct.AMZcopy:
	default:
		if err == nil {
			e.s.c.model.Copy(n)
			e.to.wakeLater(e.from)
		}
	}
	switch err {
	case nil:
		e.to.rank.notify()
	case uct.ErrNoResource:
		e.to.wakeLater(e.from)
	}
}

// attach lets the time of cross-memory attach pass, unless the memory is mapped.
func (e *smEP) attach(raddr uint64, n int, key uct.RKey) {
	if n == 0 {
		return
	}
	if _, unmap, err := e.m.Map(raddr, n, key); err == nil {
		unmap()
		return
	}
	e.s.spend(e.s.attach)
}

// smSender sends active messages. Time of copies passes before the message is stored.
type smSender struct {
	uct.AMSender
	e *smEP
}

// beforeShort lets the time of a short message of n bytes pass. One that fits into a line is copied by the instructions that
// Post has.
func (e *smEP) beforeShort(n int) {
	_ = e.Before(uct.AMShort)
	if linesOf(n) > 1 {
		e.s.c.model.Copy(n)
	}
}

// AMShort implements uct.AMSender.
func (a smSender) AMShort(id uint8, hdr uint64, payload []byte) error {
	a.e.beforeShort(wordLen + len(payload))
	err := a.AMSender.AMShort(id, hdr, payload)
	a.e.After(uct.AMShort, 0, err)
	return err
}

// AMBcopy implements uct.AMSender.
func (a smSender) AMBcopy(id uint8, p uct.Packer) (int, error) {
	_ = a.e.Before(uct.AMBcopy)
	n, err := a.AMSender.AMBcopy(id, copyingPacker{p, a.e.s.c.model})
	a.e.After(uct.AMBcopy, n, err)
	return n, err
}

// AMZcopy implements uct.AMSender. sm copies the bytes.
func (a smSender) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, c *uct.Completion) (bool, error) {
	_ = a.e.Before(uct.AMZcopy)
	a.e.s.c.model.Copy(len(hdr) + uct.IOVLen(iov))
	pending, err := a.AMSender.AMZcopy(id, hdr, iov, c)
	a.e.After(uct.AMZcopy, 0, err)
	return pending, err
}

// smWords sends messages with a header of two words.
type smWords struct {
	below uct.AMWordSender
	e     *smEP
}

// AMWords implements uct.AMWordSender.
func (w smWords) AMWords(id uint8, first, second uint64, payload []byte) error {
	w.e.beforeShort(2*wordLen + len(payload))
	err := w.below.AMWords(id, first, second, payload)
	w.e.After(uct.AMShort, 0, err)
	return err
}

// copyingPacker spends what its copy takes.
type copyingPacker struct {
	uct.Packer
	m *timing.Model
}

// Pack implements uct.Packer.
func (p copyingPacker) Pack(dst []byte) int {
	n := p.Packer.Pack(dst)
	p.m.Copy(n)
	return n
}

type smPutter struct {
	uct.Putter
	e *smEP
}

// PutZcopy implements uct.Putter.
func (p smPutter) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	pending, err := p.Putter.PutZcopy(iov, raddr, key, c)
	if err == nil {
		p.e.attach(raddr, uct.IOVLen(iov), key)
	}
	return pending, err
}

type smGetter struct {
	uct.Getter
	e *smEP
}

// GetZcopy implements uct.Getter.
func (g smGetter) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	pending, err := g.Getter.GetZcopy(iov, raddr, key, c)
	if err == nil {
		g.e.attach(raddr, uct.IOVLen(iov), key)
	}
	return pending, err
}
