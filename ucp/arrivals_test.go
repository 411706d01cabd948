package ucp

import (
	"encoding/binary"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/window"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/internal/wire"
)

// The receiver caches the connection and the handler of the latest message. These tests change both.

// TestArrivals_TwoPeers: messages over two connections with two ids, alternating and in bursts, are passed to their
// handlers with their EPs; tagged messages too.
func TestArrivals_TwoPeers(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{}).connect().warm()
	other, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
	require.NoError(t, err)
	got := map[uint16]*[]received{3: collect(t, p.b.w, 3), 700: collect(t, p.b.w, 700)}
	froms := map[*EP]*EP{}
	n := 0
	for i, e := range []*EP{p.a.ep, other, p.a.ep, p.a.ep, other, other, p.a.ep} {
		for k, id := range []uint16{3, 700, 700, 3} {
			data := pattern(1+(i*5+k*11)%50, n)
			list := got[id]
			count := len(*list)
			require.NoError(t, p.finish(e.SendActive(id, nil, data, nil)))
			p.until(func() bool { return len(*list) == count+1 })
			x := (*list)[count]
			requireBytes(t, data, x.data)
			require.Empty(t, x.header)
			if froms[e] == nil {
				froms[e] = x.from
			}
			require.Same(t, froms[e], x.from)

			var info TagInfo
			buf := make([]byte, len(data))
			r, err := p.b.w.TagRecv(buf, uint64(n), exact, &info, nil)
			require.NoError(t, err)
			require.NoError(t, p.finish(e.TagSend(uint64(n), data, nil)))
			require.NoError(t, p.finish(r, nil))
			requireBytes(t, data, buf)
			require.Equal(t, TagInfo{Tag: uint64(n), Length: len(data), From: froms[e]}, info)
			n++
		}
	}
	require.Len(t, froms, 2)
	require.NotSame(t, froms[p.a.ep], froms[other])
}

// TestArrivals_HandlerRemovesItself: a handler that removes itself is not called again.
func TestArrivals_HandlerRemovesItself(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{}).connect().warm()
	w, calls := p.b.w, 0
	w.OnActive(3, func(*ActiveMessage) {
		if calls++; calls == 3 {
			w.OnActive(3, nil)
		}
	})
	bad := w.stats.badMessages.Load()
	for range 5 {
		require.NoError(t, p.finish(p.a.ep.SendActive(3, nil, []byte("x"), nil)))
	}
	p.until(func() bool { return w.stats.badMessages.Load() == bad+2 })
	assert.Equal(t, 3, calls)
	assert.Zero(t, p.b.w.messages.latest.Held)
}

// TestArrivals_Kept: each message that is kept uses credit for its own length.
func TestArrivals_Kept(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{}).connect().warm()
	w := p.b.w
	var kept []*ActiveMessage
	w.OnActive(3, func(m *ActiveMessage) {
		if len(m.Data)%2 == 0 {
			kept = append(kept, m.Keep())
		}
	})
	want := int64(0)
	for n := range 20 {
		if n%2 == 0 {
			want += charge(n)
		}
		require.NoError(t, p.finish(p.a.ep.SendActive(3, nil, pattern(n, n), nil)))
	}
	p.until(func() bool { return len(kept) == 10 })
	account := kept[0].msgs
	assert.Equal(t, want, account.Held)
	assert.Equal(t, account.Size+window.Reserve(account.Size)-account.Held-messageCharge, account.Room)
	for i, m := range kept {
		requireBytes(t, pattern(2*i, 2*i), m.Data)
		m.Release()
	}
	assert.Zero(t, account.Held)
	assert.Equal(t, account.Size+window.Reserve(account.Size)-messageCharge, account.Room)
}

// TestArrivals_KeptAfterGrant: a handler releases messages, so that its peer gets more credit, and then keeps its
// message. The peer never has more credit than the window.
func TestArrivals_KeptAfterGrant(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{}).connect().warm()
	const batch = 32
	data, calls := pattern(200, 1), 0
	var kept []*ActiveMessage
	p.b.w.OnActive(3, func(m *ActiveMessage) {
		if calls++; calls%batch == 0 {
			for _, k := range kept {
				k.Release()
			}
			kept = kept[:0]
		}
		kept = append(kept, m.Keep())
	})
	for n := 1; n <= 40*batch; n++ {
		require.NoError(t, p.finish(p.a.ep.SendActive(3, nil, data, nil)))
		p.until(func() bool { return calls == n })
		in := kept[0].msgs
		in.UpdateDue()
		require.GreaterOrEqual(t, in.Due, int64(0))
		require.Equal(t, int64(len(kept))*charge(len(data)), in.Held)
		require.LessOrEqual(t, p.a.ep.msgs.Credit+in.Due+in.Held, in.Size)
	}
	for _, k := range kept {
		k.Release()
	}
}

// TestArrivals_Closed: the cache does not contain a closed connection, and a late message of the connection is dropped.
func TestArrivals_Closed(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{}).connect().warm()
	w, calls := p.b.w, 0
	w.OnActive(3, func(*ActiveMessage) { calls++ })
	for range 2 { // the first one is charged against the first window
		require.NoError(t, p.finish(p.a.ep.SendActive(3, nil, []byte("x"), nil)))
	}
	p.until(func() bool { return calls == 2 })
	from := w.messages.latest
	require.Positive(t, from.Room)
	require.Same(t, from, w.active.short.from)
	require.Same(t, from, w.active.short.msgs)
	word := binary.LittleEndian.AppendUint64(nil, w.active.short.word)
	tagged := append(hostileHead(9), "data"...)
	binary.LittleEndian.PutUint64(tagged[wire.WordLen:], from.self)

	require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	p.until(func() bool { return from.e.state == epClosed })
	assert.Negative(t, from.Room)
	assert.Same(t, unconnected, w.messages.latest)
	assert.Same(t, unconnected, w.active.short.from)
	assert.Same(t, unconnected, w.active.short.msgs)
	assert.Nil(t, w.active.short.From)
	bad := w.stats.badMessages.Load()
	w.active.short.HandleAM(word, nil)
	(*tagArrivals)(w).HandleAM(tagged, nil)
	assert.Equal(t, bad+2, w.stats.badMessages.Load())
	assert.Equal(t, 2, calls)
	assert.Zero(t, w.tag.table.Unexpected())
}
