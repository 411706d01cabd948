package tcp

import (
	"math/rand/v2"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

func TestPortRange_Text(t *testing.T) {
	for _, tc := range []struct {
		text string
		want PortRange
		ok   bool
	}{
		{"0", PortRange{}, true},
		{"7700", PortRange{7700, 7700}, true},
		{"7700-7799", PortRange{7700, 7799}, true},
		{"65535-65535", PortRange{65535, 65535}, true},
		{"7799-7700", PortRange{}, false},
		{"0-7700", PortRange{}, false},
		{"65536", PortRange{}, false},
		{"7700-", PortRange{}, false},
		{"-7700", PortRange{}, false},
		{"http", PortRange{}, false},
		{"", PortRange{}, false},
	} {
		var cfg Config
		err := config.FromEnv([]string{"GUCX_TCP_PORT=" + tc.text}, config.Table{Prefix: "TCP", Doc: "tcp", Config: &cfg})
		if !tc.ok {
			assert.ErrorIs(t, err, uct.ErrInvalidParam, "%q", tc.text)
			continue
		}
		require.NoError(t, err, "%q", tc.text)
		assert.Equal(t, tc.want, cfg.Port)
	}
	assert.Equal(t, "7700", PortRange{First: 7700}.String())
	assert.Equal(t, "7700-7701", PortRange{7700, 7701}.String())
	assert.ErrorIs(t, (&Config{Port: PortRange{2, 1}}).Validate(), uct.ErrInvalidParam)
}

// freePorts returns a port p so that p and p+1 are free now. Both are below the ports that the kernel chooses, so that no other
// test gets one of them meanwhile.
func freePorts(t *testing.T) uint16 {
	t.Helper()
	host := net.IPv4(127, 0, 0, 1)
	for range 100 {
		p := 10_000 + rand.IntN(20_000)
		a, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: host, Port: p})
		if err != nil {
			continue
		}
		b, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: host, Port: p + 1})
		require.NoError(t, a.Close())
		if err == nil {
			require.NoError(t, b.Close())
			return uint16(p)
		}
	}
	t.Skip("no two free ports in a row")
	return 0
}

// deadPort returns a port of which the test has a socket that does not listen, so that no other process can.
func deadPort(t *testing.T) uint16 {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := unix.Getsockname(fd)
	require.NoError(t, err)
	return uint16(at.(*unix.SockaddrInet4).Port)
}

// TestPort_FirstFree: an iface listens on the first free port of the range, and opening it fails if
// there is none. A port is free again after its iface is closed, also if it had connections.
func TestPort_FirstFree(t *testing.T) {
	p := freePorts(t)
	cfg := Config{Port: PortRange{p, p + 1}}
	a, b := newEnd(t, cfg), newEnd(t, cfg)
	assert.Equal(t, p, a.it.addr.port4)
	assert.Equal(t, p+1, b.it.addr.port4)
	_, err := a.md.OpenIface(uct.IfaceParams{Transport: Name, Device: "lo", Config: cfg})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	assert.ErrorContains(t, err, "GUCX_TCP_PORT="+cfg.Port.String()+": no port of 127.0.0.1 is free")

	ep := b.to(a)
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	a.close() // closes the connection first, so that its side is in TIME_WAIT
	until(t, func() bool { return len(b.errs) == 1 }, b)
	again := newEnd(t, Config{Port: PortRange{First: p}})
	assert.Equal(t, p, again.it.addr.port4)
}
