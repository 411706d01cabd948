package memtp

import (
	"sync"

	"github.com/gucx/gucx/uct"
)

// World is what memory domains that reach each other have in common. Methods may
// be called by any goroutine.
type World struct {
	mu      sync.Mutex
	lastID  uint64
	ifaces  map[uint64]*Iface
	eps     map[uint64]*EP
	regions map[uint64]*region
	queues  map[uint32]*queue
}

// NewWorld returns a world without memory domains.
func NewWorld() *World {
	return &World{ifaces: map[uint64]*Iface{}, eps: map[uint64]*EP{}, regions: map[uint64]*region{}, queues: map[uint32]*queue{}}
}

// OpenMD opens a memory domain. Its ifaces reach those of every domain of w.
func (w *World) OpenMD() (uct.MD, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &MD{world: w, attr: uct.MDAttr{
		Component: "memtp", Name: "mem0", RKeyLen: keyLen, NeedMemH: true, MaxReg: maxRegion, RegCost: uct.Cost{Send: 1000},
	}}
	m.id = w.newID()
	return m, nil
}

// Kill makes the domain md vanish as if its process had died: endpoints that are
// connected to it fail, and its memory is gone. Its own objects must still be
// closed, and do nothing any more.
func (w *World) Kill(md uct.MD) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := md.(*MD)
	m.dead = true
	for id, r := range w.regions {
		if r.md == m {
			delete(w.regions, id)
		}
	}
	for _, i := range w.ifaces {
		i.signal(uct.EventSendComp | uct.EventRecv)
	}
}

// newID returns a number that was never used. With w.mu held.
func (w *World) newID() uint64 {
	w.lastID++
	return w.lastID
}
