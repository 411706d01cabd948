package memtp

import (
	"sync"

	"github.com/gucx/gucx/uct"
)

// World is the shared state of memory domains whose ifaces can connect to each other. Several goroutines may call its
// methods.
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

// OpenMD opens a memory domain. Its ifaces can connect to those of each domain of w.
func (w *World) OpenMD() (uct.MD, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &MD{world: w, attr: uct.MDAttr{
		Component: "memtp", Name: "mem0", RKeyLen: keyLen, NeedMemH: true, MaxReg: maxRegion, RegCost: uct.Cost{Send: 1000},
	}}
	m.id = w.newID()
	return m, nil
}

// Kill simulates the death of the process of md: EPs that are connected to its ifaces fail, and peers cannot access its
// memory. The caller must still close the objects of md, which do nothing else.
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

// newID returns an unused number. The caller holds w.mu.
func (w *World) newID() uint64 {
	w.lastID++
	return w.lastID
}
