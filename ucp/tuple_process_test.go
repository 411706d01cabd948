package ucp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

func init() {
	roles.Register("poster", posterRole)
	roles.Register("tupler", tuplerRole)
}

const (
	posterTag   = 7
	posterHello = 8
	posterLen   = 1 << 20 // length of a message that arrives while the process is stopped, in bytes
	posterCount = 2       // number of them: into memory of the context, and of the caller
	posterShort = 64
)

// posterRole receives as its parent says: "short" receives one message and prints how many messages have used queues;
// "long" posts receives, prints that, and prints when they have the right data. Its arguments are transports, address
// of the parent, TAG_PROTO and RNDV_SCHEME.
func posterRole(c *roles.Side) error {
	w, ep, err := ucppair.ReachParentWith(c, ucp.Config{TagProto: c.Args[2], RndvScheme: c.Args[3]})
	if err != nil {
		return err
	}
	background := context.Background()
	if err := ep.TagSendSyncWait(background, posterHello, nil, nil); err != nil {
		return err
	}
	for c.NextLine() {
		if c.In.Text() == "long" {
			if err := receivePosted(c, w); err != nil {
				return err
			}
			continue
		}
		if _, err := w.TagRecvWait(background, make([]byte, posterShort), posterTag, exact, nil); err != nil {
			return err
		}
		c.Printf("%d", counters(w)["worker/tupleq.receives"])
	}
	return nil // the parent has ended
}

// receivePosted posts the receives of a posterRole and waits for them.
func receivePosted(c *roles.Side, w *ucp.Worker) error {
	mem, err := w.Context().MemAlloc(posterLen)
	if err != nil {
		return err
	}
	bufs, reqs := [posterCount][]byte{mem.Bytes(), make([]byte, posterLen)}, [posterCount]*ucp.Request{}
	for k, p := range []*ucp.OpParams{{Mem: mem}, nil} {
		if reqs[k], err = w.TagRecv(bufs[k], posterTag, exact, nil, p); err != nil {
			return err
		}
	}
	c.Printf("posted")
	for k, r := range reqs {
		if err := r.Wait(context.Background()); err != nil {
			return err
		}
		if !bytes.Equal(bufs[k], testenv.Pattern(posterLen, k)) {
			return fmt.Errorf("message %d is not what was sent", k)
		}
	}
	c.Printf("received %d through queues", counters(w)["worker/tupleq.receives"])
	return nil
}

// poster is a process of posterRole, and the worker that sends to it.
type poster struct {
	t       *testing.T
	c       *roles.Child
	x       ucppair.End
	through int // messages that the process received through queues
}

func newPoster(t *testing.T, tls string, cfg ucp.Config) *poster {
	t.Helper()
	p := &poster{t: t}
	var err error
	p.x.Ctx, err = ucppair.OpenContextWith(cfg, tls)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.x.Ctx.Close()) })
	p.x.W, err = p.x.Ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, p.x.W.Close())
		assert.Zero(t, ucp.RequestsInUse(p.x.W), "requests that were not released")
	})
	p.c = roles.Start(t, "poster", tls, fmt.Sprintf("%x", p.x.W.Address()), cfg.TagProto, cfg.RndvScheme)
	var info ucp.TagInfo
	r, err := p.x.W.TagRecv(nil, posterHello, exact, &info, nil)
	require.NoError(t, err)
	p.wait(r)
	p.x.EP = info.From
	return p
}

// wait waits for an operation, which must succeed.
func (p *poster) wait(r *ucp.Request) {
	p.t.Helper()
	if r == nil {
		return
	}
	testenv.ProgressWithin(p.t, testenv.Watchdog, func() bool {
		p.x.W.Progress()
		return r.Done()
	})
	require.NoError(p.t, r.Take())
}

// short sends a message to the process.
func (p *poster) short() {
	p.t.Helper()
	p.c.Send(p.t, "short")
	r, err := p.x.EP.TagSend(posterTag, testenv.Pattern(posterShort, 0), nil)
	require.NoError(p.t, err)
	p.wait(r)
	p.through, err = strconv.Atoi(p.c.Line(p.t))
	require.NoError(p.t, err)
}

// stop stops the process when it has posted its receives.
func (p *poster) stop() {
	p.t.Helper()
	p.c.Send(p.t, "long")
	require.Equal(p.t, "posted", p.c.Line(p.t))
	require.NoError(p.t, p.c.Process.Signal(syscall.SIGSTOP))
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(p.c.Process.Pid, &ws, syscall.WUNTRACED, nil)
	require.NoError(p.t, err)
	require.True(p.t, ws.Stopped())
}

// resume continues the process, which must still be stopped.
func (p *poster) resume() {
	p.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.c.Process.Pid))
	require.NoError(p.t, err)
	_, state, _ := strings.Cut(string(stat), ") ")
	require.Equal(p.t, "T", state[:1], "the state of the process")
	require.NoError(p.t, p.c.Process.Signal(syscall.SIGCONT))
}

// long sends the messages of posterLen, one from memory of the context, one from memory of the caller.
func (p *poster) long() (reqs []*ucp.Request) {
	p.t.Helper()
	mem, err := p.x.Ctx.MemAlloc(posterLen)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { assert.NoError(p.t, mem.Close()) })
	copy(mem.Bytes(), testenv.Pattern(posterLen, 0))
	for k, params := range []*ucp.OpParams{{Mem: mem}, nil} {
		buf := testenv.Pattern(posterLen, k)
		if params != nil {
			buf = mem.Bytes()
		}
		r, err := p.x.EP.TagSend(posterTag, buf, params)
		require.NoError(p.t, err)
		reqs = append(reqs, r)
	}
	return reqs
}

// TestTuple_TargetStopped: a send through a tuple queue completes while the process that posted the receive is stopped.
// The process has the message when it continues.
func TestTuple_TargetStopped(t *testing.T) {
	testenv.NeedCMA(t)
	cfg := tupleq
	cfg.RndvScheme = tlsets.RndvSchemes[0]
	p := newPoster(t, "xrc", cfg)
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		p.short()
		return p.through > 0
	})
	p.stop()
	for _, r := range p.long() {
		p.wait(r)
	}
	p.resume()
	assert.Equal(t, fmt.Sprintf("received %d through queues", p.through+posterCount), p.c.Line(t))
	p.c.End(t)
}

// TestRndv_TargetStopped: a message with rendezvous waits while the receiving process is stopped, also if its receive
// is posted.
func TestRndv_TargetStopped(t *testing.T) {
	for _, tls := range []string{"xrc", `\rc`} {
		for _, scheme := range []string{"get_zcopy", "put_zcopy"} {
			t.Run(tls+"/"+scheme, func(t *testing.T) {
				p := newPoster(t, tls, ucp.Config{TagProto: "auto", RndvScheme: scheme})
				p.short()
				p.stop()
				reqs := p.long()
				for range 10_000 {
					p.x.W.Progress()
				}
				for _, r := range reqs {
					require.NotNil(t, r)
					require.False(t, r.Done(), "the receiver made no progress")
				}
				p.resume()
				for _, r := range reqs {
					p.wait(r)
				}
				assert.Equal(t, "received 0 through queues", p.c.Line(t))
				p.c.End(t)
			})
		}
	}
}

const (
	tuplerTags    = 4
	tuplerSlots   = 8         // operations in progress at a time, of each class
	tuplerLongest = 256 << 10 // bytes
)

// tupleScript is the sequence of messages of one side. The other side posts receives in the same order. Then the k-th
// receive matches the k-th message, also if it has a mask: all earlier messages match earlier receives.
type tupleScript struct{ rng *rand.Rand }

func newTupleScript(seed, side uint64) tupleScript {
	return tupleScript{rand.New(rand.NewPCG(seed, side))}
}

// next returns the tag and the length of a message, and the mask of its receive.
func (s tupleScript) next() (tag, mask uint64, n int) {
	tag, mask, n = s.rng.Uint64N(tuplerTags), exact, 8<<s.rng.IntN(16)
	if s.rng.IntN(50) == 0 {
		mask = 0
	}
	return tag, mask, n
}

// tuplerOp is an operation of a tupler and its memory.
type tuplerOp struct {
	buf    []byte // tuplerLongest
	params ucp.OpParams
	told   *int // calls of OnDone
	want   int  // expected calls of OnDone
	busy   bool
	req    *ucp.Request // nil if the operation is not in progress
	k, n   int          // number and length of the message
	info   ucp.TagInfo
}

// begin starts message k, of n bytes, in s. Progress has called OnDone of the operation before it.
func (s *tuplerOp) begin(k, n int) error {
	if *s.told != s.want {
		return fmt.Errorf("the end of message %d was told %d times, want %d", s.k, *s.told, s.want)
	}
	told := 0
	s.k, s.n, s.busy, s.told = k, n, true, &told
	s.params.OnDone = func(error) { told++ }
	return nil
}

// started records the request of the operation: without one OnDone is not called.
func (s *tuplerOp) started(r *ucp.Request, err error) error {
	s.req, s.want = r, 0
	if r != nil {
		s.want = 1
	}
	return err
}

// tupler is one side of two that send each other messages of tuples.
type tupler struct {
	w            *ucp.Worker
	ep           *ucp.EP // nil until a message has arrived
	mem          *ucp.Mem
	out, in      tupleScript
	seed, peer   uint64 // of in
	sent, posted int
	received     int
	late         [tuplerTags]int // for checkLate: by tag, the first message that may be received next
	sends, recvs [tuplerSlots]tuplerOp
}

func newTupler(w *ucp.Worker) (*tupler, error) {
	x := &tupler{w: w}
	var err error
	if x.mem, err = w.Context().MemAlloc(tuplerSlots * tuplerLongest); err != nil {
		return nil, err
	}
	free := x.mem.Bytes()
	for k := range tuplerSlots {
		for _, s := range []*tuplerOp{&x.sends[k], &x.recvs[k]} {
			s.buf, s.told = make([]byte, tuplerLongest), new(int)
			if k%2 == 0 {
				s.buf, free, s.params.Mem = free[:tuplerLongest], free[tuplerLongest:], x.mem
			}
		}
	}
	return x, nil
}

// begin starts a series of messages. side is 0 or 1; the peer has the other one.
func (x *tupler) begin(seed, side uint64) {
	x.out, x.in = newTupleScript(seed, side), newTupleScript(seed, 1-side)
	x.seed, x.peer = seed, 1-side
	x.sent, x.posted, x.received = 0, 0, 0
	x.late = [tuplerTags]int{}
}

// step makes progress, removes completed operations, and starts new ones.
func (x *tupler) step() error {
	x.w.Progress()
	for k := range tuplerSlots {
		if s := &x.recvs[k]; !s.busy {
			if err := x.post(s); err != nil {
				return err
			}
		} else if s.req == nil || s.req.Done() {
			if err := x.end(s, x.check); err != nil {
				return err
			}
		}
	}
	for k := range tuplerSlots {
		if s := &x.sends[k]; !s.busy && x.ep != nil {
			if err := x.send(s); err != nil {
				return err
			}
		} else if s.busy && (s.req == nil || s.req.Done()) {
			if err := x.end(s, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *tupler) post(s *tuplerOp) error {
	tag, mask, n := x.in.next()
	if err := s.begin(x.posted, n); err != nil {
		return err
	}
	x.posted++
	return s.started(x.w.TagRecv(s.buf, tag, mask, &s.info, &s.params))
}

func (x *tupler) send(s *tuplerOp) error {
	tag, _, n := x.out.next()
	if err := s.begin(x.sent, n); err != nil {
		return err
	}
	x.sent++
	copy(s.buf, testenv.Pattern(n, s.k))
	return s.started(x.ep.TagSend(tag, s.buf[:n], &s.params))
}

// end removes the request of a completed operation, and calls check if it has succeeded.
func (x *tupler) end(s *tuplerOp, check func(s *tuplerOp) error) error {
	s.busy = false
	if r := s.req; r != nil {
		s.req = nil
		if err := r.Take(); err != nil {
			return err
		}
	}
	if check != nil {
		return check(s)
	}
	return nil
}

// check checks a received message.
func (x *tupler) check(s *tuplerOp) error {
	x.received++
	if x.ep == nil {
		x.ep = s.info.From
	}
	if s.info.Length != s.n || !bytes.Equal(s.buf[:s.n], testenv.Pattern(s.n, s.k)) {
		return fmt.Errorf("receive %d has %d bytes of tag %d, want message %d, %d bytes", s.k, s.info.Length, s.info.Tag, s.k, s.n)
	}
	return nil
}

// checkLate is check after the peer has died, in the order in which the receives were posted. Messages that were
// announced, or had to be sent again, are lost, so their receives may match later ones. The messages of a tag still
// arrive in order, and once.
func (x *tupler) checkLate(s *tuplerOp) error {
	const ahead = 1 << 12 // messages that a peer may have sent
	script := newTupleScript(x.seed, x.peer)
	for k := range s.k + ahead {
		tag, _, n := script.next()
		if k >= max(s.k, x.late[tag]) && tag == s.info.Tag && n == s.info.Length && bytes.Equal(s.buf[:n], testenv.Pattern(n, k)) {
			x.late[tag] = k + 1
			return nil
		}
	}
	return fmt.Errorf("receive %d has %d bytes of tag %d, which is no message", s.k, s.info.Length, s.info.Tag)
}

// tuplerRole is the peer of a survivor. Its arguments are transports, the address of the survivor, TAG_PROTO and the
// seed.
func tuplerRole(c *roles.Side) error {
	w, ep, err := ucppair.ReachParentWith(c, ucp.Config{TagProto: c.Args[2]})
	if err != nil {
		return err
	}
	x, err := newTupler(w)
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(c.Args[3], 10, 64)
	if err != nil {
		return err
	}
	x.ep = ep
	x.begin(seed, 1)
	return c.UntilParentEnds(func(ctx context.Context) error { return errors.Join(ctx.Err(), x.step()) })
}

// TestTuple_Killed: a process that sends and receives messages of tuples is killed at any time. The operations of its
// peer complete once, or fail with the reason. The peer receives the bytes that were sent, its memory is not written
// afterwards, and no resources of the dead process remain.
func TestTuple_Killed(t *testing.T) {
	for _, proto := range []string{"tupleq", "tupleq_copy"} {
		t.Run(proto, func(t *testing.T) {
			ctx, err := ucppair.OpenContextWith(ucp.Config{TagProto: proto}, "xrc")
			require.NoError(t, err)
			w, err := ctx.NewWorker(ucp.WorkerConfig{})
			require.NoError(t, err)
			x, err := newTupler(w)
			require.NoError(t, err)
			rng := rand.New(rand.NewPCG(5, 6))
			stat := func(name string) uint64 { return tupleStat(w, name) }
			throughQueues := func() bool { return stat("receives") > 0 && stat("sends") > 0 }
			for seed := range testenv.Rounds(5, 300) {
				count := 1 + rng.IntN(150)
				killTupler(t, x, proto, uint64(seed), func() bool { return x.received >= count && throughQueues() })
			}
			t.Logf("%d messages came through queues, %d went", stat("receives"), stat("sends"))
			require.NoError(t, errors.Join(w.Close(), x.mem.Close(), ctx.Close()))
		})
	}
}

// killTupler kills a peer after some progress.
func killTupler(t *testing.T, x *tupler, proto string, seed uint64, now func() bool) {
	x.ep = nil
	x.begin(seed, 0)
	c := roles.New(t, "tupler", "xrc", fmt.Sprintf("%x", x.w.Address()), proto, seed)
	defer c.Kill(t)
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		require.NoError(t, x.step(), "seed %d", seed)
		return now()
	})
	c.Kill(t)
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		x.w.Progress()
		return x.w.EPs().Len() == 0 && !slices.ContainsFunc(x.sends[:], func(s tuplerOp) bool {
			return s.busy && s.req != nil && !s.req.Done()
		})
	})
	x.endAll(t)
	x.nothingLeft(t)
}

// endAll completes the operations in progress after the peer has died: sends have completed, unmatched receives are
// canceled.
func (x *tupler) endAll(t *testing.T) {
	for k := range tuplerSlots {
		if s := &x.recvs[k]; s.busy && s.req != nil && !s.req.Done() {
			s.req.Cancel()
		}
	}
	var recvs []*tuplerOp
	for k := range tuplerSlots {
		x.endOne(t, &x.sends[k], nil, ucs.ErrConnReset)
		recvs = append(recvs, &x.recvs[k])
	}
	slices.SortFunc(recvs, func(a, b *tuplerOp) int { return a.k - b.k })
	for _, s := range recvs {
		x.endOne(t, s, x.checkLate, ucs.ErrConnReset, ucs.ErrCanceled)
	}
}

// endOne waits until an operation has succeeded, or failed for one of the reasons.
func (x *tupler) endOne(t *testing.T, s *tuplerOp, check func(*tuplerOp) error, reasons ...error) {
	if !s.busy {
		return
	}
	if s.req != nil {
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
			x.w.Progress()
			return s.req.Done()
		})
	}
	err := x.end(s, check)
	assert.True(t, err == nil || slices.ContainsFunc(reasons, func(r error) bool { return errors.Is(err, r) }), "%v", err)
	for range 20 {
		x.w.Progress()
	}
	assert.Equal(t, s.want, *s.told, "calls of OnDone")
}

// nothingLeft checks for late writes, and for resources of the peer at the worker.
func (x *tupler) nothingLeft(t *testing.T) {
	for k := range tuplerSlots {
		testenv.Fill(x.sends[k].buf, tlsets.ClosedByte)
		testenv.Fill(x.recvs[k].buf, tlsets.ClosedByte)
	}
	for _, _, ok := x.w.TagProbe(0, 0, false); ok; _, _, ok = x.w.TagProbe(0, 0, false) {
		_, err := x.w.TagRecv(make([]byte, tuplerLongest), 0, 0, nil, nil)
		require.NoError(t, err)
	}
	for range 100 {
		x.w.Progress()
	}
	for k := range tuplerSlots {
		assert.Equal(t, tuplerLongest, bytes.Count(x.sends[k].buf, []byte{tlsets.ClosedByte}), "written by a send")
		assert.Equal(t, tuplerLongest, bytes.Count(x.recvs[k].buf, []byte{tlsets.ClosedByte}), "written after the receive has completed")
	}
	queues, _ := x.w.TupleQueues().Queues()
	assert.Zero(t, queues, "queues of the dead peer")
	assert.False(t, x.w.TupleQueues().Paused())
	assert.Zero(t, x.w.Tags().Unexpected())
	assert.Zero(t, ucp.RequestsInUse(x.w), "requests that were not released")
}
