package bootstrap

import (
	"net/netip"
	"slices"
	"time"
)

// stage is the step for which a connection waits.
type stage uint8

const (
	stageHello   stage = iota // TLS, token and HELLO of the dialer
	stageOwner                // the reply of the owner of the listener
	stageConnect              // the dialer has an ACCEPT and connects over the transports

	// Stages without a place; see lobby.go.
	stageFirst // the first bytes of the connection
	stagePlace // a place
	stageData  // Take by the transport of the data connection
)

// source is the unit of limits per dialer: an IPv4 address, an IPv6 /64, or a process.
type source struct {
	addr netip.Addr
	uid  uint32
	pid  int
}

// sourcePrefix is the prefix length of a source; a host can choose the other bits of its IPv6 address.
const sourcePrefix = 64

// source returns the source of a dialer.
func (i *Identity) source() source {
	addr := i.Addr.Addr().Unmap().WithZone("")
	if addr.Is6() {
		prefix, _ := addr.Prefix(sourcePrefix) // fails only for more than 128 bits
		addr = prefix.Addr()
	}
	return source{addr, i.UID, i.PID}
}

// graceShare divides HelloTimeout: a connection is not evicted from a stage
// before HelloTimeout / graceShare, which is longer than an honest dialer needs for the stage.
const graceShare = 50

func (l *Listener) grace() time.Duration { return l.cfg.HelloTimeout / graceShare }

// awaitPlace returns when r has a place; false if the listener is closed first. Places are assigned in
// the order in which dialers have sent their first bytes.
func (l *Listener) awaitPlace(r *Request) bool {
	l.mu.Lock()
	r.stage = stagePlace
	l.waiting = append(l.waiting, r)
	l.mu.Unlock()
	for r.ctx.Err() == nil {
		ok, in := l.enter(r, time.Now())
		if ok {
			return true
		}
		select {
		case <-r.freed:
		case <-time.After(in):
		case <-r.ctx.Done():
		}
	}
	return false
}

// enter assigns a place to r. If there is none, it evicts another connection. If that is not possible, in is
// the time after which a connection may be evicted.
func (l *Listener) enter(r *Request, now time.Time) (ok bool, in time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 && l.waiting[0] != r {
		return false, l.cfg.HelloTimeout
	}
	if x, full := l.findVictim(r.source); full {
		in = l.cfg.HelloTimeout
		if x == nil {
			return false, in
		}
		if in = x.staged.Add(l.grace()).Sub(now); in > 0 {
			return false, in
		}
		l.evict(x)
	}
	l.leaveLobby(r)
	r.stage, r.staged = stageHello, now
	l.live = append(l.live, r)
	_ = r.conn.SetDeadline(now.Add(l.cfg.HelloTimeout))
	return true, 0
}

// findVictim reports whether there is no place for a connection of a source. If so, it returns the connection
// to evict: one of the same source if that has MaxPerSource, otherwise one of the source with the most
// evictable connections; nil if all of these wait for the owner.
func (l *Listener) findVictim(from source) (x *Request, full bool) {
	count, evictable := map[source]int{}, map[source]int{}
	for _, r := range l.live {
		count[r.source]++
		if r.stage != stageOwner {
			evictable[r.source]++
		}
	}
	switch {
	case count[from] >= l.cfg.MaxPerSource:
		return l.oldest(from), true
	case len(l.live) < l.cfg.MaxHandshakes:
		return nil, false
	}
	most := source{}
	for _, r := range l.live { // in order, so that the result is deterministic
		if evictable[r.source] > evictable[most] {
			most = r.source
		}
	}
	return l.oldest(most), true
}

// oldest returns the oldest connection of a source that may be evicted, preferably one without a
// HELLO; nil if all wait for the owner.
func (l *Listener) oldest(from source) (x *Request) {
	for _, r := range l.live {
		switch {
		case r.source != from || r.stage == stageOwner:
		case r.stage == stageHello:
			return r
		case x == nil || r.staged.Before(x.staged):
			x = r
		}
	}
	return x
}

// evict closes a connection to make room for another one.
func (l *Listener) evict(r *Request) {
	l.leavePlace(r)
	l.cfg.Stats.count(&l.cfg.Stats.evicted)
	r.evicted = true
	r.cancel()
}

// leavePlace releases the place of a connection, if it has one. l.mu is locked.
func (l *Listener) leavePlace(r *Request) {
	if i := slices.Index(l.live, r); i >= 0 {
		l.live = slices.Delete(l.live, i, i+1)
		l.notifyFreed()
	}
}

// replied records that the owner has replied to r, so that r may be evicted.
func (l *Listener) replied(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.stage, r.staged = stageConnect, time.Now()
	l.notifyFreed()
}

// notifyFreed makes awaitPlace check again.
func (l *Listener) notifyFreed() {
	if len(l.waiting) == 0 {
		return
	}
	select {
	case l.waiting[0].freed <- struct{}{}:
	default:
	}
}

// interrupt makes current and later reads and writes of a connection fail.
func (l *Listener) interrupt(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.interrupted = true
	_ = r.conn.SetDeadline(past)
}
