package ucprpc

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestListen_SameConfig: two servers that are made of one configuration publish memory of their own.
func TestListen_SameConfig(t *testing.T) {
	c := newContext(t, "sm")
	mem, err := c.MemAlloc(4096)
	require.NoError(t, err)
	defer mem.Close()
	cfg := testServer()
	first, second := listen(t, c, freshName(), cfg), listen(t, c, freshName(), cfg)
	require.NoError(t, first.Publish("board", mem))
	cl, other := dial(t, c, first.Addr().String(), ClientConfig{}), dial(t, c, second.Addr().String(), ClientConfig{})
	_, err = cl.Open(t.Context(), "board")
	require.NoError(t, err)
	_, err = other.Open(t.Context(), "board")
	require.Equal(t, CodeNoMemory, CodeOf(err))
	for _, cl := range []*Client{cl, other} {
		require.NoError(t, cl.Close())
	}
	for _, s := range []*Server{first, second} {
		require.NoError(t, s.Close())
	}
}

// TestListenOn_Workers: the workers of a server share a socket that is open.
func TestListenOn_Workers(t *testing.T) {
	c := newContext(t, "sm")
	socket, err := net.Listen("unix", freshName())
	require.NoError(t, err)
	cfg := testServer()
	cfg.Workers = 2
	s, err := ListenOn(c, socket, cfg)
	require.NoError(t, err)
	cl := dial(t, c, socket.Addr().String(), ClientConfig{Workers: 4})
	for _, l := range s.loops {
		assert.EqualValues(t, 2, l.connected.Load())
	}
	_, err = cl.Call(t.Context(), methodEcho, nil, nil)
	require.NoError(t, err)
	require.NoError(t, cl.Close())
	require.NoError(t, s.Close())
}
