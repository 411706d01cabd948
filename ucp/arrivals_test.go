package ucp_test

import (
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/window"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The receiver caches the connection and the handler of the latest message. These tests change both.

// TestArrivals_TwoPeers: messages over two connections with two ids, alternating and in bursts, are passed to their
// handlers with their EPs; tagged messages too.
func TestArrivals_TwoPeers(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Connect().Warm()
	other, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	got := map[uint16]*[]received{3: collect(t, p.B.W, 3), 700: collect(t, p.B.W, 700)}
	froms := map[*ucp.EP]*ucp.EP{}
	n := 0
	for i, e := range []*ucp.EP{p.A.EP, other, p.A.EP, p.A.EP, other, other, p.A.EP} {
		for k, id := range []uint16{3, 700, 700, 3} {
			data := testenv.Pattern(1+(i*5+k*11)%50, n)
			list := got[id]
			count := len(*list)
			require.NoError(t, p.Finish(e.SendActive(id, nil, data, nil)))
			p.Until(func() bool { return len(*list) == count+1 })
			x := (*list)[count]
			testenv.RequireBytes(t, data, x.data)
			require.Empty(t, x.header)
			if froms[e] == nil {
				froms[e] = x.from
			}
			require.Same(t, froms[e], x.from)

			var info ucp.TagInfo
			buf := make([]byte, len(data))
			r, err := p.B.W.TagRecv(buf, uint64(n), exact, &info, nil)
			require.NoError(t, err)
			require.NoError(t, p.Finish(e.TagSend(uint64(n), data, nil)))
			require.NoError(t, p.Finish(r, nil))
			testenv.RequireBytes(t, data, buf)
			require.Equal(t, ucp.TagInfo{Tag: uint64(n), Length: len(data), From: froms[e]}, info)
			n++
		}
	}
	require.Len(t, froms, 2)
	require.NotSame(t, froms[p.A.EP], froms[other])
}

// TestArrivals_HandlerRemovesItself: a handler that removes itself is not called again.
func TestArrivals_HandlerRemovesItself(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Connect().Warm()
	w, calls := p.B.W, 0
	w.OnActive(3, func(*ucp.ActiveMessage) {
		if calls++; calls == 3 {
			w.OnActive(3, nil)
		}
	})
	bad := w.BadMessages().Load()
	for range 5 {
		require.NoError(t, p.Finish(p.A.EP.SendActive(3, nil, []byte("x"), nil)))
	}
	p.Until(func() bool { return w.BadMessages().Load() == bad+2 })
	assert.Equal(t, 3, calls)
	assert.Zero(t, p.B.W.Latest().Held)
}

// TestArrivals_Kept: each message that is kept uses credit for its own length.
func TestArrivals_Kept(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Connect().Warm()
	w := p.B.W
	var kept []*ucp.ActiveMessage
	w.OnActive(3, func(m *ucp.ActiveMessage) {
		if len(m.Data)%2 == 0 {
			kept = append(kept, m.Keep())
		}
	})
	want := int64(0)
	for n := range 20 {
		if n%2 == 0 {
			want += window.Charge(n)
		}
		require.NoError(t, p.Finish(p.A.EP.SendActive(3, nil, testenv.Pattern(n, n), nil)))
	}
	p.Until(func() bool { return len(kept) == 10 })
	account := kept[0].MessagesOf()
	assert.Equal(t, want, account.Held)
	assert.Equal(t, account.Size+window.Reserve(account.Size)-account.Held-window.MessageCharge, account.Room)
	for i, m := range kept {
		testenv.RequireBytes(t, testenv.Pattern(2*i, 2*i), m.Data)
		m.Release()
	}
	assert.Zero(t, account.Held)
	assert.Equal(t, account.Size+window.Reserve(account.Size)-window.MessageCharge, account.Room)
}

// TestArrivals_KeptAfterGrant: a handler releases messages, so that its peer gets more credit, and then keeps its
// message. The peer never has more credit than the window.
func TestArrivals_KeptAfterGrant(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Connect().Warm()
	const batch = 32
	data, calls := testenv.Pattern(200, 1), 0
	var kept []*ucp.ActiveMessage
	p.B.W.OnActive(3, func(m *ucp.ActiveMessage) {
		if calls++; calls%batch == 0 {
			for _, k := range kept {
				k.Release()
			}
			kept = kept[:0]
		}
		kept = append(kept, m.Keep())
	})
	for n := 1; n <= 40*batch; n++ {
		require.NoError(t, p.Finish(p.A.EP.SendActive(3, nil, data, nil)))
		p.Until(func() bool { return calls == n })
		in := kept[0].MessagesOf()
		in.UpdateDue()
		require.GreaterOrEqual(t, in.Due, int64(0))
		require.Equal(t, int64(len(kept))*window.Charge(len(data)), in.Held)
		require.LessOrEqual(t, p.A.EP.Messages().Credit+in.Due+in.Held, in.Size)
	}
	for _, k := range kept {
		k.Release()
	}
}
