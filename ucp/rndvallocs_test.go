package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// TestAllocs_Announced: messages with rendezvous by get from registered memory allocate nothing after warm-up, on
// either side.
func TestAllocs_Announced(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Connect()
	from, into := &ucp.OpParams{Mem: p.A.Mem}, &ucp.OpParams{Mem: p.B.Mem}
	data, buf := p.A.Mem.Bytes(), p.B.Mem.Bytes()
	copy(data, testenv.Pattern(len(data), 1))
	p.B.W.OnActive(1, func(m *ucp.ActiveMessage) {
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
		{"active", func() { p.MustFinish(p.A.EP.SendActive(1, nil, data, from)) }},
		{"tag", func() {
			r, err := p.B.W.TagRecv(buf, 1, ^uint64(0), nil, into)
			if err != nil {
				panic(err)
			}
			p.MustFinish(p.A.EP.TagSend(1, data, from))
			p.MustFinish(r, nil)
		}},
		{"tag unexpected", func() {
			s, err := p.A.EP.TagSend(1, data, from)
			if err != nil {
				panic(err)
			}
			for _, _, ok := p.B.W.TagProbe(1, ^uint64(0), false); !ok; _, _, ok = p.B.W.TagProbe(1, ^uint64(0), false) {
				p.Step()
			}
			p.MustFinish(p.B.W.TagRecv(buf, 1, ^uint64(0), nil, into))
			p.MustFinish(s, nil)
		}},
	} {
		clear(buf)
		for range 300 { // warm the pools of all layers
			tc.do()
		}
		testenv.NoAllocs(t, tc.name, tc.do)
		testenv.RequireBytes(t, data, buf)
	}
	require.Zero(t, p.A.W.BadMessages().Load())
}
