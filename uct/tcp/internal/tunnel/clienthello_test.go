package tunnel

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// TestPlain_ClientUnderstandsAlert: IsClientHello detects a client of crypto/tls, and the client
// understands the alert.
func TestPlain_ClientUnderstandsAlert(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	require.NoError(t, server.SetDeadline(time.Now().Add(testenv.Watchdog)))
	failed := make(chan error, 1)
	go func() { failed <- tls.Client(client, &tls.Config{ServerName: "worker"}).Handshake() }()
	first := make([]byte, 4<<10) // the client writes until all bytes are read from the pipe
	n, err := server.Read(first)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, 2)
	assert.True(t, IsClientHello(first))
	assert.False(t, IsClientHello([]byte("GXCP")), "our own handshake")
	for rest := int(first[3])<<8 + int(first[4]) + 5 - n; rest > 0; rest -= n {
		n, err = server.Read(first[:min(rest, len(first))])
		require.NoError(t, err)
	}
	_, err = server.Write(NoTLSAlert[:])
	require.NoError(t, err)
	assert.ErrorContains(t, <-failed, "remote error: tls: no application protocol")
}
