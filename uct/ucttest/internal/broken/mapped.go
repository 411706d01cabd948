package broken

import (
	"bytes"

	"github.com/gucx/gucx/uct"
)

// lyingMapped says that it has read whatever it is asked for.
type lyingMapped struct{ uct.MappedGetter }

func (m *lyingMapped) GetMapped(buf []byte, raddr uint64, key uct.RKey) bool {
	m.MappedGetter.GetMapped(buf, raddr, key)
	return true
}

// badMapper returns memory that is not that of the peer.
type badMapper struct {
	uct.Mapper
	kind Kind
}

func (m *badMapper) Map(raddr uint64, n int, key uct.RKey) (mem []byte, unmap func(), err error) {
	mem, unmap, err = m.Mapper.Map(raddr, n, key)
	switch {
	case m.kind == MapCopy:
		mem = bytes.Clone(mem)
	case err != nil:
		mem, unmap, err = make([]byte, n), func() {}, nil
	}
	return mem, unmap, err
}
