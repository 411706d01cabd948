package ucp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/preface"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/tcp"
)

func init() { roles.Register("oneport", onePortRole) }

// firewall permits the far end of a cable to connect to one port of the near end only.
func firewall(t testing.TB, c *testenv.Cable, port int) {
	for i, ports := range []string{fmt.Sprintf("1-%d", port-1), fmt.Sprintf("%d-65534", port+1)} {
		require.NoError(t, testenv.IP(t, "-n", c.NS, "rule", "add", "pref", fmt.Sprint(100+i),
			"to", c.NearAddr.String(), "ipproto", "tcp", "dport", ports, "prohibit"))
	}
}

func (l *watched) port() int { return l.Addr().(*net.TCPAddr).Port }

// onePortRole dials a listener and puts over the EP, then to another worker if the listener has sent its address and
// memory. Its arguments are SHARE_PORT, the address, token or open, and the data.
func onePortRole(c *roles.Side) (err error) {
	var shares config.Ternary
	if err := shares.UnmarshalText([]byte(c.Args[0])); err != nil {
		return err
	}
	cfg := ucp.Config{TLS: config.Allow("tcp")}
	if c.Args[2] == "token" {
		cfg.AuthToken = testToken
	}
	ctx, err := ucp.NewContext(cfg, tlsets.Components(all.Config{TCP: tcp.Config{SharePort: shares}})...)
	if err != nil {
		return err
	}
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close(), ctx.Close()) }()
	p, err := w.Dial(context.Background(), "tcp", c.Args[1], ucp.DialConfig{})
	if err != nil {
		c.Printf("%v", err)
		return nil
	}
	eps, keys := []*ucp.EP{p.EP}, []*ucp.RKey{p.Keys["all"]}
	if len(p.Private) > 0 {
		other, err := ucppair.ParseRemote(string(p.Private))
		if err != nil {
			return err
		}
		e, err := w.NewEP(other.Addr, ucp.EPConfig{})
		if err != nil {
			return err
		}
		k, err := e.Unpack(other.Key)
		if err != nil {
			return err
		}
		eps, keys = append(eps, e), append(keys, k)
	}
	for i, e := range eps {
		if err := e.PutWait(context.Background(), []byte(c.Args[3]), keys[i].Addr()+uint64(16*i), keys[i], nil); err != nil {
			return err
		}
		if err := e.FlushWait(context.Background()); err != nil {
			return err
		}
	}
	c.Printf("connected")
	c.NextLine()
	return nil
}

// TestOnePort_Firewall: a process of another host connects to a worker through a firewall that permits the port of the
// listener only. It cannot connect if the port is not shared.
func TestOnePort_Firewall(t *testing.T) {
	for _, tc := range []struct {
		share   config.Ternary
		address string
		works   bool
	}{
		{config.Try, "", true}, {config.Try, "0.0.0.0", true},
		{config.Yes, "", true}, {config.Yes, "[::]", true},
		{config.No, "", false},
	} {
		t.Run(tc.share.String()+" "+tc.address, func(t *testing.T) {
			cable := testenv.NewCable(t)
			if tc.address == "" {
				tc.address = cable.NearAddr.String()
			}
			conf := tcp.Config{SharePort: tc.share}
			p := ucppair.New(t, tcpOf(conf, conf), ucp.Config{AuthToken: testToken})
			l := listen(t, &p.B, "tcp", tc.address+":0", ucp.ListenConfig{Keys: map[string]*ucp.Mem{"all": p.B.Mem}})
			if tc.share == config.Yes {
				assert.Len(t, ownListeners(t), 1)
			}
			firewall(t, cable, l.port())
			at := netip.AddrPortFrom(cable.NearAddr, uint16(l.port()))
			c := roles.StartIn(t, cable.NS, "oneport", tc.share, at, "token", "far")
			said := linesOf(p, c, 1)
			if !tc.works {
				assert.Contains(t, said[0], "permission denied")
				c.End(t)
				return
			}
			assert.Equal(t, []string{"connected"}, said)
			assert.Equal(t, "far", string(p.B.Mem.Bytes()[:3]))
			c.End(t)
		})
	}
}

// TestOnePort_TwoWorkers: a process that can connect only to the port of one worker's listener also connects to another
// worker of the context, whose address the listener sends.
func TestOnePort_TwoWorkers(t *testing.T) {
	cable := testenv.NewCable(t)
	conf := tcp.Config{SharePort: config.Yes}
	p := ucppair.New(t, tcpOf(conf, conf), ucp.Config{})
	other, err := p.B.Ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	var addr []byte
	l := listen(t, &p.B, "tcp", cable.NearAddr.String()+":0", ucp.ListenConfig{
		Keys: map[string]*ucp.Mem{"all": p.B.Mem},
		Accept: func(r *ucp.ConnRequest) bool {
			return assert.NoError(t, r.Answer([]byte(ucppair.Remote{Addr: addr, Key: p.B.Mem.Pack()}.String())))
		},
	})
	addr, err = other.AddressAt(l.Listener)
	require.NoError(t, err)
	assert.Len(t, ownListeners(t), 1)
	firewall(t, cable, l.port())
	c := roles.StartIn(t, cable.NS, "oneport", config.Try, netip.AddrPortFrom(cable.NearAddr, uint16(l.port())), "open", "far")
	said := make(chan string, 1)
	go func() {
		line, _ := c.Out.ReadString('\n')
		said <- strings.TrimSpace(line)
	}()
	p.Until(func() bool { other.Progress(); return len(said) > 0 })
	assert.Equal(t, "connected", <-said)
	assert.Equal(t, "far", string(p.B.Mem.Bytes()[16:19]))
	c.End(t)
}

func TestAddressAt_Errors(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{})
	l := listen(t, &p.B, "tcp", ":0", ucp.ListenConfig{})
	_, err := p.A.W.AddressAt(l.Listener)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	unix := listen(t, &p.B, "unix", networks[1].address(t), ucp.ListenConfig{})
	addr, err := p.B.W.AddressAt(unix.Listener)
	require.NoError(t, err)
	assert.Equal(t, p.B.W.Address(), addr)
	require.NoError(t, p.B.W.Close())
	_, err = p.B.W.AddressAt(l.Listener)
	assert.ErrorIs(t, err, ucs.ErrClosed)
}

// forwarder forwards connections, as NAT does, up to a maximum number.
type forwarder struct {
	net.Listener
	passed atomic.Int64
}

func forward(t testing.TB, to net.Addr, most int64) *forwarder {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &forwarder{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			if f.passed.Add(1) > most {
				_ = near.Close()
				continue
			}
			far, err := net.Dial(to.Network(), to.String())
			if err != nil {
				_ = near.Close()
				continue
			}
			pass := func(a, b net.Conn) {
				_, _ = io.Copy(struct{ io.Writer }{a}, struct{ io.Reader }{b}) // without splice, which keeps pipes open
				_ = a.Close()
				_ = b.Close()
			}
			go pass(near, far)
			go pass(far, near)
		}
	}()
	return f
}

// TestOnePort_Forwarded: a dialer reaches the worker at the dialed address, which is not the address of the worker,
// also if it is a loopback address that is forwarded to another host. If no data connection can be forwarded, it
// connects to the port of the transport.
func TestOnePort_Forwarded(t *testing.T) {
	for _, tc := range []struct {
		name string
		most int64
		want int64
	}{{"all", 100, 2}, {"first", 1, 5}} {
		t.Run(tc.name, func(t *testing.T) {
			p := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{})
			l := listen(t, &p.B, "tcp", ":0", ucp.ListenConfig{Keys: map[string]*ucp.Mem{"all": p.B.Mem}})
			f := forward(t, l.Addr(), tc.most)
			peer, err := p.A.W.DialWith(t.Context(), "tcp", f.Addr().String(), &ucp.DialConfig{}, progressing(p))
			require.NoError(t, err)
			key := peer.Keys["all"]
			require.NoError(t, p.Finish(peer.EP.Put([]byte("data"), key.Addr(), key, nil)))
			require.NoError(t, p.Finish(peer.EP.Flush()))
			assert.Equal(t, "data", string(p.B.Mem.Bytes()[:4]))
			assert.Equal(t, tc.want, f.passed.Load())
			assert.Contains(t, peer.EP.Explain(), "tcp")
		})
	}
}

// TestOnePort_TLS: a data connection at the port of a listener uses TLS, like one at the port of tcp.
func TestOnePort_TLS(t *testing.T) {
	authority := testenv.NewAuthority(t)
	a, b := withURI(t, authority, dialerURI), withURI(t, authority, listenerURI)
	p := ucppair.New(t, tcpOf(a, b), ucp.Config{})
	l := listen(t, &p.B, "tcp", ":0", ucp.ListenConfig{Keys: map[string]*ucp.Mem{"all": p.B.Mem}})
	f := forward(t, l.Addr(), 2)
	peer, err := p.A.W.DialWith(t.Context(), "tcp", f.Addr().String(), &ucp.DialConfig{}, progressing(p))
	require.NoError(t, err)
	key := peer.Keys["all"]
	require.NoError(t, p.Finish(peer.EP.Put([]byte("data"), key.Addr(), key, nil)))
	require.NoError(t, p.Finish(peer.EP.Flush()))
	assert.EqualValues(t, 2, f.passed.Load())
}

// TestOnePort_WorkerCloses: when a worker closes, connections that wait for it are closed.
func TestOnePort_WorkerCloses(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{})
	l := listen(t, &p.B, "tcp", ":0", ucp.ListenConfig{})
	other, err := p.B.Ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	var id uint64
	for _, i := range other.Ifaces() {
		id = i.Port().ID()
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write(preface.Append(nil, id))
	require.NoError(t, err)
	waits := func() int {
		n, _ := p.B.Ctx.Ports().Waiting(id)
		return n
	}
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return waits() == 1 })
	require.NoError(t, other.Close())
	_, err = conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
	_, known := p.B.Ctx.Ports().Waiting(id)
	assert.False(t, known)
}
