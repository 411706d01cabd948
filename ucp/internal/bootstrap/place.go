package bootstrap

import (
	"net/netip"
	"slices"
	"time"
)

// stage is the step that a connection waits for.
type stage uint8

const (
	stageHello   stage = iota // the dialer: TLS, token and HELLO
	stageOwner                // the owner of the listener: a reply
	stageConnect              // the dialer: it has an ACCEPT and connects over the transports

	// Without a place; see lobby.go.
	stageFirst // the dialer: the first bytes
	stagePlace // a place
	stageData  // the owner of the data connection: Take
)

// source is the unit of limits per dialer: an IPv4 address, an IPv6 /64, or a process.
type source struct {
	addr netip.Addr
	uid  uint32
	pid  int
}

// sourcePrefix is the prefix length of a source; a host can choose the other bits of its IPv6 address.
const sourcePrefix = 64

// source is the source of a dialer.
func (i *Identity) source() source {
	addr := i.Addr.Addr().Unmap().WithZone("")
	if addr.Is6() {
		prefix, _ := addr.Prefix(sourcePrefix) // the error: for more than 128 bits
		addr = prefix.Addr()
	}
	return source{addr, i.UID, i.PID}
}

// graceShare divides HelloTimeout: in each stage a connection is not evicted
// before that time, which is longer than an honest dialer needs for the stage.
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

// enter assigns a place to r, and evicts another connection for it if there is none. If that is not possible, in is
// the time after which a connection may be evicted.
func (l *Listener) enter(r *Request, now time.Time) (ok bool, in time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 && l.waiting[0] != r {
		return false, l.cfg.HelloTimeout
	}
	if x, full := l.inTheWay(r.source); full {
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

// inTheWay reports whether there is no place for a connection of a source, and returns the connection
// to evict for it: of the same source if that has MaxPerSource, otherwise of the source with the most.
// nil if all wait for the owner.
func (l *Listener) inTheWay(from source) (x *Request, full bool) {
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

// oldest is the oldest connection of a source that may be evicted, preferably one without a
// HELLO. nil if all wait for the owner.
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

// leavePlace is called when a connection needs no place any more. l.mu is held.
func (l *Listener) leavePlace(r *Request) {
	if i := slices.Index(l.live, r); i >= 0 {
		l.live = slices.Delete(l.live, i, i+1)
		l.noteFreed()
	}
}

// replied records that the owner has replied to r, which may be evicted from now on.
func (l *Listener) replied(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.stage, r.staged = stageConnect, time.Now()
	l.noteFreed()
}

// noteFreed makes awaitPlace check again.
func (l *Listener) noteFreed() {
	if len(l.waiting) == 0 {
		return
	}
	select {
	case l.waiting[0].freed <- struct{}{}:
	default:
	}
}

// hangUp makes reads and writes of a connection fail.
func (l *Listener) hangUp(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.hanging = true
	_ = r.conn.SetDeadline(past)
}
