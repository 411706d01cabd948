package provider

import (
	"fmt"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// maxDynamicPages is how many UAR pages the thread domains of a context may have
// (512 on kernels with pages of 4 KiB).
const maxDynamicPages = 512

// uuar is a micro-UAR: a doorbell register, with two BlueFlame buffers or none.
type uuar struct {
	uar       prm.UAR
	base      uint32 // page offset of the register
	toggle    uint32 // 0 or BFBufLen: the buffer to use next
	step      uint32 // BFBufLen, or 0 where there is one place for doorbells only
	blueFlame bool
	locked    bool // several QPs share it
	users     int  // QPs and thread domains
	page      *uarPage
	mu        spinLock
}

// uarPage is a UAR page and its two micro-UARs.
type uarPage struct {
	uar  prm.UAR
	half [prm.UUARsPerPage]uuar
}

// uarPages allocates the pages of a context.
type uarPages struct {
	alloc func(prm.UARType) (prm.UAR, error)
	free  func(prm.UAR) error
	pages map[*uarPage]struct{}
}

// get allocates a page for QPs. Its registers alternate between their two buffers,
// also for doorbells when there is no BlueFlame.
func (p *uarPages) get(blueFlame, locked bool) (*uarPage, error) {
	return p.getStep(prm.UARBlueFlame, prm.BFBufLen, blueFlame, locked)
}

// getPlain allocates a page whose registers accept only doorbells, at one offset.
func (p *uarPages) getPlain() (*uarPage, error) { return p.getStep(prm.UARPlain, 0, false, false) }

func (p *uarPages) getStep(typ prm.UARType, step uint32, blueFlame, locked bool) (*uarPage, error) {
	uar, err := p.alloc(typ)
	if err != nil {
		return nil, &ucs.OpError{TL: "mlx5", Op: "allocate UAR page", Err: err}
	}
	pg := &uarPage{uar: uar}
	for i := range pg.half {
		u := &pg.half[i]
		*u = uuar{uar: uar, base: prm.UUAROffset(i), step: step, blueFlame: blueFlame, locked: locked, page: pg}
	}
	if p.pages == nil {
		p.pages = make(map[*uarPage]struct{})
	}
	p.pages[pg] = struct{}{}
	return pg, nil
}

// put frees a page. After an error the page is still allocated.
func (p *uarPages) put(pg *uarPage) error {
	if err := p.free(pg.uar); err != nil {
		return &ucs.OpError{TL: "mlx5", Op: "free UAR page", Err: err}
	}
	delete(p.pages, pg)
	return nil
}

// putAll frees all remaining pages.
func (p *uarPages) putAll() error {
	var first error
	for pg := range p.pages {
		if err := p.put(pg); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// count adds the pages and their use to r.
func (p *uarPages) count(r *verbs.Resources) {
	for pg := range p.pages {
		r.UARPages++
		r.UUARs += prm.UUARsPerPage
		for i := range pg.half {
			if pg.half[i].users > 0 {
				r.UUARsUsed++
			}
		}
	}
	r.UUARsWasted = r.UUARs - r.UUARsUsed
}

// uuarPolicy assigns micro-UARs to QPs outside thread domains. Not safe for
// several goroutines.
type uuarPolicy interface {
	// get always finds one: at worst a shared one without BlueFlame.
	get() *uuar
	put(*uuar)
	// cqPage is where CQs are armed.
	cqPage() prm.UAR
}

func newUUARPolicy(cfg mlx5.Config, pages *uarPages) (uuarPolicy, error) {
	if cfg.UARPolicy == mlx5.UARLazy {
		return newLazyUUARs(cfg, pages)
	}
	return newStaticUUARs(cfg, pages)
}

// staticUUARs has three classes. With 16 and 4, numbers are:
//
//	0        non-BlueFlame: doorbells only, atomic, so no lock; when 1..11 do not exist
//	1..11    medium: shared by the least loaded, under a lock
//	12..15   low latency: one QP each, no lock; first to be handed out
type staticUUARs struct {
	all    []*uuar
	lowLat int // number of the first low-latency one
}

func newStaticUUARs(cfg mlx5.Config, pages *uarPages) (*staticUUARs, error) {
	s := &staticUUARs{lowLat: cfg.TotalUUARs - cfg.LowLatUUARs}
	for n := 0; n < cfg.TotalUUARs; n += prm.UUARsPerPage {
		pg, err := pages.get(!cfg.ShutUpBF, false)
		if err != nil {
			return nil, err
		}
		s.all = append(s.all, &pg.half[0], &pg.half[1])
	}
	s.all[0].blueFlame, s.all[0].step = false, 0
	for _, u := range s.all[1:s.lowLat] {
		u.locked = !cfg.SingleThreaded
	}
	return s, nil
}

func (s *staticUUARs) get() *uuar {
	u := s.pick()
	u.users++
	return u
}

func (s *staticUUARs) pick() *uuar {
	for _, u := range s.all[s.lowLat:] {
		if u.users == 0 {
			return u
		}
	}
	if med := s.all[1:s.lowLat]; len(med) > 0 {
		return leastUsed(med)
	}
	return s.all[0]
}

func (s *staticUUARs) put(u *uuar) { u.users-- }

func (s *staticUUARs) cqPage() prm.UAR { return s.all[0].uar }

// leastUsed is the one with the fewest users, the first of them.
func leastUsed(list []*uuar) *uuar {
	best := list[0]
	for _, u := range list[1:] {
		if u.users < best.users {
			best = u
		}
	}
	return best
}

// lazyUUARs allocates pages for the QPs that come: first dedicated ones, then
// shared ones up to a limit, then those are shared more. Pages are kept until the
// context closes. One page without BlueFlame is there from the start, for CQs and
// for QPs when there is no other.
type lazyUUARs struct {
	pages     *uarPages
	plain     *uarPage
	dedicated int     // made
	free      []*uuar // dedicated, not in use; the next one last
	shared    []*uuar
	maxLowLat int
	maxShared int
	lockFree  bool
	noBF      bool
}

func newLazyUUARs(cfg mlx5.Config, pages *uarPages) (*lazyUUARs, error) {
	plain, err := pages.getPlain()
	if err != nil {
		return nil, err
	}
	return &lazyUUARs{
		pages: pages, plain: plain, maxLowLat: cfg.LowLatUUARs, maxShared: cfg.TotalUUARs - cfg.LowLatUUARs,
		lockFree: cfg.SingleThreaded, noBF: cfg.ShutUpBF,
	}, nil
}

func (l *lazyUUARs) get() *uuar {
	u := l.pick()
	u.users++
	return u
}

func (l *lazyUUARs) pick() *uuar {
	if l.noBF {
		return &l.plain.half[0]
	}
	if u := l.getDedicated(); u != nil {
		return u
	}
	if len(l.shared) < l.maxShared {
		if pg, err := l.pages.get(true, !l.lockFree); err == nil {
			l.shared = append(l.shared, &pg.half[0], &pg.half[1])
		}
	}
	if len(l.shared) > 0 {
		return leastUsed(l.shared)
	}
	return &l.plain.half[0]
}

func (l *lazyUUARs) getDedicated() *uuar {
	if len(l.free) == 0 && l.dedicated < l.maxLowLat {
		if pg, err := l.pages.get(true, false); err == nil {
			l.dedicated += prm.UUARsPerPage
			l.free = append(l.free, &pg.half[1], &pg.half[0])
		}
	}
	if len(l.free) == 0 {
		return nil
	}
	u := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	return u
}

func (l *lazyUUARs) put(u *uuar) {
	u.users--
	if u.blueFlame && !l.isShared(u) {
		l.free = append(l.free, u)
	}
}

func (l *lazyUUARs) isShared(u *uuar) bool {
	for _, s := range l.shared {
		if s == u {
			return true
		}
	}
	return false
}

func (l *lazyUUARs) cqPage() prm.UAR { return l.plain.uar }

// tdUUARs allocates the micro-UARs of thread domains. Each domain gets a page of its own; with
// sharing level 2 an even and an odd domain share one.
type tdUUARs struct {
	pages     *uarPages
	blueFlame bool
	count     int        // pages
	half      []*uarPage // of level 2, with one half free
}

func (t *tdUUARs) get(sharing int) (*uuar, error) {
	switch sharing {
	case 0, 1:
	case 2:
		if n := len(t.half); n > 0 {
			pg := t.half[n-1]
			t.half = t.half[:n-1]
			return getHalf(pg), nil
		}
	default:
		return nil, fmt.Errorf("thread domain: sharing level %d: want 1 or 2: %w", sharing, ucs.ErrInvalidParam)
	}
	if t.count == maxDynamicPages {
		return nil, fmt.Errorf("thread domain: %d dynamic UAR pages in use: %w", t.count, ucs.ErrNoMemory)
	}
	pg, err := t.pages.get(t.blueFlame, false)
	if err != nil {
		return nil, err
	}
	t.count++
	if sharing == 2 {
		t.half = append(t.half, pg)
	}
	return getHalf(pg), nil
}

// getHalf returns the even micro-UAR of a page, or the odd one if the even one is used.
func getHalf(pg *uarPage) *uuar {
	u := &pg.half[0]
	if u.users > 0 {
		u = &pg.half[1]
	}
	u.users++
	return u
}

// put releases a micro-UAR, and frees its page if the other half is unused. After an error the
// micro-UAR is still in use.
func (t *tdUUARs) put(u *uuar, sharing int) error {
	pg := u.page
	if sharing == 2 && pg.half[0].users+pg.half[1].users > 1 {
		u.users--
		t.half = append(t.half, pg)
		return nil
	}
	if err := t.pages.put(pg); err != nil {
		return err
	}
	u.users--
	for i, h := range t.half {
		if h == pg {
			t.half = append(t.half[:i], t.half[i+1:]...)
			break
		}
	}
	t.count--
	return nil
}
