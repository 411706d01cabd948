package ucp

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// sizes of transfers around every limit of the fakes and of real transports.
var sizes = []int{0, 1, 7, 8, 31, 32, 33, 64, 255, 256, 257, 1000, 4096, 4097, 8192, 8193, 20000, memLen}

func TestPutGet_Sizes(t *testing.T) {
	putGetSizes(t, func(p *pair, buf []byte, params *OpParams) error {
		return p.finish(p.a.ep.Put(buf, p.b.mem.Addr(), p.a.key, params))
	}, func(p *pair, buf []byte, params *OpParams) error {
		return p.finish(p.a.ep.Get(buf, p.b.mem.Addr(), p.a.key, params))
	})
}

// putGetSizes puts to the peer's memory and gets it back, in every size, from memory that
// is the caller's and that is registered. A put has ended after a flush.
func putGetSizes(t *testing.T, put, get func(p *pair, buf []byte, params *OpParams) error) {
	overEvery(t, func(t *testing.T, p *pair) {
		p.connect()
		for i, n := range sizes {
			for _, zcopy := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d/zcopy=%v", n, zcopy), func(t *testing.T) {
					local, params := make([]byte, n), (*OpParams)(nil)
					if zcopy {
						local, params = p.a.mem.Bytes()[:n], &OpParams{Mem: p.a.mem}
					}
					want := pattern(n, i)
					clear(p.b.mem.Bytes())
					copy(local, want)
					require.NoError(t, put(p, local, params))
					require.NoError(t, p.flush())
					requireBytes(t, want, p.b.mem.Bytes()[:n])
					requireZero(t, p.b.mem.Bytes()[n:], "written past the end")
					clear(local)
					require.NoError(t, get(p, local, params))
					requireBytes(t, want, local)
				})
			}
		}
	})
}

func TestPut_ManyBeforeOneFlush(t *testing.T) {
	overEvery(t, func(t *testing.T, p *pair) {
		p.connect()
		const n = 300
		bufs := make([][]byte, n)
		for i := range n {
			bufs[i] = pattern(8+i%120, i)
			r, err := p.a.ep.Put(bufs[i], p.b.mem.Addr()+uint64(i*128), p.a.key, nil)
			require.NoError(t, err)
			if r != nil {
				r.Release()
			}
		}
		require.NoError(t, p.flush())
		for i := range n {
			requireBytes(t, bufs[i], p.b.mem.Bytes()[i*128:][:len(bufs[i])])
		}
	})
}

func TestAtomics(t *testing.T) {
	ops := []uct.AtomicOp{uct.AtomicAdd, uct.AtomicAnd, uct.AtomicOr, uct.AtomicXor, uct.AtomicSwap}
	overEvery(t, func(t *testing.T, p *pair) {
		p.connect()
		for _, size := range []int{4, 8} {
			for _, op := range ops {
				for off := 0; off < 16; off += size {
					t.Run(fmt.Sprintf("%d/%v/%d", size, op, off), func(t *testing.T) {
						p.checkAtomic(t, op, size, off)
					})
				}
			}
			t.Run(fmt.Sprintf("%d/cswap", size), func(t *testing.T) { p.checkCSwap(t, size) })
		}
	})
}

// fill puts a known value around the word at off, and returns the word.
func (p *pair) fill(off, size int) uint64 {
	copy(p.b.mem.Bytes(), pattern(32, 99))
	return p.word(off, size)
}

func (p *pair) word(off, size int) uint64 {
	if size == 4 {
		return uint64(binary.LittleEndian.Uint32(p.b.mem.Bytes()[off:]))
	}
	return binary.LittleEndian.Uint64(p.b.mem.Bytes()[off:])
}

func (p *pair) checkAtomic(t *testing.T, op uct.AtomicOp, size, off int) {
	const value = 0x1122334455667788
	raddr := p.b.mem.Addr() + uint64(off)
	old := p.fill(off, size)
	want := op.Apply(size, old, 0, value)
	require.NoError(t, p.a.ep.AtomicPost(op, size, value, raddr, p.a.key))
	require.NoError(t, p.flush())
	assert.Equal(t, want, p.word(off, size), "posted")

	old = p.fill(off, size)
	result := new(uint64)
	require.NoError(t, p.finish(p.a.ep.AtomicFetch(op, size, value, result, raddr, p.a.key)))
	assert.Equal(t, old, *result, "old value")
	assert.Equal(t, want, p.word(off, size), "fetching")
	after := pattern(32, 99)
	copy(after[off:off+size], p.b.mem.Bytes()[off:off+size])
	requireBytes(t, after, p.b.mem.Bytes()[:32])
}

func (p *pair) checkCSwap(t *testing.T, size int) {
	old := p.fill(4*size%32, size)
	raddr := p.b.mem.Addr() + uint64(4*size%32)
	result := new(uint64)
	require.NoError(t, p.finish(p.a.ep.AtomicCSwap(size, old+1, 77, result, raddr, p.a.key)))
	assert.Equal(t, old, *result)
	assert.Equal(t, old, p.word(4*size%32, size), "not swapped")
	require.NoError(t, p.finish(p.a.ep.AtomicCSwap(size, old, 77, result, raddr, p.a.key)))
	assert.Equal(t, old, *result)
	assert.Equal(t, uint64(77), p.word(4*size%32, size), "swapped")
}

// TestAtomics_BothSidesAtOnce adds to one word from both workers, by operations
// that the transports emulate differently.
func TestAtomics_BothSidesAtOnce(t *testing.T) {
	overEvery(t, func(t *testing.T, p *pair) {
		p.both()
		self, err := p.b.w.NewEP(p.b.w.Address(), EPConfig{})
		require.NoError(t, err)
		key, err := self.Unpack(p.b.mem.Pack())
		require.NoError(t, err)
		defer key.Close()
		n := testenv.Rounds(200, 2000)
		for range n {
			require.NoError(t, p.a.ep.AtomicPost(uct.AtomicAdd, 4, 1, p.b.mem.Addr()+4, p.a.key))
			require.NoError(t, self.AtomicPost(uct.AtomicAdd, 4, 1, p.b.mem.Addr()+4, key))
			p.step()
		}
		require.NoError(t, p.finish(p.a.w.Flush()))
		require.NoError(t, p.finish(p.b.w.Flush()))
		assert.Equal(t, uint64(2*n), p.word(4, 4))
		assert.Zero(t, p.word(0, 4))
	})
}

func TestAtomics_WordAtTheEdge(t *testing.T) {
	overEvery(t, func(t *testing.T, p *pair) {
		p.connect()
		mem, err := p.b.ctx.MemMap(make([]byte, 12))
		require.NoError(t, err)
		defer func() { assert.NoError(t, mem.Close()) }()
		key, err := p.a.ep.Unpack(mem.Pack())
		require.NoError(t, err)
		defer key.Close()
		result := new(uint64)
		for want := range uint64(3) {
			require.NoError(t, p.finish(p.a.ep.AtomicFetch(uct.AtomicAdd, 4, 1, result, mem.Addr()+8, key)))
			assert.Equal(t, want, *result)
		}
	})
}

func TestFence_Orders(t *testing.T) {
	overEvery(t, func(t *testing.T, p *pair) {
		p.connect()
		for i := range 50 {
			data, flag := pattern(2000, i), []byte{byte(i + 1)}
			r1, err := p.a.ep.Put(data, p.b.mem.Addr()+64, p.a.key, nil)
			require.NoError(t, err)
			require.NoError(t, p.a.ep.AtomicPost(uct.AtomicXor, 8, 1, p.b.mem.Addr()+8, p.a.key))
			require.NoError(t, p.a.ep.Fence())
			r2, err := p.a.ep.Put(flag, p.b.mem.Addr(), p.a.key, nil)
			require.NoError(t, err)
			p.until(func() bool { return p.b.mem.Bytes()[0] == flag[0] })
			requireBytes(t, data, p.b.mem.Bytes()[64:][:len(data)])
			assert.Equal(t, uint64((i+1)%2), p.word(8, 8))
			require.NoError(t, p.finish(r1, nil))
			require.NoError(t, p.finish(r2, nil))
		}
		require.NoError(t, p.a.w.Fence())
		require.NoError(t, p.flush())
	})
}

func TestErrors_OfTheCaller(t *testing.T) {
	overEvery(t, func(t *testing.T, p *pair) {
		p.both()
		ep, key, addr := p.a.ep, p.a.key, p.b.mem.Addr()
		result := new(uint64)
		for _, tc := range []struct {
			name string
			do   func() (*Request, error)
			want error
		}{
			{"another EP's key", func() (*Request, error) { return ep.Put([]byte{1}, addr, p.b.key, nil) }, ucs.ErrInvalidRKey},
			{"memory that does not cover the buffer", func() (*Request, error) {
				return ep.Put(make([]byte, 9000), addr, key, &OpParams{Mem: p.a.mem})
			}, ucs.ErrInvalidParam},
			{"a word of 2 bytes", func() (*Request, error) { return nil, ep.AtomicPost(uct.AtomicAdd, 2, 1, addr, key) }, ucs.ErrInvalidParam},
			{"an odd address", func() (*Request, error) { return nil, ep.AtomicPost(uct.AtomicAdd, 8, 1, addr+4, key) }, ucs.ErrInvalidParam},
			{"posted cswap", func() (*Request, error) { return nil, ep.AtomicPost(uct.AtomicCSwap, 8, 1, addr, key) }, ucs.ErrInvalidParam},
			{"fetched cswap", func() (*Request, error) { return ep.AtomicFetch(uct.AtomicCSwap, 8, 1, result, addr, key) }, ucs.ErrInvalidParam},
			{"no result", func() (*Request, error) { return ep.AtomicCSwap(8, 0, 1, nil, addr, key) }, ucs.ErrInvalidParam},
			{"an atomic outside", func() (*Request, error) { return ep.AtomicCSwap(8, 0, 1, result, addr+memLen, key) }, ucs.ErrRemoteAccess},
		} {
			t.Run(tc.name, func(t *testing.T) {
				r, err := tc.do()
				assert.ErrorIs(t, err, tc.want)
				assert.Nil(t, r)
			})
		}
		require.NoError(t, ep.Err(), "nothing of this harms the EP")
		require.NoError(t, p.finish(ep.Put([]byte{5}, addr, key, nil)))
		require.NoError(t, p.flush())
		assert.Equal(t, byte(5), p.b.mem.Bytes()[0])
	})
}

// TestErrors_AtTheTarget: an access that the target refuses fails the operation or
// the EP, touches no memory, and leaves other EPs alone.
func TestErrors_AtTheTarget(t *testing.T) {
	type access func(p *pair, key *RKey) (*Request, error)
	put := func(n int, off uint64) access {
		return func(p *pair, key *RKey) (*Request, error) {
			return p.a.ep.Put(pattern(n, 1), key.Addr()+off, key, nil)
		}
	}
	get := func(n int, off uint64) access {
		return func(p *pair, key *RKey) (*Request, error) {
			return p.a.ep.Get(make([]byte, n), key.Addr()+off, key, nil)
		}
	}
	add := func(p *pair, key *RKey) (*Request, error) {
		return p.a.ep.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), key.Addr(), key)
	}
	for _, tc := range []struct {
		name   string
		rights uct.Access
		closed bool
		do     access
		forged bool // the key claims more than the target gave
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
			overAll(t, func(t *testing.T, p *pair) {
				p.connect().warm()
				other, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
				require.NoError(t, err)
				otherKey, err := other.Unpack(p.b.mem.Pack())
				require.NoError(t, err)
				defer otherKey.Close()
				mem, err := p.b.ctx.MemAllocAccess(4096, tc.rights)
				require.NoError(t, err)
				defer func() { assert.NoError(t, mem.Close()) }()
				packed := mem.Pack()
				if tc.forged {
					packed[2] = byte(uct.AccessAll)
					binary.LittleEndian.PutUint64(packed[20:], 1<<20)
				}
				key, err := p.a.ep.Unpack(packed)
				require.NoError(t, err)
				defer key.Close()
				if tc.closed {
					require.NoError(t, mem.Close())
				}
				err = p.finish(tc.do(p, key))
				if err == nil {
					err = p.flush()
				}
				require.Error(t, err)
				if !tc.closed {
					requireBytes(t, make([]byte, 4096), mem.Bytes())
				}
				require.NoError(t, p.finish(other.Put([]byte{9}, p.b.mem.Addr(), otherKey, nil)))
				require.NoError(t, p.finish(other.Flush()))
				assert.Equal(t, byte(9), p.b.mem.Bytes()[0])
			})
		})
	}
}
