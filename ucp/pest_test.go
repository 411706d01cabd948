package ucp

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
	"github.com/gucx/gucx/ucs"
)

// A host is a server as a service has it, a guest an honest client of it, and a pest is one of those that
// do what it can to get in the guest's way. They are processes of their own.

const (
	pestPing = 1 // active message that the host answers
	pestPong = 2
	pestNone = 3 // active message that has no handler
)

// pestLimit is how long anything may take before the test gives up. It is no claim: the table says how
// long it took.
const pestLimit = 60 * time.Second

// pests are the kinds of them. Each goes on until ctx ends; what it could not do does not matter.
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

// TestPests: an honest client is served while others flood its server, over each kind of transport and by
// each kind of flood. "make hostile" has each of them go on for ten seconds.
func TestPests(t *testing.T) {
	testenv.SkipShort(t, "processes, which have the same processors anyway")
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

// pestTest is a host and a guest, and what was measured.
type pestTest struct {
	t           *testing.T
	tls         string
	host, guest *child
	where, addr string
	length      time.Duration // of a flood
	table       strings.Builder
}

func startPests(t *testing.T, tls string) *pestTest {
	x := &pestTest{t: t, tls: tls, length: 300 * time.Millisecond}
	if testenv.Soak() {
		x.length = 10 * time.Second
	}
	x.host = startChild(t, "pesthost", tls)
	x.where, x.addr, _ = strings.Cut(x.host.line(t), " ")
	x.guest = startChild(t, "pestguest", tls, x.where)
	require.Equal(t, "connected", x.guest.line(t))
	fmt.Fprintf(&x.table, "over %s, floods of %v\n%-32s %12s %12s %12s %10s %10s\n",
		tls, x.length, "flood", "worst echo", "worst Dial", "echoes", "memory", "CPU")
	return x
}

// measure has pests at work for a while; several of them are killed in the middle of what they do, again
// and again.
func (x *pestTest) measure(name string, kinds []int) {
	var memory, later, cpu0, cpu1 int
	x.ask(x.host, "usage", "%d %d", &memory, &cpu0)
	var echo, dial, echoes int
	x.ask(x.guest, "report", "%d %d %d", &echo, &dial, &echoes) // what was before is left out
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
	children := make([]*child, len(kinds))
	for i, kind := range kinds {
		children[i] = newChild(x.t, "pest", x.tls, x.where, x.addr, kind)
	}
	for _, c := range children {
		require.Equal(x.t, "begins", c.line(x.t))
	}
	time.Sleep(length)
	for _, c := range children {
		c.kill(x.t)
	}
}

func (x *pestTest) ask(c *child, what, form string, results ...any) {
	x.t.Helper()
	c.tell(x.t, what)
	line := c.line(x.t)
	_, err := fmt.Sscanf(line, form, results...)
	require.NoError(x.t, err, line)
}

// openWorker opens a worker over the transports of the first argument.
func (c *childSide) openWorker() (*Worker, error) {
	ctx, err := openContextWith(Config{}, c.args[0])
	if err != nil {
		return nil, err
	}
	return ctx.NewWorker(WorkerConfig{})
}

// pestHostRole serves until its parent goes: it answers pings, and tells of its memory in KiB, and of its
// CPU time in milliseconds.
func pestHostRole(c *childSide) error {
	w, err := c.openWorker()
	if err != nil {
		return err
	}
	w.OnActive(pestPing, func(m *ActiveMessage) {
		// A full window is the guest's to empty: an answer that does not go at once is not waited for.
		if r, _ := m.From.SendActive(pestPong, nil, m.Data, nil); r != nil {
			r.Release()
		}
	})
	l, err := w.Listen(context.Background(), "tcp", "127.0.0.1:0", ListenConfig{})
	if err != nil {
		return err
	}
	c.say("%s %x", l.Addr(), w.Address())
	s := w.Share()
	serving, stop := context.WithCancel(context.Background())
	go func() {
		for c.nextLine() {
			s.Do(func(*Worker) { debug.FreeOSMemory() })
			kib, err := residentKiB()
			if err != nil {
				panic(err)
			}
			c.say("%d %d", kib, cpuTime().Milliseconds())
		}
		stop()
	}()
	if err := s.Serve(serving); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// residentKiB is the memory of the process that is in use, shared or not.
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
	w     *Worker
	ep    *EP
	where string
	pongs int

	echo, dial time.Duration // the longest
	echoes     int
}

// pestGuestRole sends pings and dials, and tells of the longest of both in microseconds when it is asked.
func pestGuestRole(c *childSide) error {
	w, err := c.openWorker()
	if err != nil {
		return err
	}
	g := &pestGuest{w: w, where: c.args[1]}
	w.OnActive(pestPong, func(*ActiveMessage) { g.pongs++ })
	limit, stop := context.WithTimeout(context.Background(), pestLimit)
	defer stop()
	p, err := w.Dial(limit, "tcp", g.where, DialConfig{})
	if err != nil {
		return err
	}
	g.ep = p.EP
	c.say("connected")
	asked := make(chan struct{})
	go func() {
		for c.nextLine() {
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
			c.say("%d %d %d", g.echo.Microseconds(), g.dial.Microseconds(), g.echoes)
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
			err = g.w.finishBlocking(ctx, r, nil)
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
	p, err := g.w.Dial(ctx, "tcp", g.where, DialConfig{})
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	g.dial = max(g.dial, time.Since(start))
	return p.EP.CloseWait(ctx, CloseFlush)
}

// pest is one that floods a host.
type pest struct {
	where string
	addr  []byte
	w     *Worker
}

// pestRole floods until its parent kills it.
func pestRole(c *childSide) error {
	addr, err := hex.DecodeString(c.args[2])
	if err != nil {
		return err
	}
	w, err := c.openWorker()
	if err != nil {
		return err
	}
	c.say("begins")
	number, err := strconv.Atoi(c.args[3])
	if err != nil {
		return err
	}
	p := &pest{where: c.args[1], addr: addr, w: w}
	return c.untilParentGoes(func(ctx context.Context) error {
		_ = pests[number].flood(p, ctx) // what it was refused
		<-ctx.Done()
		return ctx.Err()
	})
}

// silent connects a thousand times, and says nothing.
func (p *pest) silent(ctx context.Context) error {
	return p.connect(ctx, 1000, nil)
}

// trickle says one byte of a message now and then, over 200 connections.
func (p *pest) trickle(ctx context.Context) error {
	return p.connect(ctx, 200, []byte("GXBS\x01\x00\x01\x00\xff\x2f\x00\x00aaaaaaaaaaaaaaaaaaaaaaaa"))
}

// connect holds n connections, and sends what is given byte by byte.
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

// garbage connects again and again and sends anything.
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

// dials connects as it should, and leaves at once.
func (p *pest) dials(ctx context.Context) error {
	for ctx.Err() == nil {
		if x, err := p.w.Dial(ctx, "tcp", p.where, DialConfig{}); err == nil {
			_ = x.EP.CloseWait(ctx, CloseForce)
		}
	}
	return nil
}

// endpoints makes as many as it gets, 20,000 at most.
func (p *pest) endpoints(ctx context.Context) error {
	for range 20000 {
		e, err := p.w.NewEP(p.addr, EPConfig{})
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

// fill sends by 64 endpoints until nothing goes any more, and then keeps what it has.
func (p *pest) fill(ctx context.Context, send func(e *EP) (*Request, error)) error {
	var eps []*EP
	for range 64 {
		e, err := p.w.NewEP(p.addr, EPConfig{})
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

// tags sends messages that nobody receives.
func (p *pest) tags(ctx context.Context) error {
	b := make([]byte, 4000)
	return p.fill(ctx, func(e *EP) (*Request, error) { return e.TagSend(99, b, nil) })
}

// streams sends bytes that nobody reads.
func (p *pest) streams(ctx context.Context) error {
	b := make([]byte, 4000)
	return p.fill(ctx, func(e *EP) (*Request, error) { return e.StreamSend(b, nil) })
}

// announces sends long messages that nobody receives.
func (p *pest) announces(ctx context.Context) error {
	b := make([]byte, 1<<20)
	return p.fill(ctx, func(e *EP) (*Request, error) { return e.TagSend(99, b, nil) })
}

// unhandled sends messages that nobody handles, as fast as it can.
func (p *pest) unhandled(ctx context.Context) error {
	e, err := p.w.NewEP(p.addr, EPConfig{})
	for err == nil && ctx.Err() == nil {
		var r *Request
		if r, err = e.SendActive(pestNone, nil, make([]byte, 100), nil); r != nil {
			err = p.w.finishBlocking(ctx, r, err)
		}
		p.w.Progress()
	}
	return err
}

// neverReads asks for answers and does not take them.
func (p *pest) neverReads(ctx context.Context) error {
	e, err := p.w.NewEP(p.addr, EPConfig{})
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
