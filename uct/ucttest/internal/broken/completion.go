package broken

import (
	"sync"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// badCompletions loses or repeats the completions of zero-copy puts and sends of an EP.
type badCompletions struct {
	fault  Fault
	n      int
	firing int // completion functions that are running
	closed bool
	nested bool // a completion function closed the EP
}

func newBadCompletions(k Fault, e *wrap.EP) {
	b := &badCompletions{fault: k}
	e.Has.AM, e.Has.Put, e.EP = &badAMCompletion{e.Has.AM, b}, &badPutCompletion{e.Has.Put, b}, &badClose{e.EP, b}
}

// spoil returns a completion that replaces c and passes its call to c, except as the fault requires.
func (b *badCompletions) spoil(c *uct.Completion) *uct.Completion {
	b.n++
	bad := b.n%badEvery == 0
	return hooked(c, func(h *hook) {
		switch {
		case b.fault == LoseCompletion && bad, b.fault == LoseCancel && b.closed, b.fault == LoseNested && b.nested:
			return
		case b.fault == DoubleCompletion && bad:
			h.user.Count++
			h.fire()
			h.user.Func(h.user)
		case b.fault == CompleteTwice && bad:
			defer h.user.Complete(h.Status)
		}
		b.firing++
		h.fire()
		b.firing--
	})
}

type badAMCompletion struct {
	uct.AMSender
	b *badCompletions
}

func (a *badAMCompletion) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, c *uct.Completion) (bool, error) {
	return a.AMSender.AMZcopy(id, hdr, iov, a.b.spoil(c))
}

type badPutCompletion struct {
	uct.Putter
	b *badCompletions
}

func (p *badPutCompletion) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
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

// earlyFlush returns from Flush as if all operations were complete.
type earlyFlush struct{ uct.EP }

func (e *earlyFlush) Flush(*uct.Completion) (bool, error) {
	_, err := e.EP.Flush(nil)
	return false, err
}

// badReporter returns an OnError that calls report twice (RepeatFailure) or never.
func badReporter(k Fault, report func(uct.EP, error)) func(uct.EP, error) {
	return func(ep uct.EP, err error) {
		if k == RepeatFailure {
			report(ep, err)
			report(ep, err)
		}
	}
}

// regions lists the allocated memory of all domains of a broken transport.
type regions struct {
	mu   sync.Mutex
	mems []uct.Mem
	md   map[uct.Mem]uct.RKeyUnpacker
}

// watch adds the memory that m allocates to r.
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

// find returns the key of the newest region that contains the n bytes at raddr; ok is false if there is none.
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

// guardedPut replaces the key of a short put, or drops a short put out of bounds.
type guardedPut struct {
	uct.Putter
	fault Fault
	r     *regions
}

func (r *regions) guard(k Fault, e *wrap.EP) { e.Has.Put = &guardedPut{e.Has.Put, k, r} }

func (g *guardedPut) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	right, ok := g.r.find(raddr, len(buf))
	switch {
	case g.fault == HideFault && !ok:
		return nil
	case g.fault == IgnoreKey && ok:
		key = right
	}
	return g.Putter.PutShort(buf, raddr, key)
}

// spawningEP starts a goroutine for each operation. The goroutines return when the EP is closed.
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
