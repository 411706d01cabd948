package broken

import (
	"sync"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// badCompletions spoils completions of zcopy puts and sends.
type badCompletions struct {
	kind   Kind
	n      int
	firing int // completions that run
	closed bool
	nested bool // closed by a completion
}

func newBadCompletions(k Kind, e *wrap.EP) {
	b := &badCompletions{kind: k}
	e.Has.AM, e.Has.Put, e.EP = &badAMEnd{e.Has.AM, b}, &badPutEnd{e.Has.Put, b}, &badClose{e.EP, b}
}

// spoil replaces the completion of an operation.
func (b *badCompletions) spoil(c *uct.Completion) *uct.Completion {
	b.n++
	bad := b.n%badEvery == 0
	return hooked(c, func(h *hook) {
		switch {
		case b.kind == LoseCompletion && bad, b.kind == LoseCancel && b.closed, b.kind == LoseNested && b.nested:
			return
		case b.kind == DoubleCompletion && bad:
			h.user.Count++
			h.fire()
			h.user.Func(h.user)
		case b.kind == EndTwice && bad:
			defer h.user.Complete(h.Status)
		}
		b.firing++
		h.fire()
		b.firing--
	})
}

type badAMEnd struct {
	uct.AMSender
	b *badCompletions
}

func (a *badAMEnd) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, c *uct.Completion) (bool, error) {
	return a.AMSender.AMZcopy(id, hdr, iov, a.b.spoil(c))
}

type badPutEnd struct {
	uct.Putter
	b *badCompletions
}

func (p *badPutEnd) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	return p.Putter.PutZcopy(iov, raddr, key, p.b.spoil(c))
}

type badClose struct {
	uct.EP
	b *badCompletions
}

func (e *badClose) Close() error {
	e.b.closed = true
	e.b.nested = e.b.firing > 0
	return e.EP.Close()
}

// earlyFlush says that flushes are complete at once.
type earlyFlush struct{ uct.EP }

func (e *earlyFlush) Flush(*uct.Completion) (bool, error) {
	_, err := e.EP.Flush(nil)
	return false, err
}

// badTeller makes an OnError that tells of failures never or twice.
func badTeller(k Kind, tell func(uct.EP, error)) func(uct.EP, error) {
	return func(ep uct.EP, err error) {
		if k == RepeatFailure {
			tell(ep, err)
			tell(ep, err)
		}
	}
}

// regions are the memory of all domains of a broken transport.
type regions struct {
	mu   sync.Mutex
	mems []uct.Mem
	md   map[uct.Mem]uct.RKeyUnpacker
}

// watch makes the domain tell of its memory.
func (r *regions) watch(m *wrap.MD) {
	if m.Has.Alloc != nil {
		m.Has.Alloc = &watchedAllocator{m.Has.Alloc, m.Has.Keys, r}
	}
}

type watchedAllocator struct {
	uct.Allocator
	unpack uct.RKeyUnpacker
	r      *regions
}

func (a *watchedAllocator) Alloc(n int, access uct.Access) (uct.Mem, error) {
	mem, err := a.Allocator.Alloc(n, access)
	if err != nil {
		return nil, err
	}
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	if a.r.md == nil {
		a.r.md = map[uct.Mem]uct.RKeyUnpacker{}
	}
	a.r.mems = append(a.r.mems, mem)
	a.r.md[mem] = a.unpack
	return mem, nil
}

// find is the newest region in which the range lies, with its right key.
func (r *regions) find(raddr uint64, n int) (key uct.RKey, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.mems) - 1; i >= 0; i-- {
		mem := r.mems[i]
		off := raddr - mem.Addr()
		if size := uint64(len(mem.Bytes())); off > size || uint64(n) > size-off {
			continue
		}
		packed, err := mem.PackRKey(nil)
		if err != nil {
			continue
		}
		key, err = r.md[mem].UnpackRKey(packed)
		return key, err == nil
	}
	return 0, false
}

// guardedPut breaks the rules of remote access for short puts.
type guardedPut struct {
	uct.Putter
	kind Kind
	r    *regions
}

func (r *regions) guard(k Kind, e *wrap.EP) { e.Has.Put = &guardedPut{e.Has.Put, k, r} }

func (g *guardedPut) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	right, ok := g.r.find(raddr, len(buf))
	switch {
	case g.kind == HideFault && !ok:
		return nil
	case g.kind == IgnoreKey && ok:
		key = right
	}
	return g.Putter.PutShort(buf, raddr, key)
}

// spawningEP has goroutines that last as long as it.
type spawningEP struct {
	uct.EP
	once sync.Once
	end  chan struct{}
}

func spawning(e *wrap.EP) {
	s := &spawningEP{EP: e.EP, end: make(chan struct{})}
	e.EP = s
	e.Intercept(beforeEach(func() { go func() { <-s.end }() }))
}

func (e *spawningEP) Close() error {
	e.once.Do(func() { close(e.end) })
	return e.EP.Close()
}
