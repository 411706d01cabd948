package ucp_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
)

// fenced is one way to write to the peer, before or after a fence.
type fenced struct {
	name  string
	write func(f *fenceCase, off uint64, i int) (*ucp.Request, error)
	seen  func(f *fenceCase, off uint64, i int) bool // write i has completely taken effect
}

// fenceCase is one direction of a pair.
type fenceCase struct {
	from, to *ucppair.End
}

// blockLen is the length of one place of the matrix at the target, large enough for two lanes to share.
const blockLen = 32 << 10

func (f *fenceCase) at(off uint64) []byte { return f.to.Mem.Bytes()[off : off+blockLen] }

// put returns a put of n bytes, from registered memory or not.
func put(name string, n int, registered bool) fenced {
	return fenced{name,
		func(f *fenceCase, off uint64, i int) (*ucp.Request, error) {
			if !registered {
				return f.from.EP.Put(testenv.Pattern(n, i), f.from.Key.Addr()+off, f.from.Key, nil)
			}
			buf := f.from.Mem.Bytes()[tlsets.MemLen-blockLen:][:n]
			copy(buf, testenv.Pattern(n, i))
			return f.from.EP.Put(buf, f.from.Key.Addr()+off, f.from.Key, &ucp.OpParams{Mem: f.from.Mem})
		},
		func(f *fenceCase, off uint64, i int) bool {
			return string(f.at(off)[:n]) == string(testenv.Pattern(n, i))
		},
	}
}

// add returns an atomic, which the transport has or ucp emulates.
func add(name string, op uct.AtomicOp, size int, fetch bool) fenced {
	return fenced{name,
		func(f *fenceCase, off uint64, i int) (*ucp.Request, error) {
			v := uint64(1)
			if op == uct.AtomicSwap {
				v = uint64(i)
			}
			if fetch {
				return f.from.EP.AtomicFetch(op, size, v, new(uint64), f.from.Key.Addr()+off, f.from.Key)
			}
			return nil, f.from.EP.AtomicPost(op, size, v, f.from.Key.Addr()+off, f.from.Key)
		},
		func(f *fenceCase, off uint64, i int) bool {
			if size == 4 {
				return binary.LittleEndian.Uint32(f.at(off)) == uint32(i)
			}
			return binary.LittleEndian.Uint64(f.at(off)) == uint64(i)
		},
	}
}

// TestFence_Matrix: operations after a fence take effect after those before it, for all pairs of variants and lanes, in
// both directions.
func TestFence_Matrix(t *testing.T) {
	ways := []fenced{
		put("short", 8, false), put("bcopy", 2000, false), put("fragments", blockLen, false), put("zcopy", blockLen, true),
		add("post", uct.AtomicAdd, 8, false), add("fetch", uct.AtomicAdd, 8, true), add("emulated", uct.AtomicSwap, 4, false),
	}
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Both()
		for _, f := range []*fenceCase{{&p.A, &p.B}, {&p.B, &p.A}} {
			for _, first := range ways {
				for _, second := range ways {
					clear(f.to.Mem.Bytes()[:2*blockLen])
					for i := 1; i <= rounds; i++ {
						checkFence(p, f, first, second, i)
					}
				}
			}
		}
	})
}

// checkFence does one round: if the second write has taken effect, so has the first.
func checkFence(p *ucppair.Pair, f *fenceCase, first, second fenced, i int) {
	p.T.Helper()
	const ahead, behind = 0, blockLen
	r1, err := first.write(f, ahead, i)
	require.NoError(p.T, err)
	require.NoError(p.T, f.from.EP.Fence())
	r2, err := second.write(f, behind, i)
	require.NoError(p.T, err)
	p.Until(func() bool { return second.seen(f, behind, i) })
	require.True(p.T, first.seen(f, ahead, i), "%s behind %s", second.name, first.name)
	for _, r := range []*ucp.Request{r1, r2} {
		assert.NoError(p.T, p.Finish(r, nil))
	}
	require.NoError(p.T, p.Finish(f.from.EP.Flush()))
}

// TestClose_CompletesFencedOperations: Close completes operations that wait for a fence.
func TestClose_CompletesFencedOperations(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		r, err := p.A.EP.Put(testenv.Pattern(tlsets.MemLen, 1), p.B.Mem.Addr(), p.A.Key, nil)
		require.NoError(t, err)
		require.NoError(t, p.A.EP.Fence())
		q, err := p.A.EP.Put(testenv.Pattern(8, 2), p.B.Mem.Addr(), p.A.Key, nil)
		require.NoError(t, err)
		require.NotNil(t, q)
		closing, err := p.A.EP.Close(ucp.CloseFlush)
		require.NoError(t, err)
		require.NoError(t, p.Finish(closing, nil))
		require.NoError(t, p.Finish(r, nil))
		require.NoError(t, p.Finish(q, nil))
	})
}
