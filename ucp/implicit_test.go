package ucp_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// TestImplicit_Many: more puts and gets than fit into any queue, before and after a fence.
func TestImplicit_Many(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect().Warm()
		const n, each = 300, 700
		addr := func(i int) uint64 { return p.B.Mem.Addr() + uint64(i%64*1024) }
		got := make([][]byte, n)
		for i := range n {
			require.NoError(t, p.A.EP.PutImplicit(testenv.Pattern(each, i), addr(i), p.A.Key, nil))
			require.NoError(t, p.A.EP.Fence())
			got[i] = make([]byte, each)
			require.NoError(t, p.A.EP.GetImplicit(got[i], addr(i), p.A.Key, nil))
			require.NoError(t, p.A.EP.Fence())
		}
		require.NoError(t, p.Flush())
		for i := range n {
			testenv.RequireBytes(t, testenv.Pattern(each, i), got[i])
		}
	})
}

// TestImplicit_Atomics: the old values have arrived when a flush completes, for each class of operation, and also if
// they do not fit into the queue.
func TestImplicit_Atomics(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		const n = 300
		clear(p.B.Mem.Bytes())
		addr, key := p.B.Mem.Addr(), p.A.Key
		old, swapped, other := make([]uint64, n), make([]uint64, n), make([]uint64, n)
		wantOld, wantSwapped, wantOther := make([]uint64, n), make([]uint64, n), make([]uint64, n)
		for i := range n {
			require.NoError(t, p.A.EP.AtomicFetchImplicit(uct.AtomicAdd, 8, 3, &old[i], addr, key))
			require.NoError(t, p.A.EP.AtomicCSwapImplicit(8, uint64(i), uint64(i+1), &swapped[i], addr+8, key))
			require.NoError(t, p.A.EP.AtomicFetchImplicit(uct.AtomicOr, 4, 1<<(i%31), &other[i], addr+20, key))
			require.NoError(t, p.A.EP.Fence())
			wantOld[i], wantSwapped[i], wantOther[i] = uint64(3*i), uint64(i), uint64(1)<<min(i, 31)-1
		}
		require.NoError(t, p.Flush())
		assert.Equal(t, wantOld, old)
		assert.Equal(t, wantSwapped, swapped)
		assert.Equal(t, wantOther, other)
		assert.EqualValues(t, n, binary.LittleEndian.Uint64(p.B.Mem.Bytes()[8:]))
		assert.ErrorIs(t, p.A.EP.AtomicFetchImplicit(uct.AtomicAdd, 8, 1, nil, addr, key), ucs.ErrInvalidParam)
		assert.ErrorIs(t, p.A.EP.AtomicCSwapImplicit(8, 0, 1, &old[0], addr, nil), ucs.ErrInvalidRKey)
		assert.ErrorIs(t, p.A.EP.AtomicCSwapImplicit(8, 0, 1, &old[0], addr+tlsets.MemLen-4, key), ucs.ErrInvalidParam, "not aligned")
		assert.ErrorIs(t, p.A.EP.AtomicFetchImplicit(uct.AtomicAdd, 8, 1, &old[0], addr+tlsets.MemLen, key), ucs.ErrRemoteAccess)
	})
}

// TestImplicit_FullLane: more puts and gets of registered memory than fit into any queue. The data is right, and no
// resources are in use afterwards.
func TestImplicit_FullLane(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect().Warm()
		const each = 700
		n := len(p.A.Mem.Bytes()) / each
		local, there, params := p.A.Mem.Bytes(), p.B.Mem.Bytes(), &ucp.OpParams{Mem: p.A.Mem}
		all := func(do func(buf []byte, raddr uint64, key *ucp.RKey, params *ucp.OpParams) error) {
			for i := range n {
				require.NoError(t, do(local[i*each:][:each], p.B.Mem.Addr()+uint64(i*each), p.A.Key, params))
			}
			require.NoError(t, p.Flush())
			assert.False(t, p.A.EP.Busy())
			assert.Zero(t, p.A.EP.Unposted())
		}
		for round := range 3 {
			copy(local, testenv.Pattern(len(local), round))
			all(p.A.EP.PutImplicit)
			testenv.RequireBytes(t, local[:n*each], there[:n*each])
			clear(local)
			all(p.A.EP.GetImplicit)
			testenv.RequireBytes(t, there[:n*each], local[:n*each])
		}
	})
}

// TestImplicit_FullLaneBreaks: operations that wait for a full queue move to the next lane. Those in the queue are
// lost, and the flush reports it. CloseForce ends both.
func TestImplicit_FullLaneBreaks(t *testing.T) {
	const n, each = 12, 300
	p := rails(t)
	x := p.A.EP.Lane(wireup.RMA).EP.(*faketp.EP)
	depth, params := faketp.LikeRC().Depth, &ucp.OpParams{Mem: p.A.Mem}
	post := func() {
		for i := range n {
			buf := p.A.Mem.Bytes()[i*each:][:each]
			require.NoError(t, p.A.EP.PutImplicit(buf, p.B.Mem.Addr()+uint64(i*each), p.A.Key, params))
		}
	}
	copy(p.A.Mem.Bytes(), testenv.Pattern(n*each, 1))
	clear(p.B.Mem.Bytes())
	x.Iface.Frozen = true
	post()
	assert.EqualValues(t, n-depth, p.A.EP.Unposted())
	x.Fail(ucs.StatusTimedOut)
	x.Iface.Frozen = false
	require.ErrorIs(t, p.Flush(), ucs.ErrTimedOut)
	require.NoError(t, p.Flush())
	testenv.RequireBytes(t, p.A.Mem.Bytes()[depth*each:n*each], p.B.Mem.Bytes()[depth*each:n*each])
	testenv.RequireZero(t, p.B.Mem.Bytes()[:depth*each], "posted to the lane that broke")

	for _, i := range x.Iface.Fabric.Ifaces {
		i.Frozen = true
	}
	post()
	end, err := p.A.EP.Close(ucp.CloseForce)
	require.NoError(t, err)
	for _, i := range x.Iface.Fabric.Ifaces {
		i.Frozen = false
	}
	require.NoError(t, p.Finish(end, nil))
	assert.False(t, p.A.EP.Busy())
}

// TestImplicit_Errors: invalid parameters are reported at once.
func TestImplicit_Errors(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect().Warm()
		beyond := p.B.Mem.Addr() + uint64(tlsets.MemLen) - 4
		for _, n := range []int{8, 5000} {
			buf := make([]byte, n)
			assert.ErrorIs(t, p.A.EP.PutImplicit(buf, beyond, p.A.Key, nil), ucs.ErrRemoteAccess)
			assert.ErrorIs(t, p.A.EP.GetImplicit(buf, beyond, p.A.Key, nil), ucs.ErrRemoteAccess)
			assert.ErrorIs(t, p.A.EP.PutImplicit(buf, beyond, nil, nil), ucs.ErrInvalidRKey)
			assert.ErrorIs(t, p.A.EP.GetImplicit(buf, beyond, nil, nil), ucs.ErrInvalidRKey)
		}
		require.NoError(t, p.A.EP.Err())
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
		assert.ErrorIs(t, p.A.EP.PutImplicit(make([]byte, 8), p.B.Mem.Addr(), p.A.Key, nil), ucs.ErrClosed)
		assert.ErrorIs(t, p.A.EP.GetImplicit(make([]byte, 8), p.B.Mem.Addr(), p.A.Key, nil), ucs.ErrClosed)
	})
}

// TestImplicit_CloseWaits: CloseForce completes when the transports do not use the buffers of operations without a
// request any more.
func TestImplicit_CloseWaits(t *testing.T) {
	for _, zcopy := range []bool{false, true} {
		t.Run(fmt.Sprintf("zcopy=%v", zcopy), func(t *testing.T) {
			p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
			p.Connect().Warm()
			var params *ucp.OpParams
			if zcopy {
				params = &ucp.OpParams{Mem: p.A.Mem}
			}
			for _, i := range f.Ifaces {
				i.Frozen = true
			}
			ep, buf := p.A.EP, p.A.Mem.Bytes()[:300]
			require.NoError(t, ep.GetImplicit(buf, p.B.Mem.Addr(), p.A.Key, params))
			require.True(t, ep.Busy())
			end, err := ep.Close(ucp.CloseForce)
			require.NoError(t, err)
			if end != nil {
				assert.True(t, ep.Busy() == !end.Done(), "the EP has operations after Close has completed")
			}
			for _, i := range f.Ifaces {
				i.Frozen = false
			}
			require.NoError(t, p.Finish(end, nil))
			assert.False(t, ep.Busy())
			assert.Nil(t, ep.RetainedIfaces())
			idle(p)
		})
	}
}
