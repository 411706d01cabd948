package bootstrap

import (
	"slices"
	"sync"
)

// Ports is the set of transports with peers that may connect to the port of a Listener, and the connections that
// wait for them. The zero value is empty. Any goroutine may call its methods.
type Ports struct {
	mu    sync.Mutex
	known map[uint64]*port // by the id in a preface
}

// port is a transport with the connections that wait for it.
type port struct {
	notify  func()
	waiting []*DataConn
}

// Add adds a transport with an id. notify is called, by any goroutine, when a connection waits for it.
func (p *Ports) Add(id uint64, notify func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[uint64]*port{}
	}
	p.known[id] = &port{notify: notify}
}

// Remove removes a transport, and closes the connections that wait for it.
func (p *Ports) Remove(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.known[id]; s != nil {
		delete(p.known, id)
		for _, c := range s.waiting {
			c.Drop()
		}
	}
}

// Deliver queues a connection for a transport. It returns false if there is no such transport.
func (p *Ports) Deliver(id uint64, c *DataConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.known[id]
	if s == nil {
		return false
	}
	if len(s.waiting) == cap(s.waiting) { // remove evicted connections: the limits of the listeners then limit the queue
		s.waiting = slices.DeleteFunc(s.waiting, (*DataConn).Ended)
	}
	s.waiting = append(s.waiting, c)
	s.notify()
	return true
}

// Take removes and returns the connections that wait for a transport.
func (p *Ports) Take(id uint64) []*DataConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.known[id]
	if s == nil {
		return nil
	}
	waiting := s.waiting
	s.waiting = nil
	return waiting
}

// Waiting returns the number of connections that wait for a transport; known is false if there is no such transport.
func (p *Ports) Waiting(id uint64) (n int, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.known[id]
	if s == nil {
		return 0, false
	}
	return len(s.waiting), true
}
