package tcp

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// write makes a file and its directories.
func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestLinkSpeed(t *testing.T) {
	sys := t.TempDir()
	for name, tc := range map[string]struct {
		text string
		want int
	}{
		"100g": {"100000\n", 100_000}, "unknown": {"-1\n", 0}, "zero": {"0", 0},
		"words": {"fast", 0}, "uint32": {"4294967295", 0},
	} {
		write(t, filepath.Join(sys, name, "speed"), tc.text)
		assert.Equal(t, tc.want, linkSpeed(sys, name), name)
	}
	assert.Zero(t, linkSpeed(sys, "missing"))
	assert.InDelta(t, 11.75e9, (&device{mbits: 100_000}).costs()[uct.PutZcopy].Bandwidth, 1e6)
	assert.InDelta(t, 1.175e9, (&device{}).costs()[uct.AMBcopy].Bandwidth, 1e6)
}

func TestInternalBridge(t *testing.T) {
	sys := t.TempDir()
	write(t, filepath.Join(sys, "eth0", "device", "vendor"), "")
	write(t, filepath.Join(sys, "veth1", "speed"), "")
	write(t, filepath.Join(sys, "docker0", "bridge", "stp"), "")
	write(t, filepath.Join(sys, "docker0", "brif", "veth1", "state"), "")
	write(t, filepath.Join(sys, "empty0", "bridge", "stp"), "")
	write(t, filepath.Join(sys, "br0", "bridge", "stp"), "")
	write(t, filepath.Join(sys, "br0", "brif", "eth0", "state"), "")
	for name, want := range map[string]bool{"eth0": false, "docker0": true, "empty0": true, "br0": false} {
		assert.Equal(t, want, internalBridge(sys, name), name)
	}
}

func TestDescribe(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	require.NoError(t, err)
	d, ok := describe(lo, sysNet)
	require.True(t, ok)
	assert.True(t, d.loopback)
	assert.True(t, d.v4.IsLoopback())
	down := *lo
	down.Flags &^= net.FlagUp
	_, ok = describe(&down, sysNet)
	assert.False(t, ok, "down")

	var e device
	for _, cidr := range []string{"fe80::1/64", "192.0.2.2/24", "192.0.2.3/24", "fd00::2/64"} {
		ip, n, err := net.ParseCIDR(cidr)
		require.NoError(t, err)
		e.addAddr(&net.IPNet{IP: ip, Mask: n.Mask})
	}
	assert.Equal(t, netip.MustParseAddr("192.0.2.2"), e.v4)
	assert.Equal(t, netip.MustParseAddr("fd00::2"), e.v6)
}

func TestResources(t *testing.T) {
	for _, tc := range []struct {
		name    string
		devices []string
		lo      bool
	}{{"default", nil, true}, {"all", []string{allDevices}, true}} {
		t.Run(tc.name, func(t *testing.T) {
			md, err := New(Config{Devices: tc.devices}).OpenMD(Name)
			require.NoError(t, err)
			list, err := md.Resources()
			require.NoError(t, err)
			found := false
			for _, r := range list {
				assert.Equal(t, Name, r.Transport)
				assert.Equal(t, uct.DeviceNet, r.Kind)
				found = found || r.Device == "lo"
				assert.True(t, tc.devices != nil || r.Device == "lo", "only loopback unless configured")
			}
			assert.Equal(t, tc.lo, found)
			require.NoError(t, md.Close())
		})
	}
}

// TestResourcesAt: without configured devices, ResourcesAt returns the device of an address, and
// all devices for an unspecified address, but never loopback. With configured devices there is no
// NetOpener.
func TestResourcesAt(t *testing.T) {
	cable := newCable(t)
	md, err := New(Config{}).OpenMD(Name)
	require.NoError(t, err)
	opener := md.Ext().Net
	require.NotNil(t, opener)
	near := uct.Resource{Transport: Name, Device: cable.Near, Kind: uct.DeviceNet}
	for _, ip := range []netip.Addr{cable.NearAddr, netip.AddrFrom16(cable.NearAddr.As16())} {
		list, err := opener.ResourcesAt(ip)
		require.NoError(t, err)
		assert.Equal(t, []uct.Resource{near}, list)
	}
	for _, ip := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		list, err := opener.ResourcesAt(ip)
		require.NoError(t, err)
		assert.Contains(t, list, near)
		for _, r := range list {
			assert.NotEqual(t, "lo", r.Device)
		}
	}
	for _, ip := range []netip.Addr{defaultV4, defaultV6, cable.FarAddr, {}} {
		list, err := opener.ResourcesAt(ip)
		require.NoError(t, err)
		assert.Empty(t, list, ip)
	}
	require.NoError(t, md.Close())
	md, err = New(Config{Devices: []string{"lo"}}).OpenMD(Name)
	require.NoError(t, err)
	assert.Nil(t, md.Ext().Net)
	require.NoError(t, md.Close())
}

// TestResources_NamesNearestDevice: the error for an unknown device suggests the device with the
// nearest name.
func TestResources_NamesNearestDevice(t *testing.T) {
	for _, devices := range [][]string{{"lp"}, {"lo", "lp"}, {allDevices, "lp"}} {
		md, err := New(Config{Devices: devices}).OpenMD(Name)
		require.NoError(t, err)
		list, err := md.Resources()
		assert.Empty(t, list)
		require.ErrorIs(t, err, uct.ErrInvalidParam)
		assert.ErrorContains(t, err, `GUCX_TCP_DEVICES: invalid parameter: device "lp"`)
		assert.ErrorContains(t, err, `the nearest device is "lo"`)
		require.NoError(t, md.Close())
	}
}

func TestWhyUnusable(t *testing.T) {
	local := []net.Addr{&net.IPNet{IP: net.ParseIP("fe80::1"), Mask: net.CIDRMask(64, 128)}}
	const running = net.FlagUp | net.FlagRunning
	assert.Equal(t, "is down", whyUnusable(0, local))
	assert.Equal(t, "is up, but has no link", whyUnusable(net.FlagUp, local))
	assert.Equal(t, "has no address", whyUnusable(running, nil))
	assert.Contains(t, whyUnusable(running, local), "only link-local addresses")
}

func TestReachable(t *testing.T) {
	e := newEnd(t, Config{})
	device, iface := e.it.DeviceAddr(nil), e.it.IfaceAddr(nil)
	foreign := deviceAddr{loopback: true, host: hostID() + 1, v4: netip.MustParseAddr("127.0.0.1")}
	remote := deviceAddr{host: hostID(), v4: netip.MustParseAddr("198.51.100.1")}
	small := e.it.addr
	small.seg = 512
	for _, tc := range []struct {
		name          string
		device, iface []byte
		why           string
	}{
		{"itself", device, iface, ""},
		{"device only", device, nil, ""},
		{"another host's loopback", foreign.append(nil), iface, "of two hosts or network namespaces; GUCX_TCP_DEVICES names other devices, on both"},
		{"not loopback", remote.append(nil), iface, "this side uses loopback, and the peer a network device; GUCX_TCP_DEVICES names other devices"},
		{"other segments", device, small.append(nil), "SEG_SIZE"},
		{"no device address", device[1:], iface, "address not valid"},
		{"no iface address", device, iface[1:], "address not valid"},
		{"nothing", nil, nil, "address not valid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ok, why := e.it.Reachable(tc.device, tc.iface)
			assert.Equal(t, tc.why == "", ok)
			assert.Contains(t, why, tc.why)
		})
	}
}

// TestPathTo_RequiresRouteByDevice: a device has no path to a peer if the route uses another
// device.
func TestPathTo_RequiresRouteByDevice(t *testing.T) {
	d := device{name: "eth9", v4: netip.MustParseAddr("203.0.113.7")}
	_, err := d.pathTo(&deviceAddr{v4: netip.MustParseAddr("127.0.0.1")}, &ifaceAddr{port4: 1})
	assert.ErrorContains(t, err, "not on eth9")
	_, err = d.pathTo(&deviceAddr{v6: netip.IPv6Loopback()}, &ifaceAddr{port6: 1})
	assert.ErrorContains(t, err, "no address family")

	d.all = []netip.Addr{d.v4, defaultV4}
	p, err := d.pathTo(&deviceAddr{v4: defaultV4}, &ifaceAddr{port4: 1})
	assert.NoError(t, err, "a further address of the device")
	assert.Equal(t, path{local: defaultV4, remote: netip.AddrPortFrom(defaultV4, 1)}, p)
}

// TestPathTo_UsesAllAddresses: a device has a path to the networks of all its addresses, not only
// of the first one.
func TestPathTo_UsesAllAddresses(t *testing.T) {
	cable := newCable(t)
	dev, iface := cable.startFar(t)
	first := testenv.FarFromCables()
	near := cable.NearAddr.String() + "/30"
	require.NoError(t, testenv.IP(t, "addr", "del", near, "dev", cable.Near))
	require.NoError(t, testenv.IP(t, "addr", "add", first.String()+"/32", "dev", cable.Near))
	require.NoError(t, testenv.IP(t, "addr", "add", near, "dev", cable.Near))
	a := newEndOn(t, cable.Near, Config{})
	require.Equal(t, first, a.it.dev.v4)
	ep, err := a.it.NewEP(uct.EPParams{DeviceAddr: dev, IfaceAddr: iface})
	require.NoError(t, err)
	a.eps = append(a.eps, ep.(*endpoint))
	send(t, a.eps[0], 1, 64, a)
	flush(t, a.eps[0], a)
}

// TestSocket_ClosedAfterError: a socket that cannot be bound or connected is closed.
func TestSocket_ClosedAfterError(t *testing.T) {
	cfg, err := Config{}.withDefaults()
	require.NoError(t, err)
	elsewhere := netip.MustParseAddr("192.0.2.77") // for documentation: not on this host
	before := testenv.OpenFiles(t)
	_, _, err = listen(elsewhere, &cfg)
	assert.ErrorIs(t, err, unix.EADDRNOTAVAIL)
	assert.NotErrorIs(t, err, unix.EBADF)
	_, err = dial(path{local: elsewhere, remote: netip.AddrPortFrom(defaultV4, 9)}, &cfg)
	assert.ErrorIs(t, err, unix.EADDRNOTAVAIL)
	_, err = dial(path{local: defaultV4, remote: netip.AddrPortFrom(elsewhere, 9)}, &cfg)
	assert.Error(t, err)
	assert.NotErrorIs(t, err, unix.EBADF)
	assert.LessOrEqual(t, testenv.OpenFiles(t), before)
}

// TestOpen_SkipsUnavailableAddress: if an address is not available yet, such as an IPv6 address
// during duplicate address detection, the iface listens on the other family.
func TestOpen_SkipsUnavailableAddress(t *testing.T) {
	unready := netip.MustParseAddr("2001:db8::77") // for documentation: not on this host
	lo, err := findDevice("lo")
	require.NoError(t, err)
	lo.v6 = unready
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	moveTo(t, a, lo)
	assert.Zero(t, a.it.addr.port6)
	for _, ep := range []*endpoint{a.to(b), b.to(a)} {
		send(t, ep, 1, 64, a, b)
		flush(t, ep, a, b)
	}
	cfg, err := Config{}.withDefaults()
	require.NoError(t, err)
	_, err = openIface(a.md, device{name: "none", v6: unready}, cfg, uct.IfaceParams{})
	assert.ErrorIs(t, err, unix.EADDRNOTAVAIL)
}

// TestNetworkDevice uses every device of the machine but loopback.
func TestNetworkDevice(t *testing.T) {
	devs, err := listDevices()
	require.NoError(t, err)
	tried := 0
	for _, d := range devs {
		if d.loopback {
			continue
		}
		tried++
		for _, only := range []device{{v4: d.v4}, {v6: d.v6}} {
			if !only.v4.IsValid() && !only.v6.IsValid() {
				continue
			}
			d.v4, d.v6 = only.v4, only.v6
			a, b := newEnd(t, Config{}), newEnd(t, Config{})
			moveTo(t, a, d)
			moveTo(t, b, d)
			ep := a.to(b)
			send(t, ep, 1, 64, a, b)
			flush(t, ep, a, b)
			assert.Len(t, b.got, 1)
			assert.True(t, a.it.Attr().Caps.Has(uct.CapInterNode))
		}
	}
	if tried == 0 {
		t.Skip("no network device besides loopback")
	}
}

// moveTo opens the iface of e again, on another device.
func moveTo(t *testing.T, e *end, d device) {
	t.Helper()
	require.NoError(t, e.it.Close())
	cfg, err := Config{}.withDefaults()
	require.NoError(t, err)
	e.it, err = openIface(e.md, d, cfg, uct.IfaceParams{})
	require.NoError(t, err)
	require.NoError(t, e.it.SetAMHandler(msgID, uct.AMHandlerFunc(func(m []byte, _ uct.Desc) bool {
		e.got = append(e.got, append([]byte(nil), m...))
		return false
	})))
}

func TestConfig_Ranges(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		ok   bool
	}{
		{"default", Config{}, true},
		{"segment too small", Config{SegSize: 1}, false},
		{"segment of 16 MiB", Config{SegSize: 16 << 20}, true},
		{"segment too long", Config{SegSize: 17 << 20}, false},
		{"no operations", Config{TxOps: -1}, false},
		{"too many handshakes", Config{MaxHandshakes: 1 << 20}, false},
		{"time too long", Config{Linger: 2 * time.Hour}, false},
		{"time too short", Config{ConnTimeout: 1}, false},
		{"endless buffer", Config{TxBuf: config.MemInf}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.cfg.Validate()
			assert.Equal(t, tc.ok, err == nil, "%v", err)
			if !tc.ok {
				assert.ErrorIs(t, err, uct.ErrInvalidParam)
			}
		})
	}
	got, err := Config{SegSize: 1 << 20, TxBuf: 1}.withDefaults()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, got.TxBuf, got.SegSize, "a segment must fit")
}

func TestConfig_Environment(t *testing.T) {
	var cfg Config
	require.NoError(t, config.FromEnv([]string{"GUCX_TCP_DEVICES=eth0,lo", "GUCX_TCP_SEG_SIZE=8k", "GUCX_TCP_CONGESTION=reno"},
		config.Table{Prefix: "TCP", Doc: "tcp", Config: &cfg}))
	assert.Equal(t, []string{"eth0", "lo"}, cfg.Devices)
	assert.True(t, cfg.deviceListed("eth0"))
	assert.False(t, cfg.deviceListed("docker0"))
	assert.EqualValues(t, 8<<10, cfg.SegSize)
}

// TestSocketOptions: the sockets of both sides have the configured options.
func TestSocketOptions(t *testing.T) {
	cfg := Config{Congestion: "reno", KeepIdle: 7 * time.Second, UserTimeout: 9 * time.Second}
	a, b := newEnd(t, cfg), newEnd(t, cfg)
	ep := a.to(b)
	send(t, ep, 1, 8, a, b)
	flush(t, ep, a, b)
	for _, c := range []*conn{ep.conn, b.it.table[a.it.addr.key]} {
		for name, want := range map[int]int{unix.TCP_NODELAY: 1, unix.TCP_KEEPIDLE: 7, unix.TCP_KEEPCNT: 1} {
			got, err := unix.GetsockoptInt(c.fd, unix.IPPROTO_TCP, name)
			require.NoError(t, err)
			assert.Equal(t, want, got, "option %d", name)
		}
		algorithm, err := unix.GetsockoptString(c.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		require.NoError(t, err)
		assert.Equal(t, "reno", algorithm)
	}
	_, err := a.md.OpenIface(uct.IfaceParams{Transport: Name, Device: "lo", Config: Config{Congestion: "nosuch"}})
	assert.ErrorContains(t, err, "nosuch")
}
