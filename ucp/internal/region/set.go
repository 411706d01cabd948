// Package region has the memory of a process that peers can access: open memory domains,
// memory that is registered with all of them, remote keys by domain, and the atomics
// that the process executes for peers.
package region

import (
	"fmt"
	"sync"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/targetop"
)

// Set is the set of open memory domains, with the memory registered with them. Domains must be added
// before memory is registered. Any goroutine may call the other methods.
type Set struct {
	Domains []*Domain
	first   uint64 // Domain.number of the first domain

	mu     sync.RWMutex
	byID   map[uint64]*Mem // open memory
	open   int             // number of open memory, including memory that could not be closed
	closed bool
}

// enter assigns an id to m, which keys contain. ErrClosed.
func (s *Set) enter(m *Mem) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if s.byID == nil {
		s.byID = map[uint64]*Mem{}
	}
	for m.id == 0 || s.byID[m.id] != nil {
		m.id = wire.RandomID()
	}
	s.byID[m.id] = m
	s.open++
	return nil
}

// hide removes memory from the table in which peers find it.
func (s *Set) hide(m *Mem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, m.id)
}

// leave subtracts closed memory from open.
func (s *Set) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// Len returns the number of Mems that are not closed.
func (s *Set) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.open
}

// find returns the memory with that id, or nil.
func (s *Set) find(id uint64) *Mem {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byID[id]
}

// errClosed is the error of a registration with a closed context.
var errClosed = fmt.Errorf("ucp: register memory: context: %w", ucs.ErrClosed)

// Close closes the domains. ErrBusy while memory is open. Idempotent.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.open > 0 {
		return fmt.Errorf("ucp: close context: %w: close its memory first (open: %d)", ucs.ErrBusy, s.open)
	}
	s.closed = true
	return s.CloseUnused(func(*Domain) bool { return false })
}

// Execute executes an atomic for a peer, after it has checked the key and the range. Errors: StatusRemoteInvalid,
// StatusRemoteAccess.
func (s *Set) Execute(a *wire.Request) (old uint64, st ucs.Status) {
	m := s.find(a.Region)
	if m == nil || m.access&uct.AccessRemoteAtomic == 0 {
		return 0, ucs.StatusRemoteAccess
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return 0, ucs.StatusRemoteAccess
	}
	op := targetop.Atomic{Op: a.Op, Size: int(a.Size), Raddr: a.Addr, Value: a.Value, Compare: a.Compare}
	return op.Do(m.bytes, m.addr)
}

// Keys is a remote key, with its unpacked forms for memory domains of this process.
type Keys struct {
	wire.Key
	parts []unpacked
	view  *view // nil if the memory was not mapped for the caller
}

// view is the memory of a key that is mapped for the caller.
type view struct {
	mem   []byte
	unmap func()
}

// SetView stores the mapped memory of the key, which Release unmaps.
func (k *Keys) SetView(mem []byte, unmap func()) { k.view = &view{mem, unmap} }

// View returns the memory of SetView, or nil.
func (k *Keys) View() []byte {
	if k.view == nil {
		return nil
	}
	return k.view.mem
}

// unpacked is the key of one memory domain of the target, unpacked by one of ours.
type unpacked struct {
	local  *Domain
	remote int
	key    uct.RKey
}

// Unpack checks a key, which may be from an untrusted peer, and copies it. The caller must call
// Release. ErrInvalidRKey.
func Unpack(packed []byte) (*Keys, error) {
	k, err := wire.UnpackKey(packed)
	if err != nil {
		return nil, err
	}
	return &Keys{Key: *k}, nil
}

// For returns the key for d and the peer's memory domain of that index. It unpacks
// the key once. ErrInvalidRKey if the key has no part for that domain.
func (k *Keys) For(d *Domain, remote int) (key uct.RKey, err error) {
	if known := k.Known(d, remote); known != nil {
		return *known, nil
	}
	if d.keys != nil {
		part := k.Find(remote)
		if part == nil {
			return key, fmt.Errorf("the memory was not registered with the domain of the peer: %w", ucs.ErrInvalidRKey)
		}
		if key, err = d.keys.UnpackRKey(part); err != nil {
			return key, err
		}
	}
	k.parts = append(k.parts, unpacked{d, remote, key})
	return key, nil
}

// Known is For of a key that For has unpacked before; nil if it has not. It is valid until the next call of For.
func (k *Keys) Known(d *Domain, remote int) *uct.RKey {
	for i := range k.parts {
		if p := &k.parts[i]; p.local == d && p.remote == remote {
			return &p.key
		}
	}
	return nil
}

// Release releases the key. Operations with it must be complete.
func (k *Keys) Release() {
	for i := range k.parts {
		if p := &k.parts[i]; p.local.keys != nil {
			p.local.keys.ReleaseRKey(p.key)
		}
	}
	k.parts = nil
	if k.view != nil {
		k.view.unmap()
		k.view = nil
	}
}
