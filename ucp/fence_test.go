package ucp

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// fenced is one way to write to the peer, before or behind a fence: what write i leaves
// there, and how it is seen.
type fenced struct {
	name  string
	write func(f *fenceCase, off uint64, i int) (*Request, error)
	seen  func(f *fenceCase, off uint64, i int) bool // write i has taken effect, all of it
}

// fenceCase is one direction of a pair.
type fenceCase struct {
	from, to *end
}

// blockLen is what one place of the matrix takes at the target: enough for two lanes to share.
const blockLen = 32 << 10

func (f *fenceCase) at(off uint64) []byte { return f.to.mem.Bytes()[off : off+blockLen] }

// put is a put of n bytes, from registered memory or not.
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

// add is an atomic, of the transport's own or made up of others.
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

// TestFence_Matrix: behind a fence nothing takes effect before what was issued ahead of it,
// whatever variants and lanes the two take, in both directions.
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

// fence does one round: when the second write is seen, so is the first.
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

// TestClose_BehindAFence: a close lets operations go on that wait behind a fence.
func TestClose_BehindAFence(t *testing.T) {
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
