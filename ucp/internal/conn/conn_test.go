package conn

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

func TestNames(t *testing.T) {
	var n Names[string]
	n.Init()
	assert.Empty(t, n.NextByPeer(7))
	assert.Equal(t, uint32(0), n.Take(7))
	assert.Equal(t, uint32(1), n.Take(7))
	assert.Equal(t, uint32(0), n.Take(8), "each peer by itself")
	n.Enter(7, 2, "two")
	n.SetPeerID(7, 100, "two")
	assert.Equal(t, "two", n.NextByPeer(7))
	assert.Equal(t, "two", n.At(7, 2))
	assert.Equal(t, "two", n.ByPeerID(7, 100))
	assert.Empty(t, n.ByPeerID(8, 100))
	n.Enter(7, 3, "three")
	numbers, names := n.Len()
	assert.Equal(t, []int{2, 1}, []int{numbers, names})
	n.Forget("three", 7, 3, 0)
	n.Forget("another", 7, 2, 100)
	assert.Equal(t, "two", n.At(7, 2), "it is not removed")
	assert.Equal(t, "two", n.ByPeerID(7, 100))
	n.Forget("two", 7, 2, 100)
	numbered, called := n.Len()
	assert.Zero(t, numbered+called)
}

// TestNames_RemembersSomeThatHaveGone: a peer without connections keeps its numbers, unless many others have
// disconnected since. A peer with a connection keeps them always.
func TestNames_RemembersSomeThatHaveGone(t *testing.T) {
	var n Names[string]
	n.Init()
	visit := func(uuid uint64) uint32 {
		seq := n.Take(uuid)
		n.Hold(uuid)
		n.Drop(uuid)
		return seq
	}
	stays, returns := uint64(1), uint64(2)
	n.Take(stays)
	n.Hold(stays)
	for i := range uint64(10 * maxGone) {
		visit(100 + i)
		if i%(maxGone/2) == 0 {
			assert.Equal(t, uint32(i/(maxGone/2)), visit(returns))
		}
		require.LessOrEqual(t, len(n.next), maxGone+1)
	}
	assert.Equal(t, uint32(1), n.Take(stays))
	assert.Equal(t, uint32(0), n.Take(100), "it is forgotten")
	assert.Equal(t, uint32(1), n.Take(100+10*maxGone-1), "the latest is not")
	for range 3 * maxGone { // several connections of one peer use one place
		visit(returns)
	}
	assert.LessOrEqual(t, len(n.next), maxGone+2)
}

// TestNames_Made: connections that a peer has made are counted separately, and forgotten with the peer.
func TestNames_Made(t *testing.T) {
	var n Names[string]
	n.Init()
	n.Hold(1)
	n.Hold(1)
	assert.Zero(t, n.Made(1))
	n.CountMade(1, 1)
	n.CountMade(1, 1)
	assert.Equal(t, 2, n.Made(1))
	assert.Zero(t, n.Made(2))
	n.CountMade(1, -1)
	n.Drop(1)
	assert.Equal(t, 1, n.Made(1))
	n.CountMade(1, -1)
	n.Drop(1)
	assert.Zero(t, n.Made(1))
	assert.Empty(t, n.next)
}

// TestNames_NothingOfPeersThatCalled: nothing is stored for a peer without numbers.
func TestNames_NothingOfPeersThatCalled(t *testing.T) {
	var n Names[string]
	n.Init()
	n.Hold(1)
	n.Hold(1)
	n.Drop(1)
	n.Drop(1)
	assert.Empty(t, n.next)
	assert.Empty(t, n.gone)
}

func TestInbox_IsBounded(t *testing.T) {
	var b Inbox
	msg := []byte{1}
	for range maxInbox {
		require.True(t, b.Add(msg))
	}
	msg[0] = 2
	assert.False(t, b.Add(msg))
	all := b.Take()
	assert.Len(t, all, maxInbox)
	assert.Equal(t, []byte{1}, all[0], "a copy")
	assert.True(t, b.Add(msg))

	b = Inbox{}
	msg = make([]byte, maxInboxLen/2)
	assert.True(t, b.Add(msg))
	assert.True(t, b.Add(msg))
	assert.False(t, b.Add(msg[:1]))
	b.Take()
	assert.True(t, b.Add(msg))
	assert.True(t, b.Add(msg), "all of it is free again")
	b.Take()
	assert.Empty(t, b.Take())
}

func TestPeers_ForgetsThoseWithoutHolder(t *testing.T) {
	r := wireup.Resource{
		Transport: "sm", AMBcopy: 80, IfaceAddr: []byte{1},
		Caps: uct.CapAMBcopy | uct.CapPending | uct.CapConnectIface,
	}
	local := &wireup.Address{MDs: []wireup.MD{{Component: "sm"}}, Resources: []wireup.Resource{r}}
	remote := *local
	remote.Key = wireup.PublicKey{2}
	packed, err := remote.Pack()
	require.NoError(t, err)
	var peers Peers
	require.NoError(t, peers.Init(local, func(*wireup.Address) selection.Reacher {
		return func(int, int) (bool, string) { return true, "" }
	}))
	p, err := peers.Find(packed)
	require.NoError(t, err)
	assert.True(t, p.Reachable())
	assert.False(t, p.Best[wireup.RMA].OK)
	assert.Equal(t, Choice{OK: true}, p.Best[wireup.AM])
	assert.Equal(t, []Path{{0, 0}}, p.Aux)
	again, err := peers.Find(packed)
	require.NoError(t, err)
	assert.Same(t, p, again)
	assert.True(t, p.Is(packed))
	assert.False(t, p.Is(packed[:len(packed)-1]))
	assert.False(t, p.Held())
	peers.Hold(p)
	peers.Hold(p)
	peers.Unused(p)
	assert.Equal(t, 1, peers.Len())
	peers.Drop(p)
	assert.Equal(t, 1, peers.Len())
	assert.True(t, p.Held())
	peers.Drop(p)
	assert.Zero(t, peers.Len())
	assert.False(t, p.Held())
	other := *local
	other.Resources = []wireup.Resource{r, r}
	peers.SetLocal(&other)
	p, err = peers.Find(packed)
	require.NoError(t, err)
	assert.ElementsMatch(t, []Path{{0, 0}, {1, 0}}, p.Aux, "of the current address")
	peers.Unused(p)
	peers.reach = func(*wireup.Address) selection.Reacher {
		return func(int, int) (bool, string) { return false, "too far" }
	}
	p, err = peers.Find(packed)
	require.NoError(t, err)
	assert.False(t, p.Reachable())
	assert.Empty(t, p.Aux)
	assert.False(t, p.Best[wireup.AM].OK)
	peers.Unused(p)
	_, err = peers.Find(packed[1:])
	assert.ErrorIs(t, err, uct.ErrInvalidAddr)
}
