package ucp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// networks are the networks on which a worker listens, with a function that returns a free address.
var networks = []struct {
	name, network string
	address       func(t testing.TB) string
}{
	{"tcp", "tcp", func(testing.TB) string { return ":0" }},
	{"unix", "unix", func(t testing.TB) string { return filepath.Join(testenv.SocketDir(t), "s") }},
	{"abstract", "unix", func(testing.TB) string { return abstractName() }},
}

var abstractNames atomic.Int64

func abstractName() string {
	return "@gucx-ucp-test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(abstractNames.Add(1), 10)
}

// watched is a listener that records its callbacks.
type watched struct {
	*ucp.Listener
	t       testing.TB
	events  []string // "connected 0", "disconnected 0" by the number of the peer
	peers   []*ucp.Peer
	reasons []error
}

// listen makes x listen, and records the peers that connect and disconnect.
func listen(t testing.TB, x *ucppair.End, network, address string, cfg ucp.ListenConfig) *watched {
	t.Helper()
	l := watch(t, &cfg)
	var err error
	l.Listener, err = x.W.Listen(t.Context(), network, address, cfg)
	require.NoError(t, err)
	return l
}

// watch adds callbacks to cfg that record the peers that connect and disconnect.
func watch(t testing.TB, cfg *ucp.ListenConfig) *watched {
	l := &watched{t: t}
	number := map[*ucp.Peer]int{}
	cfg.OnPeer = func(p *ucp.Peer) {
		number[p] = len(l.peers)
		l.peers = append(l.peers, p)
		l.events = append(l.events, fmt.Sprint("connected ", number[p]))
	}
	cfg.OnPeerGone = func(p *ucp.Peer, err error) {
		assert.Contains(t, number, p)
		assert.ErrorIs(t, p.EP.Err(), ucs.ErrEPFailed)
		l.reasons = append(l.reasons, err)
		l.events = append(l.events, fmt.Sprint("disconnected ", number[p]))
	}
	return l
}

// dialTo dials l while b makes progress, and stores the EP and the key in a.
func dialTo(p *ucppair.Pair, l *watched, cfg ucp.DialConfig) (*ucp.Peer, error) {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p.T.Context(), testenv.Watchdog)
	defer cancel()
	return p.A.W.DialWith(ctx, l.Addr().Network(), l.Addr().String(), &cfg, progressing(p))
}

// progressing returns a function for DialWith that makes progress on both ends.
func progressing(p *ucppair.Pair) func(ctx context.Context, done func() bool) error {
	return func(ctx context.Context, done func() bool) error {
		p.Until(func() bool { return done() || ctx.Err() != nil })
		if done() {
			return nil
		}
		return ctx.Err()
	}
}

// overNetworks runs a test over each network, with all transports.
func overNetworks(t *testing.T, f func(t *testing.T, p *ucppair.Pair, network, address string)) {
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			f(t, ucppair.New(t, tlsets.Real("sm+tcp", "sm", "tcp"), ucp.Config{}), n.network, n.address(t))
		})
	}
}

// TestDial: a dialer gets an EP, the private data and the keys of the listener, and puts with a key. The listener
// detects that it connects and disconnects.
func TestDial(t *testing.T) {
	overNetworks(t, func(t *testing.T, p *ucppair.Pair, network, address string) {
		l := listen(t, &p.B, network, address, ucp.ListenConfig{
			Private: []byte("welcome"), Keys: map[string]*ucp.Mem{"all": p.B.Mem},
		})
		peer, err := dialTo(p, l, ucp.DialConfig{Private: []byte("hello")})
		require.NoError(t, err)
		assert.Equal(t, []string{"connected 0"}, l.events, "before Dial returns")
		assert.Equal(t, "welcome", string(peer.Private))
		assert.Equal(t, "hello", string(l.peers[0].Private))
		for _, from := range []ucp.Identity{peer.From, l.peers[0].From} {
			assert.Equal(t, network, from.Network)
			if network == "unix" {
				assert.Equal(t, os.Getpid(), from.PID)
				assert.Equal(t, uint32(os.Geteuid()), from.UID)
			}
		}
		assert.Equal(t, peer.From, peer.EP.PeerIdentity())
		assert.Equal(t, l.peers[0].From, l.peers[0].EP.PeerIdentity())

		key := peer.Keys["all"]
		require.NotNil(t, key)
		buf := testenv.Pattern(5000, 1)
		require.NoError(t, p.Finish(peer.EP.Put(buf, key.Addr(), key, nil)))
		require.NoError(t, p.Finish(peer.EP.Flush()))
		testenv.RequireBytes(t, buf, p.B.Mem.Bytes()[:len(buf)])
		key.Close()

		require.NoError(t, p.Finish(peer.EP.Close(ucp.CloseFlush)))
		p.Until(func() bool { return len(l.events) == 2 })
		assert.Equal(t, []string{"connected 0", "disconnected 0"}, l.events)
		assert.ErrorIs(t, l.reasons[0], ucs.ErrPeerClosed)
		idle(p)
		assert.ErrorIs(t, l.peers[0].EP.Err(), ucs.ErrClosed, "the listener closes it")
		assert.Zero(t, p.B.W.EPs().Len())
		assert.Zero(t, p.B.W.ExpectedPeers())
	})
}

// TestDial_Transports: the EPs of dialer and listener are one connection, over all sets of transports.
func TestDial_Transports(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{Keys: map[string]*ucp.Mem{"all": p.B.Mem}})
		peer, err := dialTo(p, l, ucp.DialConfig{})
		require.NoError(t, err)
		require.Len(t, l.peers, 1)
		words := 0
		p.B.W.OnNotify(func(ep *ucp.EP, word uint64) {
			assert.Same(t, l.peers[0].EP, ep)
			assert.Equal(t, uint64(7), word)
			words++
		})
		key := peer.Keys["all"]
		require.NoError(t, p.Finish(peer.EP.PutNotify([]byte("data"), key.Addr(), key, 7, nil)))
		p.Until(func() bool { return words == 1 })
		assert.Equal(t, "data", string(p.B.Mem.Bytes()[:4]))
		back, err := l.peers[0].EP.Unpack(p.A.Mem.Pack())
		require.NoError(t, err)
		require.NoError(t, p.Finish(l.peers[0].EP.Put([]byte("back"), back.Addr(), back, nil)))
		require.NoError(t, p.Finish(l.peers[0].EP.Flush()))
		assert.Equal(t, "back", string(p.A.Mem.Bytes()[:4]))
		back.Close()
		key.Close()
		require.NoError(t, p.Finish(peer.EP.Close(ucp.CloseFlush)))
		p.Until(func() bool { return len(l.reasons) == 1 })
	})
}

// TestDial_Rejected: the application rejects a dialer, with private data.
func TestDial_Rejected(t *testing.T) {
	overNetworks(t, func(t *testing.T, p *ucppair.Pair, network, address string) {
		l := listen(t, &p.B, network, address, ucp.ListenConfig{
			Private: []byte("for peers only"),
			Accept: func(r *ucp.ConnRequest) bool {
				assert.ErrorIs(t, r.Answer(make([]byte, ucp.MaxPrivate+1)), ucs.ErrTooLong)
				if string(r.Private) == "answer me" {
					assert.NoError(t, r.Answer([]byte("never")))
				}
				return string(r.Private) == "friend"
			},
		})
		for private, answer := range map[string]string{"": "", "answer me": "never"} {
			_, err := dialTo(p, l, ucp.DialConfig{Private: []byte(private)})
			require.ErrorIs(t, err, ucs.ErrRejected)
			var rejected *ucp.RejectedError
			require.ErrorAs(t, err, &rejected)
			assert.Equal(t, answer, string(rejected.Private))
			assert.ErrorContains(t, err, "ucp: dial "+network)
		}
		assert.Empty(t, l.events)
		assert.Zero(t, p.B.W.EPs().Len())
		peer, err := dialTo(p, l, ucp.DialConfig{Private: []byte("friend")})
		require.NoError(t, err)
		assert.Equal(t, "for peers only", string(peer.Private))
		assert.Equal(t, uint64(2), maps.Collect(p.B.W.Stats().Snapshot().All())["worker/listen.rejected"])
	})
}

// TestDial_Oneself: a worker dials itself, while nothing else makes progress.
func TestDial_Oneself(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		l := listen(t, &p.A, "unix", abstractName(), ucp.ListenConfig{Keys: map[string]*ucp.Mem{"all": p.A.Mem}})
		peer, err := p.A.W.Dial(t.Context(), "unix", l.Addr().String(), ucp.DialConfig{})
		require.NoError(t, err)
		require.Len(t, l.peers, 1)
		assert.NotSame(t, peer.EP, l.peers[0].EP)
		require.NoError(t, peer.EP.PutWait(t.Context(), []byte("self"), p.A.Mem.Addr(), peer.Keys["all"], nil))
		require.NoError(t, peer.EP.FlushWait(t.Context()))
		assert.Equal(t, "self", string(p.A.Mem.Bytes()[:4]))
		peer.Keys["all"].Close()
		require.NoError(t, p.Finish(peer.EP.Close(ucp.CloseFlush)))
		p.Until(func() bool { return len(l.events) == 2 })
		assert.ErrorIs(t, l.reasons[0], ucs.ErrPeerClosed)
	})
}

// TestDial_WakesServe: a dialer wakes a worker that is parked in Serve.
func TestDial_WakesServe(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{SpinPolls: 1})
	p.B.W.Engine().ParkLimit = testenv.Watchdog // a lost wake-up hangs the test
	p.A.W.Engine().ParkLimit = testenv.Watchdog
	l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{})
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { served <- p.B.W.Serve(ctx) }()
	const dials = 20
	for range dials {
		peer, err := p.A.W.Dial(t.Context(), "unix", l.Addr().String(), ucp.DialConfig{})
		require.NoError(t, err)
		require.NoError(t, peer.EP.CloseWait(t.Context(), ucp.CloseFlush))
	}
	cancel()
	require.Equal(t, context.Canceled, <-served)
	p.Until(func() bool { return len(l.events) == 2*dials })
	assert.Equal(t, []string{"connected 0", "disconnected 0"}, l.events[:2])
}

// TestDial_Shared: several goroutines dial with one worker.
func TestDial_Shared(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{})
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { served <- p.B.W.Serve(ctx) }()
	shared := p.A.W.Share()
	const dialers = 4
	errs := make(chan error, dialers)
	for range dialers {
		go func() {
			_, err := shared.Dial(ctx, "unix", l.Addr().String(), ucp.DialConfig{})
			errs <- err
		}()
	}
	for range dialers {
		require.NoError(t, <-errs)
	}
	cancel()
	require.Equal(t, context.Canceled, <-served)
	assert.Len(t, l.peers, dialers)
}

// TestDial_ContextEnds: the worker of the listener makes no progress until the context ends. Nothing of the dialer
// remains at either side.
func TestDial_ContextEnds(t *testing.T) {
	overNetworks(t, func(t *testing.T, p *ucppair.Pair, network, address string) {
		l := listen(t, &p.B, network, address, ucp.ListenConfig{})
		ctx, cancel := context.WithCancel(t.Context())
		polls := 0
		_, err := p.A.W.DialWith(ctx, network, l.Addr().String(), &ucp.DialConfig{}, func(ctx context.Context, done func() bool) error {
			return p.A.W.Engine().Until(ctx, func() bool {
				if polls++; polls == 10 {
					cancel()
				}
				return done()
			})
		})
		require.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, p.A.W.EPs().Len())
		idle(p)
		p.Until(func() bool { return p.B.W.EPs().Len() == 0 })
		assert.Empty(t, l.events)
	})
}

// TestDial_ContextEndsAfterAccept: the context ends after the listener has accepted, and before the EPs have connected. The
// listener removes the dialer, and calls no callback.
func TestDial_ContextEndsAfterAccept(t *testing.T) {
	overNetworks(t, func(t *testing.T, p *ucppair.Pair, network, address string) {
		l := listen(t, &p.B, network, address, ucp.ListenConfig{})
		ctx, cancel := context.WithCancel(t.Context())
		_, err := p.A.W.DialWith(ctx, network, l.Addr().String(), &ucp.DialConfig{}, func(ctx context.Context, done func() bool) error {
			p.T.Helper()
			p.Until(func() bool {
				if p.A.W.EPs().Len() > 0 {
					cancel()
				}
				return done() || ctx.Err() != nil
			})
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		p.Until(func() bool { return p.B.W.EPs().Len() == 0 && p.A.W.EPs().Len() == 0 })
		assert.Zero(t, p.B.W.HalfOpen().Len())
		assert.Zero(t, p.B.W.ExpectedPeers())
		assert.Empty(t, l.events)
	})
}

// TestDial_NoListener: Dial fails at once, and the error says what to do.
func TestDial_NoListener(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{})
	for _, n := range networks[1:] {
		_, err := p.A.W.Dial(t.Context(), n.network, n.address(t), ucp.DialConfig{})
		require.ErrorIs(t, err, ucs.ErrUnreachable)
		assert.ErrorContains(t, err, "start the listener first")
	}
}

func TestDial_Errors(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{})
	_, err := p.A.W.Dial(t.Context(), "unix", abstractName(), ucp.DialConfig{Private: make([]byte, ucp.MaxPrivate+1)})
	assert.ErrorIs(t, err, ucs.ErrTooLong)
	_, err = p.A.W.Dial(t.Context(), "unix", "@"+strings.Repeat("x", 107), ucp.DialConfig{})
	assert.ErrorIs(t, err, ucs.ErrTooLong)
	require.NoError(t, p.A.W.Close())
	_, err = p.A.W.Dial(t.Context(), "unix", abstractName(), ucp.DialConfig{})
	assert.ErrorIs(t, err, ucs.ErrClosed)
	_, err = p.A.W.Listen(t.Context(), "unix", abstractName(), ucp.ListenConfig{})
	assert.ErrorIs(t, err, ucs.ErrClosed)
}

// TestDial_NoTransportInCommon: the listener reports the reason of each transport.
func TestDial_NoTransportInCommon(t *testing.T) {
	a := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{})
	b := ucppair.New(t, tlsets.Real("self", "self"), ucp.Config{})
	p := &ucppair.Pair{T: t, A: a.A, B: b.A}
	l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{})
	_, err := dialTo(p, l, ucp.DialConfig{})
	require.ErrorIs(t, err, ucs.ErrUnreachable)
	assert.NotErrorIs(t, err, ucs.ErrRejected)
	var rejected *ucp.RejectedError
	require.ErrorAs(t, err, &rejected)
	assert.Equal(t, ucp.CodeUnreachable, rejected.Code)
	require.Len(t, rejected.Reasons, 1)
	assert.Equal(t, "self", rejected.Reasons[0].Transport)
	assert.ErrorContains(t, err, "at the listener: self")
	assert.ErrorContains(t, err, "the peer does not have this transport")
}

// TestDial_ListenerOutOfFiles: the error says that the dialer should try again, not that no transport reaches it.
func TestDial_ListenerOutOfFiles(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{})
	l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{})
	_, err := p.A.W.DialWith(t.Context(), "unix", l.Addr().String(), &ucp.DialConfig{}, func(ctx context.Context, done func() bool) error {
		for !p.B.W.HasListenerEvents() && !done() {
			p.A.W.Progress()
		}
		testenv.WithoutDescriptors(t, func() { p.B.W.Progress() })
		return progressing(p)(ctx, done)
	})
	require.ErrorIs(t, err, ucp.ErrTryAgain)
	assert.ErrorIs(t, err, ucs.ErrRejected)
	assert.ErrorContains(t, err, "file descriptors")
	assert.EqualValues(t, 1, counters(p.A.W)["worker/dial.rejected_no_files"])
	_, err = dialTo(p, l, ucp.DialConfig{})
	require.NoError(t, err)
}

func TestListen_Errors(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{})
	for name, tc := range map[string]struct {
		network, address string
		cfg              ucp.ListenConfig
		want             error
	}{
		"another network":    {"udp", ":0", ucp.ListenConfig{}, ucs.ErrInvalidParam},
		"no port":            {"tcp", "localhost", ucp.ListenConfig{}, ucs.ErrInvalidParam},
		"long private data":  {"tcp", ":0", ucp.ListenConfig{Private: make([]byte, ucp.MaxPrivate+1)}, ucs.ErrTooLong},
		"long path":          {"unix", "/tmp/" + strings.Repeat("x", 103), ucp.ListenConfig{}, ucs.ErrTooLong},
		"no slots":           {"tcp", ":0", ucp.ListenConfig{MaxHandshakes: -1}, ucs.ErrInvalidParam},
		"no time":            {"tcp", ":0", ucp.ListenConfig{HelloTimeout: -1}, ucs.ErrInvalidParam},
		"a key without name": {"tcp", ":0", ucp.ListenConfig{Keys: map[string]*ucp.Mem{"": p.A.Mem}}, ucs.ErrInvalidParam},
		"no memory":          {"tcp", ":0", ucp.ListenConfig{Keys: map[string]*ucp.Mem{"a": nil}}, ucs.ErrInvalidParam},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.A.W.Listen(t.Context(), tc.network, tc.address, tc.cfg)
			require.ErrorIs(t, err, tc.want)
			assert.ErrorContains(t, err, "ucp: listen on "+tc.network)
		})
	}
	assert.Zero(t, p.A.W.Listeners())
}

// TestListener_Publish: dialers get the keys that are published when they connect.
func TestListener_Publish(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{})
	l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{})
	names := func() (names []string) {
		peer, err := dialTo(p, l, ucp.DialConfig{})
		require.NoError(t, err)
		for name, key := range peer.Keys {
			assert.Equal(t, p.B.Mem.Addr(), key.Addr())
			names = append(names, name)
			key.Close()
		}
		return names
	}
	assert.Empty(t, names())
	require.NoError(t, l.Publish("a", p.B.Mem))
	require.NoError(t, l.Publish("b", p.B.Mem))
	assert.ElementsMatch(t, []string{"a", "b"}, names())
	l.Unpublish("a")
	l.Unpublish("never")
	assert.ElementsMatch(t, []string{"b"}, names())

	l.Unpublish("b")
	assert.Zero(t, l.KeysLen())
	var err error
	n := 0
	for ; err == nil; n++ {
		require.NoError(t, l.Publish("again", p.B.Mem))
		err = l.Publish(fmt.Sprintf("%0255d", n), p.B.Mem)
	}
	require.ErrorIs(t, err, ucs.ErrTooLong)
	assert.Len(t, names(), n, "as many as fit")
}

// TestListener_Close: peers that have connected are not affected; others are rejected.
func TestListener_Close(t *testing.T) {
	overNetworks(t, func(t *testing.T, p *ucppair.Pair, network, address string) {
		var l *watched
		l = listen(t, &p.B, network, address, ucp.ListenConfig{Accept: func(r *ucp.ConnRequest) bool {
			if string(r.Private) == "close" {
				assert.NoError(t, l.Close(), "in a callback")
			}
			return true
		}})
		stays, err := dialTo(p, l, ucp.DialConfig{})
		require.NoError(t, err)
		_, err = dialTo(p, l, ucp.DialConfig{Private: []byte("close")})
		require.ErrorIs(t, err, ucs.ErrConnReset)
		_, err = dialTo(p, l, ucp.DialConfig{})
		require.ErrorIs(t, err, ucs.ErrUnreachable)
		require.NoError(t, l.Close())
		require.NoError(t, stays.EP.Err())
		require.NoError(t, p.Finish(stays.EP.Close(ucp.CloseFlush)))
		p.Until(func() bool { return len(l.reasons) == 1 })
	})
}

// TestListener_ClosesWhileAPeerConnects: the dialer has the reply, and detects that the listener has closed.
func TestListener_ClosesWhileAPeerConnects(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{})
	_, err := p.A.W.DialWith(t.Context(), "unix", l.Addr().String(), &ucp.DialConfig{}, func(ctx context.Context, done func() bool) error {
		if p.A.W.EPs().Len() == 0 {
			return progressing(p)(ctx, done)
		}
		require.NoError(t, l.Close())
		return p.A.W.Engine().Until(ctx, done)
	})
	require.ErrorIs(t, err, ucs.ErrConnReset)
	assert.Zero(t, p.B.W.EPs().Len())
	assert.Empty(t, l.events)
}

// TestWorker_ClosesWithDialersInProgress: a worker that closes disconnects dialers that wait for a reply. If the worker
// of a dialer closes, Dial returns.
func TestWorker_ClosesWithDialersInProgress(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{})
	result := make(chan error, 1)
	go func() {
		_, err := p.A.W.Dial(t.Context(), "unix", l.Addr().String(), ucp.DialConfig{})
		result <- err
	}()
	require.NoError(t, p.B.W.Close())
	err := <-result
	assert.True(t, errors.Is(err, ucs.ErrConnReset) || errors.Is(err, ucs.ErrUnreachable), "%v", err)

	silent, err := net.Listen("unix", abstractName())
	require.NoError(t, err)
	defer silent.Close()
	go func() {
		_, err := p.A.W.Dial(t.Context(), "unix", silent.Addr().String(), ucp.DialConfig{})
		result <- err
	}()
	conn, err := silent.Accept()
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, p.A.W.Close())
	assert.ErrorIs(t, <-result, ucs.ErrClosed)
}

// TestListener_LeaksNothing: dialers that have disconnected, in any way, leave no resources at either side.
func TestListener_LeaksNothing(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{
		Keys:   map[string]*ucp.Mem{"all": p.B.Mem},
		Accept: func(r *ucp.ConnRequest) bool { return string(r.Private) != "stay out" },
	})
	const rounds = 8
	for range rounds {
		peer, err := dialTo(p, l, ucp.DialConfig{})
		require.NoError(t, err)
		peer.Keys["all"].Close()
		require.NoError(t, p.Finish(peer.EP.Close(ucp.CloseFlush)))
		peer, err = dialTo(p, l, ucp.DialConfig{})
		require.NoError(t, err)
		require.NoError(t, p.Finish(l.peers[len(l.peers)-1].EP.Close(ucp.CloseForce)), "by the listener")
		p.Until(func() bool { return peer.EP.Err() != nil })
		require.ErrorIs(t, peer.EP.Err(), ucs.ErrPeerClosed)
		peer.Keys["all"].Close()
		require.NoError(t, p.Finish(peer.EP.Close(ucp.CloseFlush)))
		_, err = dialTo(p, l, ucp.DialConfig{Private: []byte("stay out")})
		require.ErrorIs(t, err, ucs.ErrRejected)
	}
	for _, w := range []*ucp.Worker{p.A.W, p.B.W} {
		p.Until(func() bool { return w.EPs().Len() == 0 })
		assert.Zero(t, w.Peers().Len())
		assert.Zero(t, w.HalfOpen().Len())
		numbered, called := w.Names().Len()
		assert.Zero(t, numbered+called)
	}
	assert.Len(t, l.peers, 2*rounds)
	assert.Len(t, l.reasons, rounds, "peers that have closed")
}

// hello is a HELLO as in docs/wire.md, with a worker address and no private data.
func hello(addr []byte) []byte {
	b := []byte{'G', 'X', 'B', 'S', 3, 0, 1, 0}
	b = binary.LittleEndian.AppendUint32(b, uint32(8+len(addr)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(addr)))
	return append(append(b, 0, 0, 0, 0, 0, 0), addr...)
}

// untrusted connects to a listener and sends b, unless the listener disconnects before.
func (l *watched) untrusted(b []byte) net.Conn {
	l.t.Helper()
	conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = conn.Close() })
	_, _ = conn.Write(b)
	return conn
}

// readUntilClosed makes progress until the other end of conn has closed it, and returns the bytes that it has received.
func readUntilClosed(p *ucppair.Pair, conn net.Conn) []byte {
	said := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(conn) // a reset closes it too
		said <- b
	}()
	p.Until(func() bool { return len(said) > 0 })
	return <-said
}

// listenStat returns a counter of b's worker.
func listenStat(p *ucppair.Pair, name string) uint64 {
	return maps.Collect(p.B.W.Stats().Snapshot().All())["worker"+name]
}

// TestListener_Untrusted: the listener disconnects, counts and removes dialers that send malformed messages, and one
// that is accepted and does not connect.
func TestListener_Untrusted(t *testing.T) {
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{WireupTimeout: 50 * time.Millisecond})
			l := listen(t, &p.B, n.network, n.address(t), ucp.ListenConfig{})
			// On a busy machine the message may be read after the timeout.
			for listenStat(p, "/listen.malformed_hellos") == 0 {
				assert.Empty(t, readUntilClosed(p, l.untrusted([]byte("GET / HTTP/1.1\r\n\r\n"))))
			}
			said := replyTo(p, l, []byte("no address"))
			require.Len(t, said, 13)
			assert.Equal(t, []byte{3, 3}, said[6:8], "REJECT, malformed")
			assert.EqualValues(t, 1, listenStat(p, "/listen.rejected"))

			said = replyTo(p, l, p.A.W.Address())
			require.Greater(t, len(said), 12)
			assert.Equal(t, []byte{2, 0}, said[6:8], "ACCEPT")
			assert.Positive(t, listenStat(p, ".expired_eps"), "one, and those that disconnected before the reply")
			assert.Zero(t, p.B.W.EPs().Len())
			assert.Empty(t, l.events, "no peer has connected")
		})
	}
}

// replyTo returns the reply to a dialer that sends a HELLO with an address and nothing else. If the HELLO was read too
// late, another dialer sends it.
func replyTo(p *ucppair.Pair, l *watched, address []byte) (said []byte) {
	for len(said) == 0 {
		said = readUntilClosed(p, l.untrusted(hello(address)))
	}
	return said
}

// TestListener_UntrustedWhileBusy: the worker makes no progress, and then closes without delay, with any dialers: some
// send nothing, some wait for a reply, and there are more than slots.
func TestListener_UntrustedWhileBusy(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{MaxHandshakes: 4})
	for i := range 12 {
		if i%2 == 0 {
			l.untrusted(hello(p.A.W.Address()))
		} else {
			l.untrusted(nil)
		}
	}
	require.NoError(t, p.B.W.Close())
	assert.Empty(t, l.events)
	assert.Zero(t, p.B.W.EPs().Len())
}

// TestDial_ListenerStops: a listener that stops to make progress after it has received the HELLO does not end Dial.
func TestDial_ListenerStops(t *testing.T) {
	overNetworks(t, func(t *testing.T, p *ucppair.Pair, network, address string) {
		l := listen(t, &p.B, network, address, ucp.ListenConfig{HelloTimeout: 10 * time.Millisecond})
		dials := func() (*ucp.Peer, error) {
			stopped := time.Time{}
			return p.A.W.DialWith(t.Context(), network, l.Addr().String(), &ucp.DialConfig{}, func(ctx context.Context, done func() bool) error {
				p.Until(func() bool { return done() || len(l.peers) > 0 })
				if stopped.IsZero() && len(l.peers) > 0 {
					stopped = time.Now()
				}
				for !stopped.IsZero() && time.Since(stopped) < 200*time.Millisecond && !done() {
					p.A.W.Progress()
				}
				return progressing(p)(ctx, done)
			})
		}
		peer, err := dials()
		for err != nil && (len(l.peers) == 0 || errors.Is(err, ucp.ErrLate)) { // an end made no progress for the HELLO timeout, or for the connect timeout
			l.peers = nil
			peer, err = dials()
		}
		require.NoError(t, err)
		require.NoError(t, peer.EP.Err())
	})
}
