package compare

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestListensIn(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:3419 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:8235 0100007F:3418 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
torn`
	assert.True(t, listensIn(strings.NewReader(table), 0x3419))
	assert.False(t, listensIn(strings.NewReader(table), 0x3418), "a connected socket, and a remote port")
	assert.False(t, listensIn(strings.NewReader(table), 0x8235), "connected")
	assert.False(t, listensIn(strings.NewReader(table), 0x19), "only a part of the port")
}

func TestAwaitListener(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		l, err := net.Listen(network, ":0")
		if err != nil {
			t.Logf("no %s: %v", network, err)
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		require.NoError(t, awaitListener(t.Context(), port), network)
		require.NoError(t, l.Close())
	}
	port, err := freePort()
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	assert.ErrorIs(t, awaitListener(ctx, port), why)
}
