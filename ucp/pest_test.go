package ucp_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

func init() {
	roles.Register("pest", pestRole)
	roles.Register("pesthost", pestHostRole)
	roles.Register("pestguest", pestGuestRole)
}

// A host is a server, a guest is an honest client, and a pest is a hostile client that tries to slow the guest down.
// Each is a process.

const (
	pestPing = 1 // active message to which the host replies
	pestPong = 2
	pestNone = 3 // active message without a handler
)

// pestLimit is the timeout of the test. The table has the measured times.
const pestLimit = 60 * time.Second

// pests are the types of pests. Each continues until ctx ends, also after errors.
var pests = []pestKind{
	{"silent", (*pest).silent},
	{"trickle", (*pest).trickle},
	{"garbage", (*pest).garbage},
	{"dials", (*pest).dials},
	{"endpoints", (*pest).endpoints},
	{"tags", (*pest).tags},
	{"streams", (*pest).streams},
	{"announces", (*pest).announces},
	{"unhandled", (*pest).unhandled},
	{"neverreads", (*pest).neverReads},
}

type pestKind struct {
	name  string
	flood func(p *pest, ctx context.Context) error
}

// TestPests: a server serves an honest client while others flood it, over each transport, with each type of flood. In
// "make hostile" each flood takes ten seconds.
func TestPests(t *testing.T) {
	testenv.SkipShort(t, "processes, which use the same CPUs with any setting")
	testenv.SkipRace(t, "processes")
	for _, tls := range []string{"tcp", "sm", "all"} {
		t.Run(tls, func(t *testing.T) {
			if tls != "tcp" {
				testenv.SkipSweep(t, "as over tcp")
			}
			x := startPests(t, tls)
			x.measure("nobody", nil)
			for i, kind := range pests {
				x.measure(kind.name, []int{i})
			}
			x.measure("all of them, killed", []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
			t.Log("\n" + x.table.String())
		})
	}
}

// pestTest is a host and a guest, and the measured values.
type pestTest struct {
	t           *testing.T
	tls         string
	host, guest *roles.Child
	where, addr string
	length      time.Duration // of a flood
	table       strings.Builder
}

func startPests(t *testing.T, tls string) *pestTest {
	x := &pestTest{t: t, tls: tls, length: 300 * time.Millisecond}
	if testenv.Soak() {
		x.length = 10 * time.Second
	}
	x.host = roles.Start(t, "pesthost", tls)
	x.where, x.addr, _ = strings.Cut(x.host.Line(t), " ")
	x.guest = roles.Start(t, "pestguest", tls, x.where)
	require.Equal(t, "connected", x.guest.Line(t))
	fmt.Fprintf(&x.table, "over %s, floods of %v\n%-32s %12s %12s %12s %10s %10s\n",
		tls, x.length, "flood", "worst echo", "worst Dial", "echoes", "memory", "CPU")
	return x
}

// measure runs pests for a while, and kills several of them at random times.
func (x *pestTest) measure(name string, kinds []int) {
	var memory, later, cpu0, cpu1 int
	x.ask(x.host, "usage", "%d %d", &memory, &cpu0)
	var echo, dial, echoes int
	x.ask(x.guest, "report", "%d %d %d", &echo, &dial, &echoes) // resets the values
	for end := time.Now().Add(x.length); time.Now().Before(end); {
		x.flood(kinds, time.Until(end))
	}
	x.ask(x.guest, "report", "%d %d %d", &echo, &dial, &echoes)
	x.ask(x.host, "usage", "%d %d", &later, &cpu1)
	fmt.Fprintf(&x.table, "%-32s %12v %12v %12d %7d KiB %7d ms\n", name,
		time.Duration(echo)*time.Microsecond, time.Duration(dial)*time.Microsecond, echoes, later-memory, cpu1-cpu0)
}

func (x *pestTest) flood(kinds []int, most time.Duration) {
	length := most
	if len(kinds) > 1 {
		length = min(most, 200*time.Millisecond)
	}
	children := make([]*roles.Child, len(kinds))
	for i, kind := range kinds {
		children[i] = roles.New(x.t, "pest", x.tls, x.where, x.addr, kind)
	}
	for _, c := range children {
		require.Equal(x.t, "begins", c.Line(x.t))
	}
	time.Sleep(length)
	for _, c := range children {
		c.Kill(x.t)
	}
}

func (x *pestTest) ask(c *roles.Child, what, form string, results ...any) {
	x.t.Helper()
	c.Send(x.t, what)
	line := c.Line(x.t)
	_, err := fmt.Sscanf(line, form, results...)
	require.NoError(x.t, err, line)
}

// openWorker opens a worker over the transports of the first argument.
func openWorker(c *roles.Side) (*ucp.Worker, error) {
	ctx, err := ucppair.OpenContextWith(ucp.Config{}, c.Args[0])
	if err != nil {
		return nil, err
	}
	return ctx.NewWorker(ucp.WorkerConfig{})
}

// pestHostRole serves until its parent ends. It replies to pings, and reports its memory in KiB and its CPU time in ms.
func pestHostRole(c *roles.Side) error {
	w, err := openWorker(c)
	if err != nil {
		return err
	}
	w.OnActive(pestPing, func(m *ucp.ActiveMessage) {
		// If the window of the guest is full, the reply is dropped: the guest must receive first.
		if r, _ := m.From.SendActive(pestPong, nil, m.Data, nil); r != nil {
			r.Release()
		}
	})
	l, err := w.Listen(context.Background(), "tcp", "127.0.0.1:0", ucp.ListenConfig{})
	if err != nil {
		return err
	}
	c.Printf("%s %x", l.Addr(), w.Address())
	s := w.Share()
	serving, stop := context.WithCancel(context.Background())
	go func() {
		for c.NextLine() {
			s.Do(func(*ucp.Worker) { debug.FreeOSMemory() })
			kib, err := residentKiB()
			if err != nil {
				panic(err)
			}
			c.Printf("%d %d", kib, testenv.CPUTime().Milliseconds())
		}
		stop()
	}()
	if err := s.Serve(serving); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// residentKiB returns the resident memory of the process, shared or not.
func residentKiB() (kib int, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(status), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, err = fmt.Sscanf(rest, "%d", &kib)
			return kib, err
		}
	}
	return 0, errors.New("no VmRSS in /proc/self/status")
}

// pestGuest is an honest client.
type pestGuest struct {
	w     *ucp.Worker
	ep    *ucp.EP
	where string
	pongs int

	echo, dial time.Duration // the maxima
	echoes     int
}

// pestGuestRole sends pings and dials. It reports the maximum times of both in microseconds.
func pestGuestRole(c *roles.Side) error {
	w, err := openWorker(c)
	if err != nil {
		return err
	}
	g := &pestGuest{w: w, where: c.Args[1]}
	w.OnActive(pestPong, func(*ucp.ActiveMessage) { g.pongs++ })
	limit, stop := context.WithTimeout(context.Background(), pestLimit)
	defer stop()
	p, err := w.Dial(limit, "tcp", g.where, ucp.DialConfig{})
	if err != nil {
		return err
	}
	g.ep = p.EP
	c.Printf("connected")
	asked := make(chan struct{})
	go func() {
		for c.NextLine() {
			asked <- struct{}{}
		}
		close(asked)
	}()
	for {
		select {
		case _, ok := <-asked:
			if !ok {
				return nil
			}
			c.Printf("%d %d %d", g.echo.Microseconds(), g.dial.Microseconds(), g.echoes)
			g.echo, g.dial, g.echoes = 0, 0, 0
		default:
			if err := g.step(); err != nil {
				return err
			}
		}
	}
}

// step sends 20 pings, one after the other, and dials once.
func (g *pestGuest) step() error {
	ctx, stop := context.WithTimeout(context.Background(), pestLimit)
	defer stop()
	for range 20 {
		start, pongs := time.Now(), g.pongs
		r, err := g.ep.SendActive(pestPing, nil, []byte("hello"), nil)
		if err == nil && r != nil {
			err = g.w.FinishBlocking(ctx, r, nil)
		}
		if err == nil {
			err = g.w.Until(ctx, func() bool { return g.pongs > pongs })
		}
		if err != nil {
			return fmt.Errorf("a ping: %w", err)
		}
		g.echo = max(g.echo, time.Since(start))
		g.echoes++
	}
	start := time.Now()
	p, err := g.w.Dial(ctx, "tcp", g.where, ucp.DialConfig{})
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	g.dial = max(g.dial, time.Since(start))
	return p.EP.CloseWait(ctx, ucp.CloseFlush)
}

// pest is a hostile client that floods a host.
type pest struct {
	where string
	addr  []byte
	w     *ucp.Worker
}

// pestRole floods until its parent kills it.
func pestRole(c *roles.Side) error {
	addr, err := hex.DecodeString(c.Args[2])
	if err != nil {
		return err
	}
	w, err := openWorker(c)
	if err != nil {
		return err
	}
	c.Printf("begins")
	number, err := strconv.Atoi(c.Args[3])
	if err != nil {
		return err
	}
	p := &pest{where: c.Args[1], addr: addr, w: w}
	return c.UntilParentEnds(func(ctx context.Context) error {
		_ = pests[number].flood(p, ctx) // errors are expected
		<-ctx.Done()
		return ctx.Err()
	})
}

// silent connects a thousand times, and sends nothing.
func (p *pest) silent(ctx context.Context) error {
	return p.connect(ctx, 1000, nil)
}

// trickle sends one byte of a message now and then, over 200 connections.
func (p *pest) trickle(ctx context.Context) error {
	return p.connect(ctx, 200, []byte("GXBS\x01\x00\x01\x00\xff\x2f\x00\x00aaaaaaaaaaaaaaaaaaaaaaaa"))
}

// connect keeps n connections open, and sends data byte by byte.
func (p *pest) connect(ctx context.Context, n int, slowly []byte) error {
	var conns []net.Conn
	for range n {
		conn, err := net.DialTimeout("tcp", p.where, time.Second)
		if err != nil {
			break
		}
		conns = append(conns, conn)
	}
	for i := 0; ctx.Err() == nil; i++ {
		if len(slowly) > 0 {
			for _, conn := range conns {
				_, _ = conn.Write(slowly[i%len(slowly):][:1])
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// garbage connects again and again and sends random bytes.
func (p *pest) garbage(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(1, 2))
	for ctx.Err() == nil {
		conn, err := net.DialTimeout("tcp", p.where, time.Second)
		if err != nil {
			continue
		}
		b := make([]byte, rng.IntN(4096))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		copy(b, []string{"GXBS", "GXCP", "GET ", "\x16\x03\x01"}[rng.IntN(4)])
		_, _ = conn.Write(b)
		_ = conn.Close()
	}
	return nil
}

// dials connects correctly, and disconnects at once.
func (p *pest) dials(ctx context.Context) error {
	for ctx.Err() == nil {
		if x, err := p.w.Dial(ctx, "tcp", p.where, ucp.DialConfig{}); err == nil {
			_ = x.EP.CloseWait(ctx, ucp.CloseForce)
		}
	}
	return nil
}

// endpoints makes as many EPs as it can, 20,000 at most.
func (p *pest) endpoints(ctx context.Context) error {
	for range 20000 {
		e, err := p.w.NewEP(p.addr, ucp.EPConfig{})
		if err != nil {
			return err
		}
		_, _ = e.SendActive(pestNone, nil, []byte("x"), nil)
		p.w.Progress()
	}
	return p.progress(ctx)
}

func (p *pest) progress(ctx context.Context) error {
	return p.w.Until(ctx, func() bool { return false })
}

// fill sends over 64 EPs until it has no more credit, and then keeps the EPs open.
func (p *pest) fill(ctx context.Context, send func(e *ucp.EP) (*ucp.Request, error)) error {
	var eps []*ucp.EP
	for range 64 {
		e, err := p.w.NewEP(p.addr, ucp.EPConfig{})
		if err != nil {
			return err
		}
		eps = append(eps, e)
	}
	for range 5000 {
		for _, e := range eps {
			if _, err := send(e); err != nil && !errors.Is(err, ucs.ErrNoResource) {
				return err
			}
		}
		p.w.Progress()
		if ctx.Err() != nil {
			return nil
		}
	}
	return p.progress(ctx)
}

// tags sends messages that no receive matches.
func (p *pest) tags(ctx context.Context) error {
	b := make([]byte, 4000)
	return p.fill(ctx, func(e *ucp.EP) (*ucp.Request, error) { return e.TagSend(99, b, nil) })
}

// streams sends stream data that is not read.
func (p *pest) streams(ctx context.Context) error {
	b := make([]byte, 4000)
	return p.fill(ctx, func(e *ucp.EP) (*ucp.Request, error) { return e.StreamSend(b, nil) })
}

// announces sends large messages that no receive matches.
func (p *pest) announces(ctx context.Context) error {
	b := make([]byte, 1<<20)
	return p.fill(ctx, func(e *ucp.EP) (*ucp.Request, error) { return e.TagSend(99, b, nil) })
}

// unhandled sends messages without a handler, as fast as it can.
func (p *pest) unhandled(ctx context.Context) error {
	e, err := p.w.NewEP(p.addr, ucp.EPConfig{})
	for err == nil && ctx.Err() == nil {
		var r *ucp.Request
		if r, err = e.SendActive(pestNone, nil, make([]byte, 100), nil); r != nil {
			err = p.w.FinishBlocking(ctx, r, err)
		}
		p.w.Progress()
	}
	return err
}

// neverReads sends requests and does not read the replies.
func (p *pest) neverReads(ctx context.Context) error {
	e, err := p.w.NewEP(p.addr, ucp.EPConfig{})
	if err != nil {
		return err
	}
	if err := e.FlushWait(ctx); err != nil {
		return err
	}
	b := make([]byte, 1000)
	for range 100000 {
		if _, err := e.SendActive(pestPing, nil, b, nil); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}
