package ucp

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// TestImplicit_Many: more puts and gets than fit into any queue, before and after a fence.
func TestImplicit_Many(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect().warm()
		const n, each = 300, 700
		addr := func(i int) uint64 { return p.b.mem.Addr() + uint64(i%64*1024) }
		got := make([][]byte, n)
		for i := range n {
			require.NoError(t, p.a.ep.PutImplicit(pattern(each, i), addr(i), p.a.key, nil))
			require.NoError(t, p.a.ep.Fence())
			got[i] = make([]byte, each)
			require.NoError(t, p.a.ep.GetImplicit(got[i], addr(i), p.a.key, nil))
			require.NoError(t, p.a.ep.Fence())
		}
		require.NoError(t, p.flush())
		for i := range n {
			requireBytes(t, pattern(each, i), got[i])
		}
	})
}

// TestImplicit_Atomics: the old values have arrived when a flush completes, for each class of operation, and also if
// they do not fit into the queue.
func TestImplicit_Atomics(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		const n = 300
		clear(p.b.mem.Bytes())
		addr, key := p.b.mem.Addr(), p.a.key
		old, swapped, other := make([]uint64, n), make([]uint64, n), make([]uint64, n)
		wantOld, wantSwapped, wantOther := make([]uint64, n), make([]uint64, n), make([]uint64, n)
		for i := range n {
			require.NoError(t, p.a.ep.AtomicFetchImplicit(uct.AtomicAdd, 8, 3, &old[i], addr, key))
			require.NoError(t, p.a.ep.AtomicCSwapImplicit(8, uint64(i), uint64(i+1), &swapped[i], addr+8, key))
			require.NoError(t, p.a.ep.AtomicFetchImplicit(uct.AtomicOr, 4, 1<<(i%31), &other[i], addr+20, key))
			require.NoError(t, p.a.ep.Fence())
			wantOld[i], wantSwapped[i], wantOther[i] = uint64(3*i), uint64(i), uint64(1)<<min(i, 31)-1
		}
		require.NoError(t, p.flush())
		assert.Equal(t, wantOld, old)
		assert.Equal(t, wantSwapped, swapped)
		assert.Equal(t, wantOther, other)
		assert.EqualValues(t, n, binary.LittleEndian.Uint64(p.b.mem.Bytes()[8:]))
		assert.ErrorIs(t, p.a.ep.AtomicFetchImplicit(uct.AtomicAdd, 8, 1, nil, addr, key), ucs.ErrInvalidParam)
		assert.ErrorIs(t, p.a.ep.AtomicCSwapImplicit(8, 0, 1, &old[0], addr, nil), ucs.ErrInvalidRKey)
		assert.ErrorIs(t, p.a.ep.AtomicCSwapImplicit(8, 0, 1, &old[0], addr+memLen-4, key), ucs.ErrInvalidParam, "not aligned")
		assert.ErrorIs(t, p.a.ep.AtomicFetchImplicit(uct.AtomicAdd, 8, 1, &old[0], addr+memLen, key), ucs.ErrRemoteAccess)
	})
}

// TestImplicit_FullLane: more puts and gets of registered memory than fit into any queue. The data is right, and no
// resources are in use afterwards.
func TestImplicit_FullLane(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect().warm()
		const each = 700
		n := len(p.a.mem.Bytes()) / each
		local, there, params := p.a.mem.Bytes(), p.b.mem.Bytes(), &OpParams{Mem: p.a.mem}
		all := func(do func(buf []byte, raddr uint64, key *RKey, params *OpParams) error) {
			for i := range n {
				require.NoError(t, do(local[i*each:][:each], p.b.mem.Addr()+uint64(i*each), p.a.key, params))
			}
			require.NoError(t, p.flush())
			assert.False(t, p.a.ep.busy())
			assert.Zero(t, p.a.ep.counts.unposted)
		}
		for round := range 3 {
			copy(local, pattern(len(local), round))
			all(p.a.ep.PutImplicit)
			requireBytes(t, local[:n*each], there[:n*each])
			clear(local)
			all(p.a.ep.GetImplicit)
			requireBytes(t, there[:n*each], local[:n*each])
		}
	})
}

// TestImplicit_FullLaneBreaks: operations that wait for a full queue move to the next lane. Those in the queue are
// lost, and the flush reports it. CloseForce ends both.
func TestImplicit_FullLaneBreaks(t *testing.T) {
	const n, each = 12, 300
	p := rails(t)
	x := p.a.ep.lane(wireup.RMA).EP.(*faketp.EP)
	depth, params := faketp.LikeRC().Depth, &OpParams{Mem: p.a.mem}
	post := func() {
		for i := range n {
			buf := p.a.mem.Bytes()[i*each:][:each]
			require.NoError(t, p.a.ep.PutImplicit(buf, p.b.mem.Addr()+uint64(i*each), p.a.key, params))
		}
	}
	copy(p.a.mem.Bytes(), pattern(n*each, 1))
	clear(p.b.mem.Bytes())
	x.Iface.Frozen = true
	post()
	assert.EqualValues(t, n-depth, p.a.ep.counts.unposted)
	x.Fail(ucs.StatusTimedOut)
	x.Iface.Frozen = false
	require.ErrorIs(t, p.flush(), ucs.ErrTimedOut)
	require.NoError(t, p.flush())
	requireBytes(t, p.a.mem.Bytes()[depth*each:n*each], p.b.mem.Bytes()[depth*each:n*each])
	requireZero(t, p.b.mem.Bytes()[:depth*each], "posted to the lane that broke")

	for _, i := range x.Iface.Fabric.Ifaces {
		i.Frozen = true
	}
	post()
	end, err := p.a.ep.Close(CloseForce)
	require.NoError(t, err)
	for _, i := range x.Iface.Fabric.Ifaces {
		i.Frozen = false
	}
	require.NoError(t, p.finish(end, nil))
	assert.False(t, p.a.ep.busy())
}

// TestImplicit_Errors: invalid parameters are reported at once.
func TestImplicit_Errors(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect().warm()
		beyond := p.b.mem.Addr() + uint64(memLen) - 4
		for _, n := range []int{8, 5000} {
			buf := make([]byte, n)
			assert.ErrorIs(t, p.a.ep.PutImplicit(buf, beyond, p.a.key, nil), ucs.ErrRemoteAccess)
			assert.ErrorIs(t, p.a.ep.GetImplicit(buf, beyond, p.a.key, nil), ucs.ErrRemoteAccess)
			assert.ErrorIs(t, p.a.ep.PutImplicit(buf, beyond, nil, nil), ucs.ErrInvalidRKey)
			assert.ErrorIs(t, p.a.ep.GetImplicit(buf, beyond, nil, nil), ucs.ErrInvalidRKey)
		}
		require.NoError(t, p.a.ep.Err())
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		assert.ErrorIs(t, p.a.ep.PutImplicit(make([]byte, 8), p.b.mem.Addr(), p.a.key, nil), ucs.ErrClosed)
		assert.ErrorIs(t, p.a.ep.GetImplicit(make([]byte, 8), p.b.mem.Addr(), p.a.key, nil), ucs.ErrClosed)
	})
}

// TestImplicit_CloseWaits: CloseForce completes when the transports do not use the buffers of operations without a
// request any more.
func TestImplicit_CloseWaits(t *testing.T) {
	for _, zcopy := range []bool{false, true} {
		t.Run(fmt.Sprintf("zcopy=%v", zcopy), func(t *testing.T) {
			p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
			p.connect().warm()
			var params *OpParams
			if zcopy {
				params = &OpParams{Mem: p.a.mem}
			}
			for _, i := range f.Ifaces {
				i.Frozen = true
			}
			ep, buf := p.a.ep, p.a.mem.Bytes()[:300]
			require.NoError(t, ep.GetImplicit(buf, p.b.mem.Addr(), p.a.key, params))
			require.True(t, ep.busy())
			end, err := ep.Close(CloseForce)
			require.NoError(t, err)
			if end != nil {
				assert.True(t, ep.busy() == !end.Done(), "the EP has operations after Close has completed")
			}
			for _, i := range f.Ifaces {
				i.Frozen = false
			}
			require.NoError(t, p.finish(end, nil))
			assert.False(t, ep.busy())
			assert.Nil(t, ep.retainedIfaces)
			p.idle()
		})
	}
}
