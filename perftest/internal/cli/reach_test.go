package cli

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/layers/device"
)

// A transport within a host is rejected if the server is on another host (the address is from RFC 5737).
func TestCheckReach(t *testing.T) {
	elsewhere := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: defaultPort}
	for transport, want := range map[string]string{"rc": "shm fabric of the software HCA", "sm": "sm reaches processes of this host only", "tcp": ""} {
		s := settings{transport: transport, fabric: device.Fabrics()[0], iterations: 1, rounds: 1, window: 1, cpus: "off", output: "table", memory: "alloc"}
		j, err := s.readyJob()
		require.NoError(t, err, transport)
		assert.NoError(t, j.checkReach(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}), transport)
		assert.NoError(t, j.checkReach(&net.UnixAddr{}), transport)
		if want == "" {
			assert.NoError(t, j.checkReach(elsewhere))
			continue
		}
		assert.ErrorContains(t, j.checkReach(elsewhere), want)
	}
}

func TestIsLocal(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			assert.True(t, isLocal(&net.TCPAddr{IP: n.IP}), a)
		}
	}
}
