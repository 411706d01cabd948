package ucp_test

import (
	"context"
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
	"github.com/gucx/gucx/wireup"
)

// transfersOf returns a list that moves pieces of buf to or from the same offsets of the peer's memory. lens are the
// lengths of the pieces, between which gap bytes stay as they are.
func transfersOf(p *ucppair.Pair, buf []byte, gap int, lens ...int) (list []ucp.Transfer) {
	off := 0
	for _, n := range lens {
		list = append(list, ucp.Transfer{buf[off : off+n : off+n], p.A.Key.Addr() + uint64(off), p.A.Key})
		off += n + gap
	}
	return list
}

// wantPieces returns the memory, zero before, after a list has moved want to it.
func wantPieces(want []byte, gap int, lens ...int) []byte {
	out, off := make([]byte, len(want)), 0
	for _, n := range lens {
		copy(out[off:], want[off:off+n])
		off += n + gap
	}
	return out
}

// TestTransferList_Sizes: lists of all lengths of transfers, from memory that is registered or not, also as the first
// operation of the EP.
func TestTransferList_Sizes(t *testing.T) {
	const gap = 3
	lens := []int{0, 1, 8, 33, 256, 257, 1000, 0, 4097, 8193, 20_000, 7, 8}
	overEvery(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for i, registered := range []bool{false, true} {
			local, params := make([]byte, tlsets.MemLen), (*ucp.OpParams)(nil)
			if registered {
				local, params = p.A.Mem.Bytes(), &ucp.OpParams{Mem: p.A.Mem}
			}
			there := p.B.Mem.Bytes()
			clear(there)
			copy(local, testenv.Pattern(tlsets.MemLen, i))
			list := transfersOf(p, local, gap, lens...)
			require.NoError(t, p.Finish(p.A.EP.PutList(list, params)))
			require.NoError(t, p.Flush())
			testenv.RequireBytes(t, wantPieces(testenv.Pattern(tlsets.MemLen, i), gap, lens...), there)

			copy(there, testenv.Pattern(tlsets.MemLen, i+2))
			clear(local)
			require.NoError(t, p.Finish(p.A.EP.GetList(list, params)))
			testenv.RequireBytes(t, wantPieces(testenv.Pattern(tlsets.MemLen, i+2), gap, lens...), local)
		}
	})
}

// TestTransferList_Longest: the longest list has more transfers than fit into any queue. A flush and a fence cover all
// of them.
func TestTransferList_Longest(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		const each = tlsets.MemLen / ucp.MaxTransfers
		lens := make([]int, ucp.MaxTransfers)
		for i := range lens {
			lens[i] = each
		}
		data, got := testenv.Pattern(tlsets.MemLen, 1), make([]byte, tlsets.MemLen)
		put, err := p.A.EP.PutList(transfersOf(p, data, 0, lens...), nil)
		require.NoError(t, err)
		require.NoError(t, p.A.EP.Fence())
		get, err := p.A.EP.GetList(transfersOf(p, got, 0, lens...), nil)
		require.NoError(t, err)
		require.NoError(t, p.Flush())
		require.True(t, put.Done())
		require.True(t, get.Done())
		require.NoError(t, p.Finish(put, nil))
		require.NoError(t, p.Finish(get, nil))
		testenv.RequireBytes(t, data, p.B.Mem.Bytes())
		testenv.RequireBytes(t, data, got)
	})
}

// TestTransferList_Keys: the transfers of a list may have keys of different memory.
func TestTransferList_Keys(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		mem, err := p.B.Ctx.MemAlloc(5000)
		require.NoError(t, err)
		defer func() { assert.NoError(t, mem.Close()) }()
		key, err := p.A.EP.Unpack(mem.Pack())
		require.NoError(t, err)
		defer key.Close()
		list := []ucp.Transfer{{testenv.Pattern(5000, 1), key.Addr(), key}, {testenv.Pattern(8, 2), p.A.Key.Addr(), p.A.Key}}
		require.NoError(t, p.Finish(p.A.EP.PutList(list, nil)))
		require.NoError(t, p.Flush())
		testenv.RequireBytes(t, testenv.Pattern(5000, 1), mem.Bytes())
		testenv.RequireBytes(t, testenv.Pattern(8, 2), p.B.Mem.Bytes()[:8])
	})
}

// TestTransferList_Rejected: a list with an invalid transfer has no effect, and the error names the transfer.
func TestTransferList_Rejected(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Both().Warm()
		clear(p.B.Mem.Bytes())
		addr, key, buf := p.A.Key.Addr(), p.A.Key, testenv.Pattern(9000, 1)
		good := []ucp.Transfer{{buf[:8], addr, key}, {buf[:3000], addr, key}, {buf, addr, key}}
		for _, tc := range []struct {
			name   string
			bad    ucp.Transfer
			params *ucp.OpParams
			want   error
		}{
			{"no key", ucp.Transfer{buf[:8], addr, nil}, nil, ucs.ErrInvalidRKey},
			{"the key of another EP", ucp.Transfer{buf[:8], addr, p.B.Key}, nil, ucs.ErrInvalidRKey},
			{"past the end", ucp.Transfer{buf[:8], addr + tlsets.MemLen - 7, key}, nil, ucs.ErrRemoteAccess},
			{"before the start", ucp.Transfer{buf[:3000], addr - 1, key}, nil, ucs.ErrRemoteAccess},
			{"too long", ucp.Transfer{make([]byte, tlsets.MemLen+1), addr, key}, nil, ucs.ErrRemoteAccess},
			{"memory that does not cover the buffer", ucp.Transfer{buf, addr, key}, &ucp.OpParams{Mem: p.A.Mem}, ucs.ErrInvalidParam},
		} {
			list, index := append(good[:len(good):len(good)], tc.bad), len(good)
			if tc.params != nil {
				list, index = []ucp.Transfer{tc.bad}, 0
			}
			for _, do := range []func([]ucp.Transfer, *ucp.OpParams) (*ucp.Request, error){p.A.EP.PutList, p.A.EP.GetList} {
				r, err := do(list, tc.params)
				require.ErrorIs(t, err, tc.want, tc.name)
				requireOneLine(t, err, fmt.Sprintf("transfer %d of a list: ", index))
				require.Nil(t, r)
			}
		}
		for _, do := range []func([]ucp.Transfer, *ucp.OpParams) (*ucp.Request, error){p.A.EP.PutList, p.A.EP.GetList} {
			_, err := do(nil, nil)
			require.ErrorIs(t, err, ucs.ErrInvalidParam)
			assert.ErrorContains(t, err, "empty")
			_, err = do(make([]ucp.Transfer, ucp.MaxTransfers+1), nil)
			require.ErrorIs(t, err, ucs.ErrTooLong)
			assert.ErrorContains(t, err, "1025 transfers, 1024 fit")
		}
		require.NoError(t, p.Flush())
		testenv.RequireBytes(t, testenv.Pattern(9000, 1), buf)
		testenv.RequireZero(t, p.B.Mem.Bytes(), "a list that was rejected")
		require.NoError(t, p.A.EP.Err())
		require.NoError(t, p.Finish(p.A.EP.PutList(good, nil)))
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
		_, err := p.A.EP.PutList(good, nil)
		require.ErrorIs(t, err, ucs.ErrClosed)
	})
}

// TestTransferList_FailsAtTheTarget: the request has the error of the transfer that the target rejects.
func TestTransferList_FailsAtTheTarget(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect().Warm()
		mem, err := p.B.Ctx.MemAlloc(4096)
		require.NoError(t, err)
		defer func() { assert.NoError(t, mem.Close()) }()
		packed := mem.Pack()
		binary.LittleEndian.PutUint64(packed[20:], 1<<20) // the key claims more than there is
		key, err := p.A.EP.Unpack(packed)
		require.NoError(t, err)
		defer key.Close()
		list := []ucp.Transfer{{make([]byte, 9000), p.A.Key.Addr(), p.A.Key}, {make([]byte, 3000), key.Addr() + 8000, key}}
		err = p.Finish(p.A.EP.GetList(list, nil))
		require.Error(t, err)
		assert.ErrorContains(t, err, "get")
		testenv.RequireZero(t, list[1].Buf, "read from elsewhere")
	})
}

// TestTransferList_OnDone: OnDone is called once for a list that has returned a request.
func TestTransferList_OnDone(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like rc+ud", faketp.LikeRC(), faketp.LikeUD()), ucp.Config{}).Connect().Warm()
	calls := 0
	params := &ucp.OpParams{OnDone: func(err error) {
		assert.NoError(t, err)
		calls++
	}}
	r, err := p.A.EP.GetList(transfersOf(p, make([]byte, tlsets.MemLen), 0, 8, 5000, 9000), params)
	require.NoError(t, err)
	require.NotNil(t, r)
	r.Release()
	require.NoError(t, p.Flush())
	idle(p)
	assert.Equal(t, 1, calls)
	r, err = p.A.EP.PutList(transfersOf(p, make([]byte, tlsets.MemLen), 0, 8, 8), params)
	require.NoError(t, err)
	require.Nil(t, r, "each put is one short call")
	idle(p)
	assert.Equal(t, 1, calls)
}

// TestTransferList_Cancel: a list of which nothing was posted can be canceled; after the first post it cannot.
func TestTransferList_Cancel(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect() // there is no lane yet, so all of them wait
		list := transfersOf(p, testenv.Pattern(tlsets.MemLen, 1), 0, 8, 3000, 20_000)
		for _, do := range []func([]ucp.Transfer, *ucp.OpParams) (*ucp.Request, error){p.A.EP.PutList, p.A.EP.GetList} {
			r, err := do(list, nil)
			require.NoError(t, err)
			require.True(t, r.Cancel())
			require.ErrorIs(t, p.Finish(r, nil), ucs.ErrCanceled)
		}
		p.Warm()
		testenv.RequireZero(t, p.B.Mem.Bytes()[1:], "a canceled put")
	})
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect().Warm()
	for _, i := range f.Ifaces {
		i.Frozen = true
	}
	begun, err := p.A.EP.GetList(transfersOf(p, make([]byte, tlsets.MemLen), 0, 8, 3000, 20_000), nil)
	require.NoError(t, err)
	assert.False(t, begun.Cancel())
	for range 2 * faketp.LikeRC().Depth { // fill the queue
		r, err := p.A.EP.Get(make([]byte, 100), p.A.Key.Addr(), p.A.Key, nil)
		require.NoError(t, err)
		r.Release()
	}
	queued, err := p.A.EP.GetList(transfersOf(p, make([]byte, tlsets.MemLen), 0, 8, 3000), nil)
	require.NoError(t, err)
	assert.True(t, queued.Cancel())
	require.ErrorIs(t, queued.Wait(t.Context()), ucs.ErrCanceled)
	for _, i := range f.Ifaces {
		i.Frozen = false
	}
	require.NoError(t, p.Finish(begun, nil))
	require.NoError(t, p.Flush())
}

// TestTransferList_CancelBegun: a list cannot be canceled if a transfer is complete, although no other was posted.
func TestTransferList_CancelBegun(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like rc+ud", faketp.LikeRC(), faketp.LikeUD()), ucp.Config{}).Connect()
	r, err := p.A.EP.GetList(transfersOf(p, make([]byte, tlsets.MemLen), 0, 8, 8), nil)
	require.NoError(t, err)
	r.CountTransfers(1) // as if one more had completed
	require.False(t, r.Cancel())
	r.CountTransfers(-1)
	require.True(t, r.Cancel())
	r.Release()
}

// TestTransferList_GivenUp: when a canceled blocking call returns, no transport uses a buffer of the list, and the rest
// is not posted later.
func TestTransferList_GivenUp(t *testing.T) {
	for _, failed := range []bool{false, true} {
		t.Run(fmt.Sprintf("failed=%v", failed), func(t *testing.T) {
			p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
			p.A.W.LimitBufferWait(1)
			p.Connect().Warm()
			freeze := func(frozen bool) {
				for _, i := range f.Ifaces {
					i.Frozen = frozen
				}
			}
			freeze(true)
			buf := make([]byte, tlsets.MemLen)
			var err error
			if failed {
				err = p.A.EP.GetListWait(overCtx(), transfersOf(p, buf, 0, 8, 3000), nil)
			} else { // bcopy puts, and the rest of them
				lens := make([]int, 4*faketp.LikeRC().Depth)
				for i := range lens {
					lens[i] = 100
				}
				err = p.A.EP.PutListWait(overCtx(), transfersOf(p, buf, 0, lens...), nil)
			}
			require.ErrorIs(t, err, context.Canceled)
			if failed {
				assert.ErrorIs(t, p.A.EP.Err(), ucs.ErrCanceled)
			} else {
				require.NoError(t, p.A.EP.Err())
			}
			fill := testenv.Pattern(tlsets.MemLen, 7)
			copy(buf, fill)
			freeze(false)
			idle(p)
			testenv.RequireBytes(t, fill, buf)
			if !failed {
				testenv.RequireZero(t, p.B.Mem.Bytes()[1:], "a put that was given up, with what its buffer had later")
			}
			require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
		})
	}
}

// TestTransferList_Waits: the blocking calls move all data.
func TestTransferList_Waits(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Connect().Warm()
	data, got := testenv.Pattern(tlsets.MemLen, 1), make([]byte, tlsets.MemLen)
	lens := []int{8, 3000, 20_000}
	require.NoError(t, p.A.EP.PutListWait(t.Context(), transfersOf(p, data, 0, lens...), nil))
	require.NoError(t, p.A.EP.FlushWait(t.Context()))
	require.NoError(t, p.A.EP.GetListWait(t.Context(), transfersOf(p, got, 0, lens...), nil))
	testenv.RequireBytes(t, wantPieces(data, 0, lens...), got)
	require.ErrorIs(t, p.A.EP.PutListWait(t.Context(), nil, nil), ucs.ErrInvalidParam)
	require.ErrorIs(t, p.A.EP.GetListWait(t.Context(), nil, nil), ucs.ErrInvalidParam)
}

// TestTransferList_Closed: CloseForce fails a list in progress once, with the status of other operations.
func TestTransferList_Closed(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for steps := range 4 {
			r, err := p.A.EP.GetList(transfersOf(p, make([]byte, tlsets.MemLen), 0, 8, 3000, 20_000), nil)
			require.NoError(t, err)
			for range steps {
				p.Step()
			}
			done := r.Done()
			require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseForce)))
			if err := p.Finish(r, nil); err != nil {
				require.False(t, done)
				require.ErrorIs(t, err, ucs.ErrCanceled)
			}
			p.Connect()
		}
	})
}

// TestTransferList_LaneReplaced: if the lane breaks, transfers that were not posted move to the next one. The request
// has the error of a posted one, and the EP still works.
func TestTransferList_LaneReplaced(t *testing.T) {
	p := rails(t)
	x := p.A.EP.Lane(wireup.RMA).EP.(*faketp.EP)
	x.Iface.Frozen = true
	const each = 300
	n, depth := 12, faketp.LikeRC().Depth
	lens := make([]int, n)
	for i := range lens {
		lens[i] = each
	}
	copy(p.A.Mem.Bytes(), testenv.Pattern(tlsets.MemLen, 1))
	clear(p.B.Mem.Bytes())
	r, err := p.A.EP.PutList(transfersOf(p, p.A.Mem.Bytes(), 0, lens...), &ucp.OpParams{Mem: p.A.Mem})
	require.NoError(t, err)
	x.Fail(ucs.StatusTimedOut)
	x.Iface.Frozen = false
	require.ErrorIs(t, p.Finish(r, nil), ucs.ErrTimedOut)
	require.ErrorIs(t, p.Flush(), ucs.ErrTimedOut)
	require.NoError(t, p.A.EP.Err())
	testenv.RequireBytes(t, p.A.Mem.Bytes()[depth*each:n*each], p.B.Mem.Bytes()[depth*each:n*each])
	checkMoved(t, p)
}

// TestTransferList_Rails: large transfers of a list are split over several lanes, as single operations are.
func TestTransferList_Rails(t *testing.T) {
	overRails(t, railConfig(), func(t *testing.T, p *ucppair.Pair) {
		data, got := testenv.Pattern(tlsets.MemLen, 1), make([]byte, tlsets.MemLen)
		lens := []int{8, 40_001, 3000}
		require.NoError(t, p.Finish(p.A.EP.PutList(transfersOf(p, data, 0, lens...), nil)))
		require.NoError(t, p.Flush())
		require.NoError(t, p.Finish(p.A.EP.GetList(transfersOf(p, got, 0, lens...), nil)))
		testenv.RequireBytes(t, wantPieces(data, 0, lens...), got)
	})
}

// TestTransferList_Spans: a list is measured as one operation.
func TestTransferList_Spans(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like rc+ud", faketp.LikeRC(), faketp.LikeUD()), ucp.Config{LatencyStats: true}).Connect().Warm()
	require.NoError(t, p.Finish(p.A.EP.PutList(transfersOf(p, make([]byte, tlsets.MemLen), 0, 8, 8, 3000), nil)))
	puts := measured(p.A.W)
	assert.Equal(t, 1, puts["put_list"])
}

// TestAllocs_TransferList: a list allocates nothing after warm-up.
func TestAllocs_TransferList(t *testing.T) {
	self := tlsets.Real("self", "self")
	self.Oneself = true
	for _, set := range []tlsets.Set{self, tlsets.Real("sm", "sm"), tlsets.Real("ib", `\rc`, `\ud`)} {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{}).Connect().Warm()
			list, params := transfersOf(p, p.A.Mem.Bytes(), 0, 8, 8, 3000, 20_000), &ucp.OpParams{Mem: p.A.Mem}
			do := func() {
				p.FinishAlone(p.A.EP.PutList(list, nil))
				p.FinishAlone(p.A.EP.GetList(list, nil))
				p.FinishAlone(p.A.EP.PutList(list, params))
				p.FinishAlone(p.A.EP.GetList(list, params))
				p.FinishAlone(p.A.EP.Flush())
			}
			for range 300 {
				do()
			}
			testenv.NoAllocs(t, "lists", do)
		})
	}
}
