package provider

import (
	"errors"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/ucs"
)

// queueMemory is the ring of one object.
type queueMemory struct {
	block *offheap.Block
	base  unsafe.Pointer
}

func allocQueue(n int) (queueMemory, error) {
	b, err := offheap.Alloc(n)
	if err != nil {
		return queueMemory{}, &ucs.OpError{TL: "mlx5", Op: "allocate queue", Err: errors.Join(ucs.ErrNoMemory, err)}
	}
	return queueMemory{block: b, base: unsafe.Pointer(unsafe.SliceData(b.Bytes()))}, nil
}

// at returns the address of offset off, which must be in the memory.
func (m *queueMemory) at(off int) unsafe.Pointer { return unsafe.Add(m.base, off) }

func (m *queueMemory) len() int { return m.block.Len() }

func (m *queueMemory) free() error { return m.block.Free() }

// Doorbell records have a cache line each, in pages that all queues of a context
// share.
const (
	dbrecLine     = 64
	dbrecPageLen  = 4096
	dbrecsPerPage = dbrecPageLen / dbrecLine
)

// dbrecPool allocates doorbell records. Any goroutine may use it.
type dbrecPool struct {
	mu    sync.Mutex
	pages []*dbrecPage
}

type dbrecPage struct {
	mem  queueMemory
	used uint64 // bit n: line n
}

// dbrecSlot is a record in use.
type dbrecSlot struct {
	prm.DBRec
	page *dbrecPage
	line int
}

// get returns a record of zeros.
func (p *dbrecPool) get() (dbrecSlot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pg, err := p.withRoom()
	if err != nil {
		return dbrecSlot{}, err
	}
	line := bits.TrailingZeros64(^pg.used)
	pg.used |= 1 << line
	s := dbrecSlot{DBRec: prm.NewDBRec(pg.mem.at(line * dbrecLine)), page: pg, line: line}
	s.StoreRecv(0)
	s.StoreSend(0)
	return s, nil
}

func (p *dbrecPool) withRoom() (*dbrecPage, error) {
	for _, pg := range p.pages {
		if pg.used != 1<<dbrecsPerPage-1 {
			return pg, nil
		}
	}
	mem, err := allocQueue(dbrecPageLen)
	if err != nil {
		return nil, err
	}
	pg := &dbrecPage{mem: mem}
	p.pages = append(p.pages, pg)
	return pg, nil
}

func (p *dbrecPool) put(s dbrecSlot) {
	p.mu.Lock()
	s.page.used &^= 1 << s.line
	p.mu.Unlock()
}

// bytes returns the size of the pages.
func (p *dbrecPool) bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(len(p.pages)) * dbrecPageLen
}

// free frees the pages. No record may be in use.
func (p *dbrecPool) free() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var first error
	for _, pg := range p.pages {
		if err := pg.mem.free(); err != nil && first == nil {
			first = err
		}
	}
	p.pages = nil
	return first
}
