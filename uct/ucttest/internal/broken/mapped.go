package broken

import "github.com/gucx/gucx/uct"

// lyingMapped says that it has read whatever it is asked for.
type lyingMapped struct{ uct.MappedGetter }

func (m *lyingMapped) GetMapped(buf []byte, raddr uint64, key uct.RKey) bool {
	m.MappedGetter.GetMapped(buf, raddr, key)
	return true
}
