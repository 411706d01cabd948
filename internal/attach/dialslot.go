package attach

import (
	"context"
	"sync"
	"time"
)

const (
	// maxDials is the maximum number of dials of this process in progress. A dial is complete when its link has moved to
	// an older connection, or is the first one. Until then it uses up to 9 descriptors if both ends are in this
	// process: two sockets, the link segment, and three that arrive with the message to either side.
	maxDials = 64

	// dialPatience is the time after which a dial is late, because the process at the other end is stopped or overloaded.
	// Late dials do not count, and neither do other dials to that process until none is late: each has one
	// descriptor.
	dialPatience = 2 * time.Second
)

// dialSlots has an element for each dial that counts.
var dialSlots = make(chan struct{}, maxDials)

// lateDials has the number of late dials for each process.
var lateDials struct {
	sync.Mutex // also of the fields of dialSlot; no other lock is taken while it is held
	to         map[peer]int
}

// dialSlot is the state of a dial in progress.
type dialSlot struct {
	who    peer // zero until reached is called
	counts bool
	late   bool
	over   bool
	timer  *time.Timer
}

// acquireDialSlot waits until another dial may begin. Errors: as Dial.
func (p *Port) acquireDialSlot(ctx context.Context) (*dialSlot, error) {
	select {
	case dialSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, p.dialError(ctx, ctx.Err())
	case <-p.ctx.Done():
		return nil, p.dialError(ctx, p.ctx.Err())
	}
	s := &dialSlot{counts: true}
	lateDials.Lock()
	defer lateDials.Unlock()
	s.timer = time.AfterFunc(dialPatience, s.setLate)
	return s, nil
}

// release makes the dial not count until acquire is called.
func (s *dialSlot) release() {
	lateDials.Lock()
	defer lateDials.Unlock()
	s.free()
}

// acquire waits until the dial counts again. Error: that of ctx.
func (s *dialSlot) acquire(ctx context.Context) error {
	select {
	case dialSlots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	lateDials.Lock()
	defer lateDials.Unlock()
	s.counts = true
	return nil
}

// free makes the dial not count. The lock is held.
func (s *dialSlot) free() {
	if s.counts {
		s.counts = false
		<-dialSlots
	}
}

// setLate is called after dialPatience.
func (s *dialSlot) setLate() {
	lateDials.Lock()
	defer lateDials.Unlock()
	if s.over {
		return
	}
	s.free()
	if s.who == (peer{}) {
		return
	}
	s.late = true
	if lateDials.to == nil {
		lateDials.to = map[peer]int{}
	}
	lateDials.to[s.who]++
}

// reached is called when the kernel has reported the process at the other end.
func (s *dialSlot) reached(who peer) {
	lateDials.Lock()
	defer lateDials.Unlock()
	s.who = who
	if lateDials.to[who] > 0 {
		s.free()
	}
}

// finish must be called at the end of the dial. Idempotent.
func (s *dialSlot) finish() {
	lateDials.Lock()
	defer lateDials.Unlock()
	if s.over {
		return
	}
	s.over = true
	s.timer.Stop()
	s.free()
	if !s.late {
		return
	}
	if lateDials.to[s.who]--; lateDials.to[s.who] == 0 {
		delete(lateDials.to, s.who)
	}
}
