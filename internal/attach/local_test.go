package attach

import (
	"context"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

// localStations makes openStation open ports whose links within this process have no socket.
var localStations bool

// localStation is newStation with Config.Local.
func localStation(t testing.TB, edit func(*Config)) *station {
	t.Helper()
	return newStation(t, func(c *Config) {
		c.Local = true
		if edit != nil {
			edit(c)
		}
	})
}

// linkMappings counts the mappings of link segments without a descriptor.
func linkMappings(t testing.TB) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(maps), "gucx-links")
}

// TestLocal_SameContract: a link without a socket behaves as one with a socket.
func TestLocal_SameContract(t *testing.T) {
	localStations = true
	defer func() { localStations = false }()
	for name, test := range map[string]func(*testing.T){
		"SharesMemoryBothWays":          TestDial_SharesMemoryBothWays,
		"ExactLimits":                   TestDial_ExactLimits,
		"Self":                          TestDial_Self,
		"NoPort":                        TestDial_NoPort,
		"NotifiesPeer":                  TestClose_NotifiesPeer,
		"CallsOnLinkFirst":              TestDial_CallsOnLinkFirst,
		"Refused":                       TestDial_Refused,
		"TooManyLinks":                  TestDial_TooManyLinks,
		"GIDInUse":                      TestListen_GIDInUse,
		"ClosesLinksAndRefusesDials":    TestPortClose_ClosesLinksAndRefusesDials,
		"CrossAndClose":                 TestDial_CrossAndClose,
		"LongestControl":                TestListen_LongestControl,
		"OwnerClosesAtOnce":             TestDial_OwnerClosesAtOnce,
		"GuardsRemainUntilPeerCloses":   TestHangUp_GuardsRemainUntilPeerCloses,
		"BeforeWelcome":                 TestHangUp_BeforeWelcome,
		"CountsUntilClosed":             TestHangUp_CountsUntilClosed,
		"WhileThePortCloses":            TestHangUp_WhileThePortCloses,
		"CloseWhileALinkIsAccepted":     TestClose_WhileALinkIsAccepted,
		"HangUpBeforeThePortHasTheLink": TestHangUp_BeforeThePortHasTheLink,
		"PeerStays":                     TestPeerStays,
	} {
		t.Run(name, test)
	}
	testenv.ProgressWithin(t, watchdog, func() bool { return linkMappings(t) == 0 })
}

// TestLocal_FewMappings: ports of a process that all dial each other have one mapping for many links, and one of each table and
// arena, if they share a Mapper. They have no sockets but those that listen, and no goroutines for links.
func TestLocal_FewMappings(t *testing.T) {
	const ports = 24
	before := linkMappings(t)
	var mapper memfd.Mapper
	var all []*station
	for range ports {
		all = append(all, localStation(t, func(c *Config) { c.Mapper, c.OnLink = &mapper, func(*Inbound) error { return nil } }))
	}
	listen, goroutines := sockets(t), runtime.NumGoroutine()
	total := memfdMappings(t)
	var outs []*Outbound
	for _, from := range all {
		for _, to := range all {
			outs = append(outs, from.dial(t, to.gid))
		}
	}
	assert.Equal(t, listen, sockets(t))
	assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
	const links = ports * ports
	assert.LessOrEqual(t, linkMappings(t)-before, links/64+8)
	assert.LessOrEqual(t, memfdMappings(t)-total, links/64+8+2*ports, "links, tables and arenas")
	for i, out := range outs {
		out.Seg.Bytes()[0] = byte(i)
	}
	for i, out := range outs {
		require.Equal(t, byte(i), out.Seg.Bytes()[0])
	}
	for _, s := range all {
		s.close(t)
	}
	assert.Equal(t, before, linkMappings(t))
}

// memfdMappings counts the mappings of memory files in this process.
func memfdMappings(t testing.TB) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(maps), "/memfd:")
}

// TestLocal_OtherPortHasSocket: a link to a port without Config.Local, or from one, has a socket.
func TestLocal_OtherPortHasSocket(t *testing.T) {
	for _, local := range []bool{false, true} {
		a, b := newStation(t, func(c *Config) { c.Local = local }), newStation(t, func(c *Config) { c.Local = !local })
		assert.NotNil(t, a.dial(t, b.gid).conn)
		assert.NotNil(t, within(t, b.in, "inbound link").conn)
	}
}

// TestLocal_ForeignUser: a port does not dial a port of this process whose user it does not allow, and reverse. The process has
// opened the other port as another user.
func TestLocal_ForeignUser(t *testing.T) {
	a, b := localStation(t, nil), localStation(t, nil)
	require.NotNil(t, a.findLocal(b.gid))
	b.unlistLocal()
	b.cfg.AllowUIDs = []uint32{testenv.OtherUser}
	b.listLocal()
	defer b.unlistLocal()
	assert.Nil(t, a.findLocal(b.gid))
	a.cfg.AllowUIDs = append(a.cfg.AllowUIDs, testenv.OtherUser)
	assert.Nil(t, a.findLocal(b.gid), "the other port does not allow this user")
	b.cfg.AllowUIDs = append(b.cfg.AllowUIDs, uint32(os.Geteuid()))
	assert.NotNil(t, a.findLocal(b.gid))
	a.cfg.AllowUIDs = a.cfg.AllowUIDs[:1]
	assert.Nil(t, a.findLocal(b.gid))
}

// TestLocal_DialerClosesMeanwhile: if the dialer's port closes while the acceptor accepts the link, the owner of the other end
// still has its memory, until it closes that end.
func TestLocal_DialerClosesMeanwhile(t *testing.T) {
	a := localStation(t, nil)
	closed := make(chan error, 1)
	links := make(chan *Inbound, 1)
	b := localStation(t, func(c *Config) {
		c.OnLink = func(in *Inbound) error {
			go func() { closed <- a.Port.Close() }()
			<-a.ctx.Done()
			links <- in
			return nil
		}
	})
	_, err := a.Dial(context.Background(), b.gid)
	require.ErrorIs(t, err, ucs.ErrClosed)
	require.NoError(t, within(t, closed, "end of Close"))
	in := within(t, links, "inbound link")
	within(t, in.Done(), "end of the link")
	assert.Zero(t, in.Seg.Bytes()[0], "still mapped")
	require.NoError(t, in.Close())
}

// TestLocal_CloseInAnyOrder: goroutines close both ends of links, hang up and close the ports at the same time. Afterwards nothing
// is mapped, and each end knows that the link is down.
func TestLocal_CloseInAnyOrder(t *testing.T) {
	for round := range testenv.Rounds(60, 2000) {
		links := make(chan *Inbound, 64)
		b := localStation(t, func(c *Config) { c.OnLink = func(in *Inbound) error { links <- in; return nil } })
		a := localStation(t, nil)
		var outs []*Outbound
		var ins []*Inbound
		for range 6 {
			outs = append(outs, a.dial(t, b.gid))
			ins = append(ins, within(t, links, "inbound link"))
		}
		var down sync.WaitGroup // functions of AfterDown that are called
		var wg sync.WaitGroup
		for i := range outs {
			out, in := outs[i], ins[i]
			switch (i + round) % 4 {
			case 0:
				down.Add(1)
				in.AfterDown(func() { defer down.Done(); assert.NoError(t, in.Close()) })
				wg.Go(func() { assert.NoError(t, out.Close()) })
			case 1:
				down.Add(1)
				out.AfterDown(func() { defer down.Done(); assert.NoError(t, out.Close()) })
				wg.Go(func() { assert.NoError(t, in.Close()) })
			case 2:
				wg.Go(func() {
					in.HangUp()
					<-out.Done()
					assert.NoError(t, out.Close())
					<-in.Done()
					assert.NoError(t, in.Close())
				})
			default:
				wg.Go(func() { assert.NoError(t, out.Close()) })
				wg.Go(func() { assert.NoError(t, in.Close()) })
			}
		}
		if round%2 == 0 {
			down.Wait()
			wg.Wait()
		}
		wg.Go(func() { assert.NoError(t, a.Port.Close()) })
		wg.Go(func() { assert.NoError(t, b.Port.Close()) })
		if round%2 == 0 {
			down.Wait()
		}
		wg.Wait()
		for i := range outs {
			<-outs[i].Done()
			<-ins[i].Done()
			assert.NoError(t, outs[i].Close())
			assert.NoError(t, ins[i].Close())
		}
		a.close(t)
		b.close(t)
		testenv.ProgressWithin(t, watchdog, func() bool { runtime.Gosched(); return linkMappings(t) == 0 })
	}
}

// TestLocal_ContextDone: a dial with a context that is done makes no link, as with a socket.
func TestLocal_ContextDone(t *testing.T) {
	accepted := 0
	a, b := localStation(t, nil), localStation(t, func(c *Config) { c.OnLink = func(*Inbound) error { accepted++; return nil } })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := a.Dial(ctx, b.gid)
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, accepted)
}
