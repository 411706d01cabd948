package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
)

// TestAllocs_Announced: messages with rendezvous by get from registered memory allocate nothing after warm-up, on
// either side.
func TestAllocs_Announced(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{}).connect()
	from, into := &OpParams{Mem: p.a.mem}, &OpParams{Mem: p.b.mem}
	data, buf := p.a.mem.Bytes(), p.b.mem.Bytes()
	copy(data, pattern(len(data), 1))
	p.b.w.OnActive(1, func(m *ActiveMessage) {
		if r, err := m.Recv(buf, into); err != nil {
			panic(err)
		} else if r != nil {
			r.Release()
		}
	})
	for _, tc := range []struct {
		name string
		do   func()
	}{
		{"active", func() { p.endBoth(p.a.ep.SendActive(1, nil, data, from)) }},
		{"tag", func() {
			r, err := p.b.w.TagRecv(buf, 1, ^uint64(0), nil, into)
			if err != nil {
				panic(err)
			}
			p.endBoth(p.a.ep.TagSend(1, data, from))
			p.endBoth(r, nil)
		}},
		{"tag unexpected", func() {
			s, err := p.a.ep.TagSend(1, data, from)
			if err != nil {
				panic(err)
			}
			for _, _, ok := p.b.w.TagProbe(1, ^uint64(0), false); !ok; _, _, ok = p.b.w.TagProbe(1, ^uint64(0), false) {
				p.step()
			}
			p.endBoth(p.b.w.TagRecv(buf, 1, ^uint64(0), nil, into))
			p.endBoth(s, nil)
		}},
	} {
		clear(buf)
		for range 300 { // warm the pools of all layers
			tc.do()
		}
		testenv.NoAllocs(t, tc.name, tc.do)
		requireBytes(t, data, buf)
	}
	require.Zero(t, p.a.w.stats.badMessages.Load())
}
