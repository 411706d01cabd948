package sm

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// parked is closed memory with peers inside that do not run.
type parked struct {
	mem    *Mem
	inside []visit
}

// visit is a peer that was inside: as long as its guard has this value.
type visit struct {
	link *inLink
	seq  uint32
}

// retirePatience is how often a closing Mem looks at guards that are up before it
// leaves its memory to later. A copy of 1 MiB takes 15 us, a yield 0.1 us or more.
const retirePatience = 1000

// retire reclaims the memory of m, whose key is gone from the table, now or later.
func (md *MD) retire(m *Mem) {
	inside := md.visits()
	for range retirePatience {
		if len(inside) == 0 {
			break
		}
		runtime.Gosched()
		inside = md.still(inside)
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	if len(inside) > 0 {
		md.parked = append(md.parked, parked{m, inside})
		return
	}
	md.reclaim(m)
}

// visits lists the peers that are inside memory of this domain. Whoever raises its
// guard later sees that the key is gone: the barrier pairs with guard.enter.
func (md *MD) visits() []visit {
	if md.expedited {
		barrier()
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	var in []visit
	for l := range md.links {
		if seq := l.guard(); seq&1 != 0 {
			in = append(in, visit{l, seq})
		}
	}
	return in
}

// still leaves those of the visits that go on.
func (md *MD) still(in []visit) []visit {
	md.mu.Lock()
	defer md.mu.Unlock()
	return md.ongoing(in)
}

// ongoing is still with md.mu held. A link that is gone visits nobody.
func (md *MD) ongoing(in []visit) []visit {
	left := in[:0]
	for _, v := range in {
		if _, open := md.links[v.link]; open && v.link.guard() == v.seq {
			left = append(left, v)
		}
	}
	return left
}

// unpark reclaims what was parked and is free by now.
func (md *MD) unpark() {
	md.mu.Lock()
	defer md.mu.Unlock()
	left := md.parked[:0]
	for _, p := range md.parked {
		if p.inside = md.ongoing(p.inside); len(p.inside) > 0 {
			left = append(left, p)
			continue
		}
		md.reclaim(p.mem)
	}
	clear(md.parked[len(left):])
	md.parked = left
}

// touches reports whether allocated pages are made at once.
func (md *MD) touches() bool { return md.cfg.FirstTouch != config.No }

// outOfMemory makes the error of an arena one of the contract.
func outOfMemory(err error) error {
	if errors.Is(err, memfd.ErrFull) {
		return fmt.Errorf("%w: %w", uct.ErrNoMemory, err)
	}
	return err
}
