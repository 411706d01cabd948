package conn

import (
	"slices"
	"time"
)

// Source is the sender of a REQUEST.
type Source struct {
	// Host is the device address in the REQUEST, to which the reply is sent. So a sender with a false address gets no reply.
	Host string
	// Worker is the UUID of the worker, authenticated by the proof of the message.
	Worker uint64
}

// Limits of half-open connections.
const (
	// MaxHalfOpen limits the connections without a lane that peers have requested.
	MaxHalfOpen = 1024
	// maxHalfOpenHost and maxHalfOpenWorker limit those of one host, and of
	// one worker.
	maxHalfOpenHost   = MaxHalfOpen / 2
	maxHalfOpenWorker = MaxHalfOpen / 4
	// evictAfter is the age before which a half-open connection is not evicted: a handshake takes
	// milliseconds, and up to this long on an overloaded machine.
	evictAfter = time.Second
)

// HalfOpen is the set of connections that peers have requested and that have no lane yet. The zero value
// is empty. It is not safe for concurrent use.
type HalfOpen[E comparable] struct {
	all     []halfOpen[E] // oldest first
	hosts   map[string]int
	workers map[Source]int
}

type halfOpen[E comparable] struct {
	e    E
	from Source
	at   time.Duration
}

// Len is the number of connections.
func (h *HalfOpen[E]) Len() int { return len(h.all) }

// Add adds a connection. The caller has checked Room.
func (h *HalfOpen[E]) Add(e E, from Source, now time.Duration) {
	if h.hosts == nil {
		h.hosts, h.workers = map[string]int{}, map[Source]int{}
	}
	h.all = append(h.all, halfOpen[E]{e, from, now})
	h.hosts[from.Host]++
	h.workers[from]++
}

// Remove removes a connection. It reports false if there is no such connection.
func (h *HalfOpen[E]) Remove(e E) bool {
	i := slices.IndexFunc(h.all, func(x halfOpen[E]) bool { return x.e == e })
	if i < 0 {
		return false
	}
	from := h.all[i].from
	h.all = slices.Delete(h.all, i, i+1)
	if h.hosts[from.Host]--; h.hosts[from.Host] == 0 {
		delete(h.hosts, from.Host)
	}
	if h.workers[from]--; h.workers[from] == 0 {
		delete(h.workers, from)
	}
	if len(h.all) == 0 {
		*h = HalfOpen[E]{}
	}
	return true
}

// Room reports whether there is room for a connection of a source.
func (h *HalfOpen[E]) Room(from Source) bool {
	return len(h.all) < MaxHalfOpen && h.hosts[from.Host] < maxHalfOpenHost && h.workers[from] < maxHalfOpenWorker
}

// EvictableAt is the time from which the oldest connection may be evicted. The set must not be empty.
func (h *HalfOpen[E]) EvictableAt() time.Duration { return h.all[0].at + evictAfter }

// Victim returns the connection to evict to make room for a connection of a source: the oldest of the
// same worker or host if that has reached its limit, otherwise the oldest of the host with the most
// connections. It returns false if that one is younger than evictAfter.
func (h *HalfOpen[E]) Victim(from Source, now time.Duration) (victim E, ok bool) {
	if len(h.all) == 0 || now-h.all[0].at < evictAfter {
		return victim, false
	}
	may := h.evictable(from)
	for i := range h.all {
		if x := &h.all[i]; now-x.at < evictAfter {
			break
		} else if may(x.from) {
			return x.e, true
		}
	}
	return victim, false
}

// evictable returns a function that reports whether evicting a connection of a source makes room for one of from, and no
// other host has more connections than that source's.
func (h *HalfOpen[E]) evictable(from Source) func(Source) bool {
	switch {
	case h.workers[from] >= maxHalfOpenWorker:
		return func(x Source) bool { return x == from }
	case h.hosts[from.Host] >= maxHalfOpenHost:
		return func(x Source) bool { return x.Host == from.Host }
	}
	most := 0
	for _, n := range h.hosts { // once: peers choose the number of hosts
		most = max(most, n)
	}
	return func(x Source) bool { return h.hosts[x.Host] == most }
}
