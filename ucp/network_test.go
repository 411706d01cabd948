package ucp_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/tcp"
)

func init() { roles.Register("refused", refusedRole) }

// netAddr returns an IPv4 address of netDevice. It skips the test if there is none.
func netAddr(t testing.TB) (device, ip string) {
	device = netDevice(t)
	for _, ip := range addrsOf(t, device) {
		if netip.MustParseAddr(ip).Is4() {
			return device, ip
		}
	}
	t.Skip("no IPv4 address besides loopback")
	return "", ""
}

// addrsOf returns the addresses of a device.
func addrsOf(t testing.TB, device string) (list []string) {
	link, err := net.InterfaceByName(device)
	require.NoError(t, err)
	addrs, err := link.Addrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			list = append(list, n.IP.String())
		}
	}
	return list
}

// ownListeners returns the addresses besides loopback at which this process listens over tcp.
func ownListeners(t testing.TB) (addrs []string) {
	own := map[string]bool{}
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range fds {
		name, _ := os.Readlink("/proc/self/fd/" + fd.Name()) // an error means that it is closed
		own[name] = true
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(table)
		require.NoError(t, err)
		for _, line := range strings.Split(string(text), "\n") {
			const local, state, inode, listening = 1, 3, 9, "0A"
			f := strings.Fields(line)
			if len(f) <= inode || f[state] != listening || !own["socket:["+f[inode]+"]"] {
				continue
			}
			if ip := kernelAddr(t, f[local]); !ip.IsLoopback() {
				addrs = append(addrs, ip.String())
			}
		}
	}
	return addrs
}

// kernelAddr parses an address of /proc/net/tcp: words of 4 bytes in host order.
func kernelAddr(t testing.TB, text string) netip.Addr {
	text, _, _ = strings.Cut(text, ":")
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	ip, ok := netip.AddrFromSlice(b)
	require.True(t, ok)
	return ip.Unmap()
}

// devicesOf returns the tcp devices that a worker has open.
func devicesOf(x *ucppair.End) (names []string) {
	for i := range x.W.AddressInfo().Resources {
		if r := &x.W.AddressInfo().Resources[i]; r.Transport == "tcp" {
			names = append(names, r.Device)
		}
	}
	return names
}

// TestNetwork_Listen: at an address of the network both workers open its device, and no other; at a loopback address
// they open none. Existing EPs continue.
func TestNetwork_Listen(t *testing.T) {
	device, ip := netAddr(t)
	p := ucppair.New(t, tlsets.Real("tcp"), ucp.Config{TLS: config.Allow("tcp")}).Connect().Warm()
	loop := listen(t, &p.B, "tcp", ":0", ucp.ListenConfig{})
	_, err := dialTo(p, loop, ucp.DialConfig{})
	require.NoError(t, err)
	require.Empty(t, ownListeners(t))
	assert.Equal(t, []string{"lo"}, devicesOf(&p.A))
	assert.Equal(t, []string{"lo"}, devicesOf(&p.B))

	before := p.B.W.Address()
	l := listen(t, &p.B, "tcp", ip+":0", ucp.ListenConfig{})
	assert.NotEqual(t, before, p.B.W.Address())
	for range 2 {
		_, err := dialTo(p, l, ucp.DialConfig{})
		require.NoError(t, err)
		assert.Equal(t, []string{"lo", device}, devicesOf(&p.A))
		assert.Equal(t, []string{"lo", device}, devicesOf(&p.B))
		require.NoError(t, p.Finish(p.A.EP.Put([]byte("old"), p.A.Key.Addr(), p.A.Key, nil)))
	}
	require.NoError(t, p.Flush())
	assert.Equal(t, "old", string(p.B.Mem.Bytes()[:3]))
	own := addrsOf(t, device)
	for _, at := range ownListeners(t) {
		assert.Contains(t, own, at)
	}
	assert.Contains(t, p.A.W.TransportsText(), "tcp/"+device)
}

// TestNetwork_TwoHosts: a process in another network namespace dials without configuration, and puts.
func TestNetwork_TwoHosts(t *testing.T) {
	for _, address := range []string{"0.0.0.0", ""} {
		cable := testenv.NewCable(t)
		if address == "" {
			address = cable.NearAddr.String()
		}
		p := ucppair.New(t, tlsets.Real("tcp"), ucp.Config{TLS: config.Allow("tcp")})
		l := listen(t, &p.B, "tcp", address+":0", ucp.ListenConfig{Keys: map[string]*ucp.Mem{"all": p.B.Mem}})
		at := netip.AddrPortFrom(cable.NearAddr, uint16(l.Addr().(*net.TCPAddr).Port))
		c := roles.StartIn(t, cable.NS, "dial", "tcp", "tcp", at, "far")
		require.Equal(t, []string{"connected"}, linesOf(p, c, 1))
		assert.Equal(t, "far", string(p.B.Mem.Bytes()[:3]))
		assert.Equal(t, cable.FarAddr, l.peers[0].From.Addr.Addr())
		assert.Contains(t, devicesOf(&p.B), cable.Near)
		checkPeerEnds(p, l, c, 0, "close")
	}
}

// TestNetwork_Excluded: configured devices exclude others, and the error names the setting.
func TestNetwork_Excluded(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  ucp.Config
		tcp  tcp.Config
		text string
	}{
		{"GUCX_NET_DEVICES", ucp.Config{NetDevices: config.Allow("lo")}, tcp.Config{}, "NET_DEVICES=lo excludes "},
		{"GUCX_TCP_DEVICES", ucp.Config{}, tcp.Config{Devices: []string{"lo"}}, "GUCX_TCP_DEVICES names other devices"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cable := testenv.NewCable(t)
			tc.cfg.TLS = config.Allow("tcp")
			p := ucppair.New(t, tcpOf(tc.tcp, tc.tcp), tc.cfg)
			l := listen(t, &p.B, "tcp", cable.NearAddr.String()+":0", ucp.ListenConfig{})
			assert.Equal(t, []string{"lo"}, devicesOf(&p.B))
			c := roles.StartIn(t, cable.NS, "refused", "tcp", l.Addr())
			said := linesOf(p, c, 1)
			require.Len(t, said, 1)
			assert.Contains(t, said[0], tc.text)
			c.End(t)
		})
	}
}

// refusedRole prints the result of Dial. Its arguments are transports and the address.
func refusedRole(c *roles.Side) error {
	ctx, err := ucppair.OpenContext(c.Args[0])
	if err != nil {
		return err
	}
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return err
	}
	_, err = w.Dial(context.Background(), "tcp", c.Args[1], ucp.DialConfig{})
	c.Printf("%v", err)
	return errors.Join(w.Close(), ctx.Close())
}
