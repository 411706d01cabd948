package stencil

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/studies/rclink"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// memory is the registered memory of a thread with w points to a side, in words:
//
//	0     halos, by parity and side: neighbors put
//	4w    what is sent, by side
//	6w    how many exchanges of the neighbor are complete, by side: neighbors put
//	6w+2  how many of this thread are
type memory struct {
	mr    *verbs.MR
	width int        // bytes of a halo
	send  [sides]int // offsets
	word  [sides]int
	own   int
}

func newMemory(e endpoint.Endpoint, points int, undo *cleanup.Stack) (m memory, err error) {
	m.width = points * element
	for side := range sides {
		m.send[side] = (2*sides + side) * m.width
		m.word[side] = 3*sides*m.width + side*element
	}
	m.own = 3*sides*m.width + sides*element
	buf, err := e.Context.AllocBuffer(m.own + element)
	if err != nil {
		return m, err
	}
	undo.Add(buf.Close)
	if uintptr(unsafe.Pointer(unsafe.SliceData(buf.Bytes())))%element != 0 {
		return m, fmt.Errorf("memory is not aligned to %d bytes", element)
	}
	m.mr, err = e.PD.RegMR(buf.Bytes(), rclink.AllAccess)
	if err == nil {
		undo.Add(m.mr.Close)
	}
	return m, err
}

func (m *memory) bytes() []byte { return m.mr.Bytes() }

// haloAt returns the offset of a halo.
func (m *memory) haloAt(parity, side int) int { return (parity*sides + side) * m.width }

func (m *memory) halo(parity, side int) []byte { return m.bytes()[m.haloAt(parity, side):][:m.width] }

// neighborCount returns the number of completed exchanges of the neighbor, if the neighbor puts it.
func (m *memory) neighborCount(side int) *atomic.Uint64 { return m.at(m.word[side]) }

// ownCount returns the number that a thread puts to its neighbors.
func (m *memory) ownCount() *atomic.Uint64 { return m.at(m.own) }

// at returns a word of the memory, which newMemory has checked for alignment. The memory exists as
// long as the thread that owns it.
func (m *memory) at(off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&m.bytes()[off]))
}
