package broken

import (
	"bytes"

	"github.com/gucx/gucx/uct"
)

// lyingMapped returns true from GetMapped for every range.
type lyingMapped struct{ uct.MappedGetter }

func (m *lyingMapped) GetMapped(buf []byte, raddr uint64, key uct.RKey) bool {
	m.MappedGetter.GetMapped(buf, raddr, key)
	return true
}

// badMapper returns local memory in place of the peer's.
type badMapper struct {
	uct.Mapper
	fault Fault
}

func (m *badMapper) Map(raddr uint64, n int, key uct.RKey) (mem []byte, unmap func(), err error) {
	mem, unmap, err = m.Mapper.Map(raddr, n, key)
	switch {
	case m.fault == MapCopy:
		mem = bytes.Clone(mem)
	case err != nil:
		mem, unmap, err = make([]byte, n), func() {}, nil
	}
	return mem, unmap, err
}
