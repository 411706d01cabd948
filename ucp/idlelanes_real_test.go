package ucp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/tcp"
)

func init() { roles.Register("idleecho", idleEchoRole) }

// realIdle is the timeout of tests with real transports. A longer one makes the tests only slower.
const realIdle = 20 * time.Millisecond

// The EPs of a hub: some to each worker of its peers.
const (
	idlePeers      = 10
	idleEPsPerPeer = 10
)

// idleSpoke is the two EPs of one connection.
type idleSpoke struct {
	at, peer *ucp.EP
	w        *ucp.Worker // of peer
	key      *ucp.RKey   // of memory of the peer
	slot     uint64      // address in that memory
	n        uint64      // messages so far
}

// idleHub is a worker with many connections, all in this process.
type idleHub struct {
	t       *testing.T
	hub     *ucp.Worker
	mem     *ucp.Mem
	workers []*ucp.Worker
	spokes  []*idleSpoke
}

func newIdleHub(t *testing.T, tls string, timeout time.Duration) *idleHub {
	cfg := ucppair.FromEnv(t, "TLS="+tls)
	cfg.EPIdleTimeout, cfg.KeepaliveInterval = timeout, config.Infinite // no EP connects to check its peer
	x := openIdleWorld(t, cfg)
	h := &idleHub{t: t, hub: x.w, mem: x.mem}
	mem, err := x.ctx.MemAlloc(8 * idlePeers * idleEPsPerPeer)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, mem.Close()) })
	h.mem = mem
	for range idlePeers {
		h.workers = append(h.workers, x.newWorker(t))
	}
	return h
}

// connect makes the EPs. They connect when they are used.
func (h *idleHub) connect() {
	for _, w := range h.workers {
		for range idleEPsPerPeer {
			s := &idleSpoke{w: w, slot: h.mem.Addr() + 8*uint64(len(h.spokes))}
			var err error
			s.at, err = h.hub.NewEP(w.Address(), ucp.EPConfig{})
			require.NoError(h.t, err)
			s.peer, err = w.NewEP(h.hub.Address(), ucp.EPConfig{})
			require.NoError(h.t, err)
			s.key, err = s.at.Unpack(h.mem.Pack())
			require.NoError(h.t, err)
			h.t.Cleanup(s.key.Close)
			h.spokes = append(h.spokes, s)
		}
	}
}

// until makes progress on all workers until ok returns true.
func (h *idleHub) until(ok func() bool) {
	h.t.Helper()
	testenv.ProgressOr(h.t, testenv.Watchdog, func() bool {
		h.hub.Progress()
		for _, w := range h.workers {
			w.Progress()
		}
		return ok()
	}, h.hub.State)
}

// finish waits for a request.
func (h *idleHub) finish(r *ucp.Request, err error) {
	h.t.Helper()
	require.NoError(h.t, err)
	h.until(r.Done)
	require.NoError(h.t, r.Take())
}

// use sends messages in both directions over each connection, and puts. It checks that nothing is lost or reordered,
// also what was sent before the lanes closed.
func (h *idleHub) use(t *testing.T) {
	const each = 3
	var reqs []*ucp.Request
	keep := func(r *ucp.Request, err error) {
		require.NoError(t, err)
		if r != nil {
			reqs = append(reqs, r)
		}
	}
	bufs := make([][2][each][8]byte, len(h.spokes))
	for i, s := range h.spokes {
		tag := uint64(i)
		for k := range each {
			keep(h.hub.TagRecv(bufs[i][0][k][:], tag, exact, nil, nil))
			keep(s.w.TagRecv(bufs[i][1][k][:], tag, exact, nil, nil))
		}
		for k := range each {
			n := binary.LittleEndian.AppendUint64(nil, s.n+uint64(k))
			keep(s.at.TagSend(tag, n, nil))
			keep(s.peer.TagSend(tag, n, nil))
			require.NoError(t, s.at.Fence())
			keep(s.at.Put(n, s.slot, s.key, nil))
		}
		keep(s.at.Flush())
	}
	for _, r := range reqs {
		h.finish(r, nil)
	}
	for i, s := range h.spokes {
		for k := range uint64(each) {
			require.Equal(t, s.n+k, binary.LittleEndian.Uint64(bufs[i][0][k][:]), "EP %d, to the hub", i)
			require.Equal(t, s.n+k, binary.LittleEndian.Uint64(bufs[i][1][k][:]), "EP %d, from the hub", i)
		}
		s.n += each
		require.Equal(t, s.n-1, binary.LittleEndian.Uint64(h.mem.Bytes()[8*i:]))
	}
}

// closed reports whether no EP has a lane.
func (h *idleHub) closed() bool {
	for _, s := range h.spokes {
		for _, e := range []*ucp.EP{s.at, s.peer} {
			if !e.Linked() || !e.IdleClosed() || len(kindsOf(e)) > 0 || !e.Handshake().Quiet() || !e.Carrier().Idle() {
				return false
			}
		}
	}
	return true
}

// TestIdleLanes_RealTransports: a hundred idle EPs use no descriptors and no memory of transports. Their next
// operations work, and nothing is lost or reordered.
func TestIdleLanes_RealTransports(t *testing.T) {
	tls := []string{"sm", "tcp", `\rc`}
	if testenv.Sweep() {
		tls = append(tls, "rc_mlx5", `\xrc`)
	}
	for _, tls := range tls {
		t.Run(tls, func(t *testing.T) {
			files, mem := connectedFootprint(t, tls)
			h := newIdleHub(t, tls, realIdle)
			unconnected := testenv.OpenFiles(t)
			h.connect()
			h.use(t) // transports open some descriptors once
			h.until(h.closed)
			if tls == "tcp" { // both sides close the socket later than the lanes
				h.until(func() bool { return testenv.OpenFiles(t) <= unconnected })
			}
			unusedFiles, unusedMem := testenv.OpenFiles(t), offheap.InUse()
			for round := range testenv.Rounds(3, 3) {
				h.use(t)
				h.until(h.closed)
				h.until(func() bool { // sm detects later that its peers have closed, and tcp closes later
					return testenv.OpenFiles(t) <= unusedFiles && offheap.InUse() <= unusedMem
				})
				assert.GreaterOrEqual(t, counters(h.hub)["worker.reopened_eps"], uint64((round+1)*len(h.spokes)))
			}
			t.Logf("%d EPs, connected: %d descriptors, %d KiB off the heap; idle: %d descriptors, %d KiB, of which there were %d and %d before",
				len(h.spokes), files, mem>>10, testenv.OpenFiles(t), offheap.InUse()>>10, unusedFiles, unusedMem>>10)
			for _, w := range append(h.workers, h.hub) {
				assert.Zero(t, counters(w)["worker.failed_eps"])
				assert.Zero(t, counters(w)["worker.replaced_lanes"])
			}
		})
	}
}

// connectedFootprint returns the descriptors and the memory that the EPs of a hub use if their lanes remain open.
func connectedFootprint(t *testing.T, tls string) (files int, mem int64) {
	t.Run("never", func(t *testing.T) {
		h := newIdleHub(t, tls, 0)
		files, mem = testenv.OpenFiles(t), offheap.InUse()
		h.connect()
		h.use(t)
		files, mem = testenv.OpenFiles(t)-files, offheap.InUse()-mem
		switch tls {
		case "sm", "tcp":
			assert.Positive(t, files)
		default:
			assert.Positive(t, mem)
		}
	})
	return files, mem
}

// TestIdleLanes_CannotDial: a side that cannot dial its peer does not agree to close the lanes, whether or not the peer
// shares its port.
func TestIdleLanes_CannotDial(t *testing.T) {
	for _, share := range []config.Ternary{config.Try, config.No} {
		t.Run(share.String(), func(t *testing.T) {
			conf := tcp.Config{SharePort: share}
			p := ucppair.New(t, tcpOf(conf, conf), ucp.Config{EPIdleTimeout: time.Millisecond, KeepaliveInterval: config.Infinite})
			p.Connect().Warm()
			p.Until(func() bool { return p.A.EP.IdleRefusals() >= 3 || p.A.EP.IdleClosed() })
			require.False(t, p.A.EP.IdleClosed(), p.State())
			assert.NotEmpty(t, kindsOf(p.A.EP))
		})
	}
}

// TestIdleLanes_ReservesCarrier: the lanes use rc, and only the peer can dial over tcp, which carries the handshakes. The
// side that cannot dial keeps the connection of tcp open, so that it can still send handshake messages.
func TestIdleLanes_ReservesCarrier(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("rc+tcp", `\rc`, "tcp"), ucp.Config{EPIdleTimeout: time.Millisecond, KeepaliveInterval: config.Infinite})
	p.A.Ctx.Configuration().EPIdleTimeout = 0 // this side sends no IDLE, which would connect again
	l := listen(t, &p.B, "tcp", "127.0.0.1:0", ucp.ListenConfig{})
	to, err := dialTo(p, l, ucp.DialConfig{})
	require.NoError(t, err)
	p.Until(func() bool { return len(l.peers) == 1 })
	from := l.peers[0].EP
	require.NoError(t, p.Finish(to.EP.SendActive(0, nil, []byte{1}, nil)))
	p.Until(func() bool { return from.ReservesCarrier() })
	assert.False(t, to.EP.ReservesCarrier(), "this side can dial")
	assert.NotContains(t, kindsOf(to.EP), "tcp")
	require.NoError(t, p.Finish(from.Close(ucp.CloseForce)))
	p.Until(func() bool { return to.EP.Err() != nil })
	assert.ErrorIs(t, to.EP.Err(), ucs.ErrPeerClosed)
}

// The ids of active messages of idleEchoRole.
const (
	idleEcho  = 1 // the peer sends it back
	idleReply = 2
	idleFirst = 3 // first message of the child
)

// idleEchoRole serves workers with an EP each to the worker of the parent, which send back messages. At each line of
// input each worker sends a message to the parent.
func idleEchoRole(c *roles.Side) error {
	n, err := strconv.Atoi(c.Args[1])
	if err != nil {
		return err
	}
	parent, err := ucppair.ParseRemote(c.Args[2])
	if err != nil {
		return err
	}
	ctx, err := ucppair.OpenContextWith(ucp.Config{EPIdleTimeout: realIdle, KeepaliveInterval: config.Infinite}, c.Args[0])
	if err != nil {
		return err
	}
	var sends, closers []func() error
	for range n {
		w, err := ctx.NewWorker(ucp.WorkerConfig{})
		if err != nil {
			return err
		}
		w.OnActive(idleEcho, func(m *ucp.ActiveMessage) {
			r, err := m.From.SendActive(idleReply, nil, append([]byte(nil), m.Data...), nil)
			if err == nil {
				r.Release()
			}
		})
		ep, err := w.NewEP(parent.Addr, ucp.EPConfig{})
		if err != nil {
			return err
		}
		serve := func() func() { return background(1, func(ctx context.Context) error { return w.Serve(ctx) }) }
		stop := serve()
		sends = append(sends, func() error {
			stop()
			r, err := ep.SendActive(idleFirst, nil, []byte{1}, nil)
			if err == nil {
				err = r.Wait(context.Background())
			}
			stop = serve()
			return err
		})
		closers = append(closers, func() error { stop(); return w.Close() })
		c.Printf("%v", ucppair.Remote{Addr: w.Address()})
	}
	for c.NextLine() {
		err = nil
		for _, send := range sends {
			err = errors.Join(err, send())
		}
		c.Printf("%q", fmt.Sprint(err))
	}
	for _, closeWorker := range closers {
		err = errors.Join(err, closeWorker())
	}
	return errors.Join(err, ctx.Close())
}

// TestIdleLanes_Processes: EPs to another process close their lanes. The next message of either side arrives, and
// replies arrive in order. If the process is killed meanwhile, its EP fails.
func TestIdleLanes_Processes(t *testing.T) {
	const peers = 10
	for _, tls := range []string{"sm", "tcp", `\rc`} {
		t.Run(tls, func(t *testing.T) {
			cfg := ucppair.FromEnv(t, "TLS="+tls)
			cfg.EPIdleTimeout, cfg.KeepaliveInterval = realIdle, config.Infinite // no EP connects to check its peer
			x := openIdleWorld(t, cfg)
			replies, first := map[*ucp.EP][]byte{}, 0
			x.w.OnActive(idleReply, func(m *ucp.ActiveMessage) { replies[m.From] = append(replies[m.From], m.Data...) })
			x.w.OnActive(idleFirst, func(*ucp.ActiveMessage) { first++ })
			c := roles.Start(t, "idleecho", tls, peers, ucppair.Remote{Addr: x.w.Address()})
			var eps []*ucp.EP
			for range peers {
				r, err := ucppair.ParseRemote(c.Line(t))
				require.NoError(t, err)
				ep, err := x.w.NewEP(r.Addr, ucp.EPConfig{})
				require.NoError(t, err)
				eps = append(eps, ep)
			}
			until := func(ok func() bool) {
				testenv.ProgressOr(t, testenv.Watchdog, func() bool { x.w.Progress(); return ok() }, x.w.State)
			}
			closed := func() bool {
				for _, e := range eps {
					if !e.Linked() || !e.IdleClosed() || len(kindsOf(e)) > 0 || !e.Handshake().Quiet() {
						return false
					}
				}
				return true
			}
			for round := range byte(4) {
				if round%2 == 1 {
					c.Send(t, "send")
					before := first
					until(func() bool { return first == before+peers })
					require.Equal(t, `"<nil>"`, c.Line(t))
				}
				clear(replies)
				for _, e := range eps {
					for k := range byte(5) {
						r, err := e.SendActive(idleEcho, nil, []byte{round, k}, nil)
						require.NoError(t, err)
						r.Release()
					}
				}
				until(func() bool {
					for _, e := range eps {
						if len(replies[e]) < 10 {
							return false
						}
					}
					return true
				})
				for _, e := range eps {
					require.Equal(t, []byte{round, 0, round, 1, round, 2, round, 3, round, 4}, replies[e])
				}
				inUse := testenv.OpenFiles(t)
				until(closed)
				t.Logf("descriptors: %d in use, %d idle", inUse, testenv.OpenFiles(t))
			}
			c.Kill(t)
			if tls == `\rc` { // the device has a timeout
				return
			}
			for _, e := range eps {
				r, err := e.SendActive(idleEcho, nil, []byte{1}, nil)
				if err == nil {
					r.Release()
				}
				until(func() bool { return e.Err() != nil })
			}
		})
	}
}
