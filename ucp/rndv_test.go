package ucp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/internal/proto"
)

// rndvSizes are lengths around the limits of fragments and thresholds.
var rndvSizes = []int{1, 8, 2024, 2025, 8168, 8169, 65536, 1 << 20}

// schemes are the values of RNDV_SCHEME.
var schemes = []string{"auto", "get_zcopy", "put_zcopy", "am"}

// overSchemes runs a test over every transport set with every scheme; all messages are
// announced.
func overSchemes(t *testing.T, f func(t *testing.T, p *pair)) {
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			for _, set := range transportSets() {
				t.Run(set.name, func(t *testing.T) {
					f(t, newPair(t, set, Config{RndvScheme: scheme, RndvThresh: 1}))
				})
			}
		})
	}
}

// memOf gives x memory of n bytes.
func (x *end) memOf(t testing.TB, n int) *Mem {
	t.Helper()
	mem, err := x.ctx.MemAlloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	return mem
}

// piece is n bytes, inside of mem if that is asked for.
func piece(mem *Mem, n int, inside bool) ([]byte, *OpParams) {
	if !inside {
		return make([]byte, n), nil
	}
	return mem.Bytes()[8 : 8+n], &OpParams{Mem: mem}
}

func TestRndv_Sizes(t *testing.T) {
	overSchemes(t, func(t *testing.T, p *pair) {
		const most = 1<<20 + 16
		from, to := p.a.memOf(t, most), p.b.memOf(t, most)
		for _, registered := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
			t.Run(fmt.Sprintf("sender=%v,receiver=%v", registered[0], registered[1]), func(t *testing.T) {
				p.connect()
				var recv *Request
				var buf []byte
				p.b.w.OnActive(1, func(m *ActiveMessage) {
					assert.Nil(t, m.Data)
					var params *OpParams
					var err error
					buf, params = piece(to, m.Length, registered[1])
					clear(buf)
					recv, err = m.Recv(buf, params)
					assert.NoError(t, err)
					if want := p.schemeOf(registered[0], registered[1]); recv != nil && want != proto.Auto {
						assert.True(t, recv.stage == &fetchStages[want], "not by %v", want)
					}
				})
				for i, n := range rndvSizes {
					data, params := piece(from, n, registered[0])
					copy(data, pattern(n, i))
					buf = nil
					r, err := p.a.ep.SendActive(1, pattern(i, i), data, params)
					require.NoError(t, p.finish(r, err))
					p.until(func() bool { return buf != nil })
					require.NoError(t, p.finish(recv, nil))
					requireBytes(t, pattern(n, i), buf)
				}
				require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
			})
		}
	})
}

// schemeOf is how the data of a message comes, by which memory is registered; Auto if that
// is a matter of cost.
func (p *pair) schemeOf(sender, receiver bool) proto.Scheme {
	switch wish := p.a.ctx.cfg.rndvScheme(); {
	case wish == proto.Auto, wish == proto.Get && sender, wish == proto.Put && receiver:
		return wish
	case wish == proto.Get && receiver:
		return proto.Auto
	}
	return proto.Fragments
}
