package ucp_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// operations are all operations on remote memory, with the number of bytes that they access, and their alignment.
func operations(ep *ucp.EP, key *ucp.RKey) []operation {
	put := func(n int) operation {
		return operation{fmt.Sprintf("put %d", n), uint64(n), 1, func(raddr uint64) (*ucp.Request, error) {
			return ep.Put(make([]byte, n), raddr, key, nil)
		}}
	}
	get := func(n int) operation {
		return operation{fmt.Sprintf("get %d", n), uint64(n), 1, func(raddr uint64) (*ucp.Request, error) {
			return ep.Get(make([]byte, n), raddr, key, nil)
		}}
	}
	ops := []operation{put(0), put(1), put(8), put(200), put(9000), get(1), get(8), get(200), get(9000)}
	for _, size := range []int{4, 8} {
		for _, op := range []uct.AtomicOp{uct.AtomicAdd, uct.AtomicXor} {
			ops = append(ops, operation{fmt.Sprintf("post %v %d", op, size), uint64(size), uint64(size), func(raddr uint64) (*ucp.Request, error) {
				return nil, ep.AtomicPost(op, size, 1, raddr, key)
			}}, operation{fmt.Sprintf("fetch %v %d", op, size), uint64(size), uint64(size), func(raddr uint64) (*ucp.Request, error) {
				return ep.AtomicFetch(op, size, 1, new(uint64), raddr, key)
			}})
		}
		ops = append(ops, operation{fmt.Sprintf("cswap %d", size), uint64(size), uint64(size), func(raddr uint64) (*ucp.Request, error) {
			return ep.AtomicCSwap(size, 0, 1, new(uint64), raddr, key)
		}})
	}
	return ops
}

type operation struct {
	name     string
	n, align uint64
	do       func(raddr uint64) (*ucp.Request, error)
}

// TestRange_RejectedByTheInitiator: a range that is not completely in the region of the key is rejected before anything
// is posted, for all operations, also if its end wraps around. The EP still works.
func TestRange_RejectedByTheInitiator(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for _, when := range []string{"unconnected", "connected"} {
			key := p.A.Key
			first, after := key.Addr(), key.Addr()+key.Len()
			for _, op := range operations(p.A.EP, key) {
				for _, raddr := range []uint64{
					first - op.align, first - max(op.n, 8), after, after + op.align, after - op.n + op.align, after + tlsets.MemLen,
					0, math.MaxUint64 - 7, -op.n, -(op.n + 8) &^ 7, 1 << 63,
				} {
					if raddr%op.align != 0 || raddr-first <= key.Len()-op.n {
						continue
					}
					r, err := op.do(raddr)
					require.ErrorIs(t, err, ucs.ErrRemoteAccess, "%s: %s at region%+d", when, op.name, int64(raddr-first))
					require.Nil(t, r)
				}
			}
			require.NoError(t, p.A.EP.Err())
			require.NoError(t, p.Finish(p.A.EP.Put([]byte{5}, after-1, key, nil)))
			require.NoError(t, p.Flush())
			assert.Equal(t, byte(5), p.B.Mem.Bytes()[tlsets.MemLen-1])
		}
		assert.Zero(t, counters(p.A.W)["worker/failed_eps"]+counters(p.B.W)["worker/failed_eps"])
	})
}

// TestRange_ShorterThanTheOperation: a region has fewer bytes than an operation.
func TestRange_ShorterThanTheOperation(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect().Warm()
		mem, err := p.B.Ctx.MemAlloc(3)
		require.NoError(t, err)
		defer func() { assert.NoError(t, mem.Close()) }()
		key, err := p.A.EP.Unpack(mem.Pack())
		require.NoError(t, err)
		defer key.Close()
		for _, op := range operations(p.A.EP, key) {
			if op.n <= key.Len() {
				continue
			}
			for _, raddr := range []uint64{key.Addr(), key.Addr() - op.align, key.Addr() + op.align} {
				_, err := op.do(raddr &^ (op.align - 1))
				require.ErrorIs(t, err, ucs.ErrRemoteAccess, op.name)
			}
		}
		require.NoError(t, p.A.EP.Err())
	})
}

// TestKey_NilOrClosed: a nil or closed key is an error, and no panic.
func TestKey_NilOrClosed(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for range 2 {
			closed, err := p.A.EP.Unpack(p.B.Mem.Pack())
			require.NoError(t, err)
			closed.Close()
			for _, key := range []*ucp.RKey{nil, closed} {
				for _, op := range operations(p.A.EP, key) {
					r, err := op.do(p.B.Mem.Addr())
					require.ErrorIs(t, err, ucs.ErrInvalidRKey, op.name)
					require.Nil(t, r)
				}
			}
			require.NoError(t, p.A.EP.Err())
			p.Warm()
		}
	})
}
