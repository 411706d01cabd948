package ucp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct/all"
)

func init() { roles.Register("visit", visitRole) }

// churnWarm is the number of peers after which the resources of a server do not grow any more.
const churnWarm = 8

// TestChurn: a server has no more resources after many peers than after a few. The peers close their EP, exit without
// closing, are killed, or the server closes first.
func TestChurn(t *testing.T) {
	n := testenv.Rounds(2*len(manners), 1000)
	for _, tls := range tlsets.ProcessSets() {
		t.Run(tls, func(t *testing.T) {
			s := startServer(t, tls, visitors*slotLen)
			for i := range churnWarm {
				s.visit(t, i)
			}
			before := footprintOf(t, s.shared)
			before.eps = 0
			for i := range n {
				s.visit(t, churnWarm+i)
			}
			now := requireNoGrowth(t, s.shared, before)
			t.Logf("after %d peers %+v, after %d more %+v", churnWarm, before, n, now)
		})
	}
}

// visitors is the number of values of the server.
const visitors = 16

// forgetHalfOpen is the time after which a server fails the connection of a peer that has died during the handshake.
const forgetHalfOpen = 5 * time.Second

// manners are the ways in which peers disconnect.
var manners = []string{"close", "killed", "exit", "server"}

// longServer is a worker that goroutines share, of which one serves it, with memory that peers access.
type longServer struct {
	tls    string
	ctx    *ucp.Context
	shared *ucp.SharedWorker
	w      *ucp.Worker
	mem    *ucp.Mem
	remote ucppair.Remote
}

func startServer(t testing.TB, tls string, length int) *longServer {
	t.Helper()
	x := &longServer{tls: tls}
	var err error
	cfg := ucppair.FromEnv(t, "TLS="+tls)
	cfg.WireupTimeout = forgetHalfOpen
	x.ctx, err = ucp.NewContext(cfg, tlsets.Components(all.Config{})...)
	require.NoError(t, err)
	x.w, err = x.ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	x.mem, err = x.ctx.MemAlloc(length)
	require.NoError(t, err)
	x.remote = ucppair.Remote{Addr: x.w.Address(), Key: x.mem.Pack()}
	x.shared = x.w.Share()
	var serving sync.WaitGroup
	serving.Go(func() { _ = x.shared.Serve(context.Background()) })
	t.Cleanup(func() {
		require.NoError(t, x.shared.Close())
		serving.Wait()
		require.NoError(t, errors.Join(x.mem.Close(), x.ctx.Close()))
	})
	return x
}

// visit runs a peer that connects and disconnects.
func (x *longServer) visit(t *testing.T, i int) {
	t.Helper()
	c := roles.New(t, "visit", x.tls, i%visitors, x.remote)
	defer c.Kill(t)
	peer, err := ucppair.ParseRemote(c.Line(t))
	require.NoError(t, err)
	switch how := manners[i%len(manners)]; how {
	case "killed":
		c.Kill(t)
	case "server":
		x.closeFirst(t, peer)
		c.Send(t, how)
		c.End(t)
	default:
		c.Send(t, how)
		c.End(t)
	}
}

// closeFirst makes an EP to the peer, over the connection that the peer has made, and closes it.
func (x *longServer) closeFirst(t *testing.T, peer ucppair.Remote) {
	t.Helper()
	ctx := context.Background()
	var ep *ucp.EP
	var key *ucp.RKey
	var err error
	x.shared.Do(func(w *ucp.Worker) { ep, key, err = peer.Dial(w) })
	require.NoError(t, err)
	require.NoError(t, x.shared.Run(ctx, func() (*ucp.Request, error) { return ep.Put([]byte{7}, key.Addr(), key, nil) }))
	require.NoError(t, x.shared.Run(ctx, ep.Flush))
	x.shared.Do(func(*ucp.Worker) { key.Close() })
	require.NoError(t, x.shared.Run(ctx, func() (*ucp.Request, error) { return ep.Close(ucp.CloseFlush) }))
}

// visitRole is a peer that connects to a server. Its arguments are transports, the number of its value, and the server.
// It prints its own address, and disconnects as the parent says.
func visitRole(c *roles.Side) error {
	x, err := newVisitor(c.Args)
	if err != nil {
		return err
	}
	if err := x.touch(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	how := make(chan string, 1)
	go func() {
		if c.NextLine() {
			how <- c.In.Text()
		}
		stop()
	}()
	c.Printf("%v", ucppair.Remote{Addr: x.w.Address(), Key: x.mem.Pack()})
	if err := x.w.Serve(ctx); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serve: %v", err)
	}
	if <-how == "exit" {
		os.Exit(0)
	}
	return x.close() // the EP; the server has closed its EP too, if both had one connection
}

// visitor is a client of a server.
type visitor struct {
	ctx  *ucp.Context
	w    *ucp.Worker
	mem  *ucp.Mem
	ep   *ucp.EP
	key  *ucp.RKey
	slot uint64
}

func newVisitor(args []string) (x *visitor, err error) {
	slot, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	to, err := ucppair.ParseRemote(args[2])
	if err != nil {
		return nil, err
	}
	x = &visitor{slot: uint64(slot * slotLen)}
	if x.ctx, err = ucppair.OpenContext(args[0]); err != nil {
		return nil, err
	}
	if x.w, err = x.ctx.NewWorker(ucp.WorkerConfig{}); err != nil {
		return nil, err
	}
	if x.mem, err = x.ctx.MemAlloc(slotLen); err != nil {
		return nil, err
	}
	x.ep, x.key, err = to.Dial(x.w)
	return x, err
}

// touch writes a value and reads it back.
func (x *visitor) touch() error {
	ctx, value, got := context.Background(), testenv.Pattern(slotLen, int(x.slot)), make([]byte, slotLen)
	addr := x.key.Addr() + x.slot
	if err := x.ep.PutWait(ctx, value, addr, x.key, nil); err != nil {
		return err
	}
	if err := x.ep.FlushWait(ctx); err != nil {
		return err
	}
	if err := x.ep.GetWait(ctx, got, addr, x.key, nil); err != nil {
		return err
	}
	if string(got) != string(value) {
		return fmt.Errorf("slot at %d: not what was written", x.slot)
	}
	return nil
}

func (x *visitor) close() error {
	x.key.Close()
	err := x.ep.CloseWait(context.Background(), ucp.CloseFlush)
	return errors.Join(err, x.w.Close(), x.mem.Close(), x.ctx.Close())
}
