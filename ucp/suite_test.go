package ucp_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

func TestPutGet_Sizes(t *testing.T) {
	putGetSizes(t, func(p *ucppair.Pair, buf []byte, params *ucp.OpParams) error {
		return p.Finish(p.A.EP.Put(buf, p.B.Mem.Addr(), p.A.Key, params))
	}, func(p *ucppair.Pair, buf []byte, params *ucp.OpParams) error {
		return p.Finish(p.A.EP.Get(buf, p.B.Mem.Addr(), p.A.Key, params))
	})
}

// putGetSizes puts to the peer's memory and gets it back, in all sizes, from memory that is registered and not. A put
// has taken effect after a flush.
func putGetSizes(t *testing.T, put, get func(p *ucppair.Pair, buf []byte, params *ucp.OpParams) error) {
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for i, n := range tlsets.Sizes {
			for _, zcopy := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d/zcopy=%v", n, zcopy), func(t *testing.T) {
					local, params := make([]byte, n), (*ucp.OpParams)(nil)
					if zcopy {
						local, params = p.A.Mem.Bytes()[:n], &ucp.OpParams{Mem: p.A.Mem}
					}
					want := testenv.Pattern(n, i)
					clear(p.B.Mem.Bytes())
					copy(local, want)
					require.NoError(t, put(p, local, params))
					require.NoError(t, p.Flush())
					testenv.RequireBytes(t, want, p.B.Mem.Bytes()[:n])
					testenv.RequireZero(t, p.B.Mem.Bytes()[n:], "written past the end")
					clear(local)
					require.NoError(t, get(p, local, params))
					testenv.RequireBytes(t, want, local)
				})
			}
		}
	})
}

// TestImplicit_Sizes: puts and gets without a request have completed after a flush, also as the first operations of an
// EP.
func TestImplicit_Sizes(t *testing.T) {
	putGetSizes(t, func(p *ucppair.Pair, buf []byte, params *ucp.OpParams) error {
		return p.A.EP.PutImplicit(buf, p.B.Mem.Addr(), p.A.Key, params)
	}, func(p *ucppair.Pair, buf []byte, params *ucp.OpParams) error {
		if err := p.A.EP.GetImplicit(buf, p.B.Mem.Addr(), p.A.Key, params); err != nil {
			return err
		}
		return p.Finish(p.A.W.Flush())
	})
}

func TestPut_ManyBeforeOneFlush(t *testing.T) {
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		const n = 300
		bufs := make([][]byte, n)
		for i := range n {
			bufs[i] = testenv.Pattern(8+i%120, i)
			r, err := p.A.EP.Put(bufs[i], p.B.Mem.Addr()+uint64(i*128), p.A.Key, nil)
			require.NoError(t, err)
			if r != nil {
				r.Release()
			}
		}
		require.NoError(t, p.Flush())
		for i := range n {
			testenv.RequireBytes(t, bufs[i], p.B.Mem.Bytes()[i*128:][:len(bufs[i])])
		}
	})
}

func TestAtomics(t *testing.T) {
	ops := []uct.AtomicOp{uct.AtomicAdd, uct.AtomicAnd, uct.AtomicOr, uct.AtomicXor, uct.AtomicSwap}
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for _, size := range []int{4, 8} {
			for _, op := range ops {
				for off := 0; off < 16; off += size {
					t.Run(fmt.Sprintf("%d/%v/%d", size, op, off), func(t *testing.T) {
						checkAtomic(t, p, op, size, off)
					})
				}
			}
			t.Run(fmt.Sprintf("%d/cswap", size), func(t *testing.T) { checkCSwap(t, p, size) })
		}
	})
}

// fill writes a pattern around the word at off, and returns the word.
func fill(p *ucppair.Pair, off, size int) uint64 {
	copy(p.B.Mem.Bytes(), testenv.Pattern(32, 99))
	return word(p, off, size)
}

func word(p *ucppair.Pair, off, size int) uint64 {
	if size == 4 {
		return uint64(binary.LittleEndian.Uint32(p.B.Mem.Bytes()[off:]))
	}
	return binary.LittleEndian.Uint64(p.B.Mem.Bytes()[off:])
}

func checkAtomic(t *testing.T, p *ucppair.Pair, op uct.AtomicOp, size, off int) {
	const value = 0x1122334455667788
	raddr := p.B.Mem.Addr() + uint64(off)
	old := fill(p, off, size)
	want := op.Apply(size, old, 0, value)
	require.NoError(t, p.A.EP.AtomicPost(op, size, value, raddr, p.A.Key))
	require.NoError(t, p.Flush())
	assert.Equal(t, want, word(p, off, size), "posted")

	old = fill(p, off, size)
	result := new(uint64)
	require.NoError(t, p.Finish(p.A.EP.AtomicFetch(op, size, value, result, raddr, p.A.Key)))
	assert.Equal(t, old, *result, "old value")
	assert.Equal(t, want, word(p, off, size), "fetching")
	after := testenv.Pattern(32, 99)
	copy(after[off:off+size], p.B.Mem.Bytes()[off:off+size])
	testenv.RequireBytes(t, after, p.B.Mem.Bytes()[:32])
}

func checkCSwap(t *testing.T, p *ucppair.Pair, size int) {
	old := fill(p, 4*size%32, size)
	raddr := p.B.Mem.Addr() + uint64(4*size%32)
	result := new(uint64)
	require.NoError(t, p.Finish(p.A.EP.AtomicCSwap(size, old+1, 77, result, raddr, p.A.Key)))
	assert.Equal(t, old, *result)
	assert.Equal(t, old, word(p, 4*size%32, size), "not swapped")
	require.NoError(t, p.Finish(p.A.EP.AtomicCSwap(size, old, 77, result, raddr, p.A.Key)))
	assert.Equal(t, old, *result)
	assert.Equal(t, uint64(77), word(p, 4*size%32, size), "swapped")
}

// TestAtomics_BothSidesAtOnce adds to one word from both workers, with operations that the transports emulate
// differently.
func TestAtomics_BothSidesAtOnce(t *testing.T) {
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		p.Both()
		self, err := p.B.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		key, err := self.Unpack(p.B.Mem.Pack())
		require.NoError(t, err)
		defer key.Close()
		n := testenv.Rounds(200, 2000)
		for range n {
			require.NoError(t, p.A.EP.AtomicPost(uct.AtomicAdd, 4, 1, p.B.Mem.Addr()+4, p.A.Key))
			require.NoError(t, self.AtomicPost(uct.AtomicAdd, 4, 1, p.B.Mem.Addr()+4, key))
			p.Step()
		}
		require.NoError(t, p.Finish(p.A.W.Flush()))
		require.NoError(t, p.Finish(p.B.W.Flush()))
		assert.Equal(t, uint64(2*n), word(p, 4, 4))
		assert.Zero(t, word(p, 0, 4))
	})
}

func TestAtomics_WordAtTheEdge(t *testing.T) {
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		mem, err := p.B.Ctx.MemMap(make([]byte, 12))
		require.NoError(t, err)
		defer func() { assert.NoError(t, mem.Close()) }()
		key, err := p.A.EP.Unpack(mem.Pack())
		require.NoError(t, err)
		defer key.Close()
		result := new(uint64)
		for want := range uint64(3) {
			require.NoError(t, p.Finish(p.A.EP.AtomicFetch(uct.AtomicAdd, 4, 1, result, mem.Addr()+8, key)))
			assert.Equal(t, want, *result)
		}
	})
}

func TestFence_Orders(t *testing.T) {
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for i := range 50 {
			data, flag := testenv.Pattern(2000, i), []byte{byte(i + 1)}
			r1, err := p.A.EP.Put(data, p.B.Mem.Addr()+64, p.A.Key, nil)
			require.NoError(t, err)
			require.NoError(t, p.A.EP.AtomicPost(uct.AtomicXor, 8, 1, p.B.Mem.Addr()+8, p.A.Key))
			require.NoError(t, p.A.EP.Fence())
			r2, err := p.A.EP.Put(flag, p.B.Mem.Addr(), p.A.Key, nil)
			require.NoError(t, err)
			p.Until(func() bool { return p.B.Mem.Bytes()[0] == flag[0] })
			testenv.RequireBytes(t, data, p.B.Mem.Bytes()[64:][:len(data)])
			assert.Equal(t, uint64((i+1)%2), word(p, 8, 8))
			require.NoError(t, p.Finish(r1, nil))
			require.NoError(t, p.Finish(r2, nil))
		}
		require.NoError(t, p.A.W.Fence())
		require.NoError(t, p.Flush())
	})
}

func TestErrors_OfTheCaller(t *testing.T) {
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		p.Both()
		ep, key, addr := p.A.EP, p.A.Key, p.B.Mem.Addr()
		result := new(uint64)
		for _, tc := range []struct {
			name string
			do   func() (*ucp.Request, error)
			want error
		}{
			{"another EP's key", func() (*ucp.Request, error) { return ep.Put([]byte{1}, addr, p.B.Key, nil) }, ucs.ErrInvalidRKey},
			{"memory that does not cover the buffer", func() (*ucp.Request, error) {
				return ep.Put(make([]byte, 9000), addr, key, &ucp.OpParams{Mem: p.A.Mem})
			}, ucs.ErrInvalidParam},
			{"a word of 2 bytes", func() (*ucp.Request, error) { return nil, ep.AtomicPost(uct.AtomicAdd, 2, 1, addr, key) }, ucs.ErrInvalidParam},
			{"an odd address", func() (*ucp.Request, error) { return nil, ep.AtomicPost(uct.AtomicAdd, 8, 1, addr+4, key) }, ucs.ErrInvalidParam},
			{"posted cswap", func() (*ucp.Request, error) { return nil, ep.AtomicPost(uct.AtomicCSwap, 8, 1, addr, key) }, ucs.ErrInvalidParam},
			{"fetched cswap", func() (*ucp.Request, error) { return ep.AtomicFetch(uct.AtomicCSwap, 8, 1, result, addr, key) }, ucs.ErrInvalidParam},
			{"no result", func() (*ucp.Request, error) { return ep.AtomicCSwap(8, 0, 1, nil, addr, key) }, ucs.ErrInvalidParam},
			{"an atomic outside", func() (*ucp.Request, error) { return ep.AtomicCSwap(8, 0, 1, result, addr+tlsets.MemLen, key) }, ucs.ErrRemoteAccess},
		} {
			t.Run(tc.name, func(t *testing.T) {
				r, err := tc.do()
				assert.ErrorIs(t, err, tc.want)
				assert.Nil(t, r)
			})
		}
		require.NoError(t, ep.Err(), "the EP still works")
		require.NoError(t, p.Finish(ep.Put([]byte{5}, addr, key, nil)))
		require.NoError(t, p.Flush())
		assert.Equal(t, byte(5), p.B.Mem.Bytes()[0])
	})
}

// TestErrors_AtTheTarget: an access that the target rejects fails the operation or the EP, accesses no memory, and does
// not affect other EPs.
func TestErrors_AtTheTarget(t *testing.T) {
	type access func(p *ucppair.Pair, key *ucp.RKey) (*ucp.Request, error)
	put := func(n int, off uint64) access {
		return func(p *ucppair.Pair, key *ucp.RKey) (*ucp.Request, error) {
			return p.A.EP.Put(testenv.Pattern(n, 1), key.Addr()+off, key, nil)
		}
	}
	get := func(n int, off uint64) access {
		return func(p *ucppair.Pair, key *ucp.RKey) (*ucp.Request, error) {
			return p.A.EP.Get(make([]byte, n), key.Addr()+off, key, nil)
		}
	}
	add := func(p *ucppair.Pair, key *ucp.RKey) (*ucp.Request, error) {
		return p.A.EP.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), key.Addr(), key)
	}
	for _, tc := range []struct {
		name   string
		rights uct.Access
		closed bool
		do     access
		forged bool // the key claims more access than the target permits
	}{
		{"short put past the end", uct.AccessAll, false, put(8, 4090), false},
		{"put past the end", uct.AccessAll, false, put(5000, 0), false},
		{"get past the end", uct.AccessAll, false, get(100, 4090), false},
		{"put before the start", uct.AccessAll, false, put(8, ^uint64(0)), false},
		{"put without the right", uct.AccessLocalWrite | uct.AccessRemoteRead, false, put(8, 0), false},
		{"get without the right", uct.AccessLocalWrite | uct.AccessRemoteWrite, false, get(8, 0), false},
		{"forged range", uct.AccessAll, false, put(8, 5000), true},
		{"forged range of a long put", uct.AccessAll, false, put(200, 5000), true},
		{"forged range of a get", uct.AccessAll, false, get(200, 5000), true},
		{"forged right to put", uct.AccessLocalWrite | uct.AccessRemoteRead, false, put(8, 0), true},
		{"forged right to get", uct.AccessLocalWrite | uct.AccessRemoteWrite, false, get(200, 0), true},
		{"forged right to atomics", uct.AccessLocalWrite | uct.AccessRemoteWrite, false, add, true},
		{"put after the memory is gone", uct.AccessAll, true, put(8, 0), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			overAll(t, func(t *testing.T, p *ucppair.Pair) {
				p.Connect().Warm()
				other, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
				require.NoError(t, err)
				otherKey, err := other.Unpack(p.B.Mem.Pack())
				require.NoError(t, err)
				defer otherKey.Close()
				mem, err := p.B.Ctx.MemAllocAccess(4096, tc.rights)
				require.NoError(t, err)
				defer func() { assert.NoError(t, mem.Close()) }()
				packed := mem.Pack()
				if tc.forged {
					packed[2] = byte(uct.AccessAll)
					binary.LittleEndian.PutUint64(packed[20:], 1<<20)
				}
				key, err := p.A.EP.Unpack(packed)
				require.NoError(t, err)
				defer key.Close()
				if tc.closed {
					require.NoError(t, mem.Close())
				}
				err = p.Finish(tc.do(p, key))
				if err == nil {
					err = p.Flush()
				}
				require.Error(t, err)
				if !tc.closed {
					testenv.RequireBytes(t, make([]byte, 4096), mem.Bytes())
				}
				require.NoError(t, p.Finish(other.Put([]byte{9}, p.B.Mem.Addr(), otherKey, nil)))
				require.NoError(t, p.Finish(other.Flush()))
				assert.Equal(t, byte(9), p.B.Mem.Bytes()[0])
			})
		})
	}
}
