package ucp

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// fenced is one way to write to the peer, before or after a fence.
type fenced struct {
	name  string
	write func(f *fenceCase, off uint64, i int) (*Request, error)
	seen  func(f *fenceCase, off uint64, i int) bool // write i has completely taken effect
}

// fenceCase is one direction of a pair.
type fenceCase struct {
	from, to *end
}

// blockLen is the length of one place of the matrix at the target, large enough for two lanes to share.
const blockLen = 32 << 10

func (f *fenceCase) at(off uint64) []byte { return f.to.mem.Bytes()[off : off+blockLen] }

// put returns a put of n bytes, from registered memory or not.
func put(name string, n int, registered bool) fenced {
	return fenced{name,
		func(f *fenceCase, off uint64, i int) (*Request, error) {
			if !registered {
				return f.from.ep.Put(pattern(n, i), f.from.key.Addr()+off, f.from.key, nil)
			}
			buf := f.from.mem.Bytes()[memLen-blockLen:][:n]
			copy(buf, pattern(n, i))
			return f.from.ep.Put(buf, f.from.key.Addr()+off, f.from.key, &OpParams{Mem: f.from.mem})
		},
		func(f *fenceCase, off uint64, i int) bool { return string(f.at(off)[:n]) == string(pattern(n, i)) },
	}
}

// add returns an atomic, which the transport has or ucp emulates.
func add(name string, op uct.AtomicOp, size int, fetch bool) fenced {
	return fenced{name,
		func(f *fenceCase, off uint64, i int) (*Request, error) {
			v := uint64(1)
			if op == uct.AtomicSwap {
				v = uint64(i)
			}
			if fetch {
				return f.from.ep.AtomicFetch(op, size, v, new(uint64), f.from.key.Addr()+off, f.from.key)
			}
			return nil, f.from.ep.AtomicPost(op, size, v, f.from.key.Addr()+off, f.from.key)
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
	overAll(t, func(t *testing.T, p *pair) {
		p.both()
		for _, f := range []*fenceCase{{&p.a, &p.b}, {&p.b, &p.a}} {
			for _, first := range ways {
				for _, second := range ways {
					clear(f.to.mem.Bytes()[:2*blockLen])
					for i := 1; i <= rounds; i++ {
						p.fence(f, first, second, i)
					}
				}
			}
		}
	})
}

// fence does one round: if the second write has taken effect, so has the first.
func (p *pair) fence(f *fenceCase, first, second fenced, i int) {
	p.t.Helper()
	const ahead, behind = 0, blockLen
	r1, err := first.write(f, ahead, i)
	require.NoError(p.t, err)
	require.NoError(p.t, f.from.ep.Fence())
	r2, err := second.write(f, behind, i)
	require.NoError(p.t, err)
	p.until(func() bool { return second.seen(f, behind, i) })
	require.True(p.t, first.seen(f, ahead, i), "%s behind %s", second.name, first.name)
	for _, r := range []*Request{r1, r2} {
		assert.NoError(p.t, p.finish(r, nil))
	}
	require.NoError(p.t, p.finish(f.from.ep.Flush()))
}

// TestClose_CompletesFencedOperations: Close completes operations that wait for a fence.
func TestClose_CompletesFencedOperations(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		r, err := p.a.ep.Put(pattern(memLen, 1), p.b.mem.Addr(), p.a.key, nil)
		require.NoError(t, err)
		require.NoError(t, p.a.ep.Fence())
		q, err := p.a.ep.Put(pattern(8, 2), p.b.mem.Addr(), p.a.key, nil)
		require.NoError(t, err)
		require.NotNil(t, q)
		closing, err := p.a.ep.Close(CloseFlush)
		require.NoError(t, err)
		require.NoError(t, p.finish(closing, nil))
		require.NoError(t, p.finish(r, nil))
		require.NoError(t, p.finish(q, nil))
	})
}
