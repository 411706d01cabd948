package ucp

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
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// transfersOf returns a list that moves pieces of buf to or from the same offsets of the peer's memory. lens are the
// lengths of the pieces, between which gap bytes stay as they are.
func (p *pair) transfersOf(buf []byte, gap int, lens ...int) (list []Transfer) {
	off := 0
	for _, n := range lens {
		list = append(list, Transfer{buf[off : off+n : off+n], p.a.key.Addr() + uint64(off), p.a.key})
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
	overEvery(t, func(t *testing.T, p *pair) {
		p.connect()
		for i, registered := range []bool{false, true} {
			local, params := make([]byte, memLen), (*OpParams)(nil)
			if registered {
				local, params = p.a.mem.Bytes(), &OpParams{Mem: p.a.mem}
			}
			there := p.b.mem.Bytes()
			clear(there)
			copy(local, pattern(memLen, i))
			list := p.transfersOf(local, gap, lens...)
			require.NoError(t, p.finish(p.a.ep.PutList(list, params)))
			require.NoError(t, p.flush())
			requireBytes(t, wantPieces(pattern(memLen, i), gap, lens...), there)

			copy(there, pattern(memLen, i+2))
			clear(local)
			require.NoError(t, p.finish(p.a.ep.GetList(list, params)))
			requireBytes(t, wantPieces(pattern(memLen, i+2), gap, lens...), local)
		}
	})
}

// TestTransferList_Longest: the longest list has more transfers than fit into any queue. A flush and a fence cover all
// of them.
func TestTransferList_Longest(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		const each = memLen / MaxTransfers
		lens := make([]int, MaxTransfers)
		for i := range lens {
			lens[i] = each
		}
		data, got := pattern(memLen, 1), make([]byte, memLen)
		put, err := p.a.ep.PutList(p.transfersOf(data, 0, lens...), nil)
		require.NoError(t, err)
		require.NoError(t, p.a.ep.Fence())
		get, err := p.a.ep.GetList(p.transfersOf(got, 0, lens...), nil)
		require.NoError(t, err)
		require.NoError(t, p.flush())
		require.True(t, put.Done())
		require.True(t, get.Done())
		require.NoError(t, p.finish(put, nil))
		require.NoError(t, p.finish(get, nil))
		requireBytes(t, data, p.b.mem.Bytes())
		requireBytes(t, data, got)
	})
}

// TestTransferList_Keys: the transfers of a list may have keys of different memory.
func TestTransferList_Keys(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		mem, err := p.b.ctx.MemAlloc(5000)
		require.NoError(t, err)
		defer func() { assert.NoError(t, mem.Close()) }()
		key, err := p.a.ep.Unpack(mem.Pack())
		require.NoError(t, err)
		defer key.Close()
		list := []Transfer{{pattern(5000, 1), key.Addr(), key}, {pattern(8, 2), p.a.key.Addr(), p.a.key}}
		require.NoError(t, p.finish(p.a.ep.PutList(list, nil)))
		require.NoError(t, p.flush())
		requireBytes(t, pattern(5000, 1), mem.Bytes())
		requireBytes(t, pattern(8, 2), p.b.mem.Bytes()[:8])
	})
}

// TestTransferList_Rejected: a list with an invalid transfer has no effect, and the error names the transfer.
func TestTransferList_Rejected(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.both().warm()
		clear(p.b.mem.Bytes())
		addr, key, buf := p.a.key.Addr(), p.a.key, pattern(9000, 1)
		good := []Transfer{{buf[:8], addr, key}, {buf[:3000], addr, key}, {buf, addr, key}}
		for _, tc := range []struct {
			name   string
			bad    Transfer
			params *OpParams
			want   error
		}{
			{"no key", Transfer{buf[:8], addr, nil}, nil, ucs.ErrInvalidRKey},
			{"the key of another EP", Transfer{buf[:8], addr, p.b.key}, nil, ucs.ErrInvalidRKey},
			{"past the end", Transfer{buf[:8], addr + memLen - 7, key}, nil, ucs.ErrRemoteAccess},
			{"before the start", Transfer{buf[:3000], addr - 1, key}, nil, ucs.ErrRemoteAccess},
			{"too long", Transfer{make([]byte, memLen+1), addr, key}, nil, ucs.ErrRemoteAccess},
			{"memory that does not cover the buffer", Transfer{buf, addr, key}, &OpParams{Mem: p.a.mem}, ucs.ErrInvalidParam},
		} {
			list, index := append(good[:len(good):len(good)], tc.bad), len(good)
			if tc.params != nil {
				list, index = []Transfer{tc.bad}, 0
			}
			for _, do := range []func([]Transfer, *OpParams) (*Request, error){p.a.ep.PutList, p.a.ep.GetList} {
				r, err := do(list, tc.params)
				require.ErrorIs(t, err, tc.want, tc.name)
				requireOneLine(t, err, fmt.Sprintf("transfer %d of a list: ", index))
				require.Nil(t, r)
			}
		}
		for _, do := range []func([]Transfer, *OpParams) (*Request, error){p.a.ep.PutList, p.a.ep.GetList} {
			_, err := do(nil, nil)
			require.ErrorIs(t, err, ucs.ErrInvalidParam)
			assert.ErrorContains(t, err, "empty")
			_, err = do(make([]Transfer, MaxTransfers+1), nil)
			require.ErrorIs(t, err, ucs.ErrTooLong)
			assert.ErrorContains(t, err, "1025 transfers, 1024 fit")
		}
		require.NoError(t, p.flush())
		requireBytes(t, pattern(9000, 1), buf)
		requireZero(t, p.b.mem.Bytes(), "a list that was rejected")
		require.NoError(t, p.a.ep.Err())
		require.NoError(t, p.finish(p.a.ep.PutList(good, nil)))
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		_, err := p.a.ep.PutList(good, nil)
		require.ErrorIs(t, err, ucs.ErrClosed)
	})
}

// TestTransferList_FailsAtTheTarget: the request has the error of the transfer that the target rejects.
func TestTransferList_FailsAtTheTarget(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect().warm()
		mem, err := p.b.ctx.MemAlloc(4096)
		require.NoError(t, err)
		defer func() { assert.NoError(t, mem.Close()) }()
		packed := mem.Pack()
		binary.LittleEndian.PutUint64(packed[20:], 1<<20) // the key claims more than there is
		key, err := p.a.ep.Unpack(packed)
		require.NoError(t, err)
		defer key.Close()
		list := []Transfer{{make([]byte, 9000), p.a.key.Addr(), p.a.key}, {make([]byte, 3000), key.Addr() + 8000, key}}
		err = p.finish(p.a.ep.GetList(list, nil))
		require.Error(t, err)
		assert.ErrorContains(t, err, "get")
		requireZero(t, list[1].Buf, "read from elsewhere")
	})
}

// TestTransferList_OnDone: OnDone is called once for a list that has returned a request.
func TestTransferList_OnDone(t *testing.T) {
	p := newPair(t, faketp.Set("like rc+ud", faketp.LikeRC(), faketp.LikeUD()), Config{}).connect().warm()
	calls := 0
	params := &OpParams{OnDone: func(err error) {
		assert.NoError(t, err)
		calls++
	}}
	r, err := p.a.ep.GetList(p.transfersOf(make([]byte, memLen), 0, 8, 5000, 9000), params)
	require.NoError(t, err)
	require.NotNil(t, r)
	r.Release()
	require.NoError(t, p.flush())
	p.idle()
	assert.Equal(t, 1, calls)
	r, err = p.a.ep.PutList(p.transfersOf(make([]byte, memLen), 0, 8, 8), params)
	require.NoError(t, err)
	require.Nil(t, r, "each put is one short call")
	p.idle()
	assert.Equal(t, 1, calls)
}

// TestTransferList_Cancel: a list of which nothing was posted can be canceled; after the first post it cannot.
func TestTransferList_Cancel(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect() // there is no lane yet, so all of them wait
		list := p.transfersOf(pattern(memLen, 1), 0, 8, 3000, 20_000)
		for _, do := range []func([]Transfer, *OpParams) (*Request, error){p.a.ep.PutList, p.a.ep.GetList} {
			r, err := do(list, nil)
			require.NoError(t, err)
			require.True(t, r.Cancel())
			require.ErrorIs(t, p.finish(r, nil), ucs.ErrCanceled)
		}
		p.warm()
		requireZero(t, p.b.mem.Bytes()[1:], "a canceled put")
	})
	p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect().warm()
	for _, i := range f.Ifaces {
		i.Frozen = true
	}
	begun, err := p.a.ep.GetList(p.transfersOf(make([]byte, memLen), 0, 8, 3000, 20_000), nil)
	require.NoError(t, err)
	assert.False(t, begun.Cancel())
	for range 2 * faketp.LikeRC().Depth { // fill the queue
		r, err := p.a.ep.Get(make([]byte, 100), p.a.key.Addr(), p.a.key, nil)
		require.NoError(t, err)
		r.Release()
	}
	queued, err := p.a.ep.GetList(p.transfersOf(make([]byte, memLen), 0, 8, 3000), nil)
	require.NoError(t, err)
	assert.True(t, queued.Cancel())
	require.ErrorIs(t, queued.Wait(t.Context()), ucs.ErrCanceled)
	for _, i := range f.Ifaces {
		i.Frozen = false
	}
	require.NoError(t, p.finish(begun, nil))
	require.NoError(t, p.flush())
}

// TestTransferList_CancelBegun: a list cannot be canceled if a transfer is complete, although no other was posted.
func TestTransferList_CancelBegun(t *testing.T) {
	p := newPair(t, faketp.Set("like rc+ud", faketp.LikeRC(), faketp.LikeUD()), Config{}).connect()
	r, err := p.a.ep.GetList(p.transfersOf(make([]byte, memLen), 0, 8, 8), nil)
	require.NoError(t, err)
	recordOf[transferRecord](r).n++ // as if one more had completed
	require.False(t, r.Cancel())
	recordOf[transferRecord](r).n--
	require.True(t, r.Cancel())
	r.Release()
}

// TestTransferList_GivenUp: when a canceled blocking call returns, no transport uses a buffer of the list, and the rest
// is not posted later.
func TestTransferList_GivenUp(t *testing.T) {
	for _, failed := range []bool{false, true} {
		t.Run(fmt.Sprintf("failed=%v", failed), func(t *testing.T) {
			p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
			p.a.w.bufferWaitLimit = 1
			p.connect().warm()
			freeze := func(frozen bool) {
				for _, i := range f.Ifaces {
					i.Frozen = frozen
				}
			}
			freeze(true)
			buf := make([]byte, memLen)
			var err error
			if failed {
				err = p.a.ep.GetListWait(overCtx(), p.transfersOf(buf, 0, 8, 3000), nil)
			} else { // bcopy puts, and the rest of them
				lens := make([]int, 4*faketp.LikeRC().Depth)
				for i := range lens {
					lens[i] = 100
				}
				err = p.a.ep.PutListWait(overCtx(), p.transfersOf(buf, 0, lens...), nil)
			}
			require.ErrorIs(t, err, context.Canceled)
			if failed {
				assert.ErrorIs(t, p.a.ep.Err(), ucs.ErrCanceled)
			} else {
				require.NoError(t, p.a.ep.Err())
			}
			fill := pattern(memLen, 7)
			copy(buf, fill)
			freeze(false)
			p.idle()
			requireBytes(t, fill, buf)
			if !failed {
				requireZero(t, p.b.mem.Bytes()[1:], "a put that was given up, with what its buffer had later")
			}
			require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		})
	}
}

// TestTransferList_Waits: the blocking calls move all data.
func TestTransferList_Waits(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{}).connect().warm()
	data, got := pattern(memLen, 1), make([]byte, memLen)
	lens := []int{8, 3000, 20_000}
	require.NoError(t, p.a.ep.PutListWait(t.Context(), p.transfersOf(data, 0, lens...), nil))
	require.NoError(t, p.a.ep.FlushWait(t.Context()))
	require.NoError(t, p.a.ep.GetListWait(t.Context(), p.transfersOf(got, 0, lens...), nil))
	requireBytes(t, wantPieces(data, 0, lens...), got)
	require.ErrorIs(t, p.a.ep.PutListWait(t.Context(), nil, nil), ucs.ErrInvalidParam)
	require.ErrorIs(t, p.a.ep.GetListWait(t.Context(), nil, nil), ucs.ErrInvalidParam)
}

// TestTransferList_Closed: CloseForce fails a list in progress once, with the status of other operations.
func TestTransferList_Closed(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		for steps := range 4 {
			r, err := p.a.ep.GetList(p.transfersOf(make([]byte, memLen), 0, 8, 3000, 20_000), nil)
			require.NoError(t, err)
			for range steps {
				p.step()
			}
			done := r.Done()
			require.NoError(t, p.finish(p.a.ep.Close(CloseForce)))
			if err := p.finish(r, nil); err != nil {
				require.False(t, done)
				require.ErrorIs(t, err, ucs.ErrCanceled)
			}
			p.connect()
		}
	})
}

// TestTransferList_LaneReplaced: if the lane breaks, transfers that were not posted move to the next one. The request
// has the error of a posted one, and the EP still works.
func TestTransferList_LaneReplaced(t *testing.T) {
	p := rails(t)
	x := p.a.ep.lane(wireup.RMA).EP.(*faketp.EP)
	x.Iface.Frozen = true
	const each = 300
	n, depth := 12, faketp.LikeRC().Depth
	lens := make([]int, n)
	for i := range lens {
		lens[i] = each
	}
	copy(p.a.mem.Bytes(), pattern(memLen, 1))
	clear(p.b.mem.Bytes())
	r, err := p.a.ep.PutList(p.transfersOf(p.a.mem.Bytes(), 0, lens...), &OpParams{Mem: p.a.mem})
	require.NoError(t, err)
	x.Fail(ucs.StatusTimedOut)
	x.Iface.Frozen = false
	require.ErrorIs(t, p.finish(r, nil), ucs.ErrTimedOut)
	require.ErrorIs(t, p.flush(), ucs.ErrTimedOut)
	require.NoError(t, p.a.ep.Err())
	requireBytes(t, p.a.mem.Bytes()[depth*each:n*each], p.b.mem.Bytes()[depth*each:n*each])
	p.checkMoved(t)
}

// TestTransferList_Rails: large transfers of a list are split over several lanes, as single operations are.
func TestTransferList_Rails(t *testing.T) {
	overRails(t, railConfig(), func(t *testing.T, p *pair) {
		data, got := pattern(memLen, 1), make([]byte, memLen)
		lens := []int{8, 40_001, 3000}
		require.NoError(t, p.finish(p.a.ep.PutList(p.transfersOf(data, 0, lens...), nil)))
		require.NoError(t, p.flush())
		require.NoError(t, p.finish(p.a.ep.GetList(p.transfersOf(got, 0, lens...), nil)))
		requireBytes(t, wantPieces(data, 0, lens...), got)
	})
}

// TestTransferList_Spans: a list is measured as one operation.
func TestTransferList_Spans(t *testing.T) {
	p := newPair(t, faketp.Set("like rc+ud", faketp.LikeRC(), faketp.LikeUD()), Config{LatencyStats: true}).connect().warm()
	require.NoError(t, p.finish(p.a.ep.PutList(p.transfersOf(make([]byte, memLen), 0, 8, 8, 3000), nil)))
	puts := measured(p.a.w)
	assert.Equal(t, 1, puts["put_list"])
}

// TestAllocs_TransferList: a list allocates nothing after warm-up.
func TestAllocs_TransferList(t *testing.T) {
	self := tlsets.Real("self", "self")
	self.Oneself = true
	for _, set := range []tlsets.Set{self, tlsets.Real("sm", "sm"), tlsets.Real("ib", `\rc`, `\ud`)} {
		t.Run(set.Name, func(t *testing.T) {
			p := newPair(t, set, Config{}).connect().warm()
			list, params := p.transfersOf(p.a.mem.Bytes(), 0, 8, 8, 3000, 20_000), &OpParams{Mem: p.a.mem}
			do := func() {
				p.mustEnd(p.a.ep.PutList(list, nil))
				p.mustEnd(p.a.ep.GetList(list, nil))
				p.mustEnd(p.a.ep.PutList(list, params))
				p.mustEnd(p.a.ep.GetList(list, params))
				p.mustEnd(p.a.ep.Flush())
			}
			for range 300 {
				do()
			}
			testenv.NoAllocs(t, "lists", do)
		})
	}
}

// mustEnd waits for an operation with progress of the issuing side only.
func (p *pair) mustEnd(r *Request, err error) {
	for err == nil && r != nil && !r.Done() {
		p.a.w.Progress()
	}
	if r != nil && err == nil {
		err = r.err()
		r.Release()
	}
	if err != nil {
		panic(err)
	}
}
