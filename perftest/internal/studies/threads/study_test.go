package threads

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/peers/children"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
	"github.com/gucx/gucx/ucp"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// open opens a context with a single transport.
func open(w Where) (*ucp.Context, error) {
	cfg, err := gucx.FromEnv(append(os.Environ(), "GUCX_TLS="+ucp.Exact(w.Transport)), gucx.Own{})
	if err != nil {
		return nil, err
	}
	return cfg.Open()
}

// served runs a target on the other side of a pipe. Its Close closes the connection and returns the error of the
// target.
type served struct {
	conn net.Conn
	done chan error
}

func (s *served) Close() error { return errors.Join(s.conn.Close(), <-s.done) }

func startTarget(ctx context.Context, serve func(ctx context.Context, c net.Conn) error) children.Start {
	return func() (net.Conn, io.Closer, error) {
		here, there := net.Pipe()
		s := &served{here, make(chan error, 1)}
		go func() { s.done <- serve(ctx, there) }()
		return here, s, nil
	}
}

func target(ctx context.Context, c net.Conn) error { return Serve(ctx, c, open) }

func initiator(ctx context.Context, c net.Conn) error {
	return ServeInitiator(ctx, c, open, startTarget(ctx, target))
}

func startBoth(ctx context.Context) Starts {
	return Starts{Target: startTarget(ctx, target), Initiator: startTarget(ctx, initiator)}
}

// inOneProcess returns the modes with the initiator in this process.
func inOneProcess() []Mode { return []Mode{Single, Serialized, Multi} }

// bounded returns a context that ends after the time limit of a hang.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
	t.Cleanup(cancel)
	return ctx
}

// different returns the tests, without those that run the same code as others.
func different() []Test {
	return slices.DeleteFunc(Tests(), func(t Test) bool { return strings.HasSuffix(t.Name, "_bw") })
}

// Each test runs in each mode, with eager and rendezvous messages.
func TestStudy(t *testing.T) {
	for _, transport := range []string{"sm", "tcp", "rc"} {
		t.Run(transport, func(t *testing.T) {
			s := &Study{Where: Where{Transport: transport}, Tests: different(), Sizes: []int{1, 100, 70_000},
				Threads: []int{1, 2}, Modes: Modes(), Iterations: 6, Warmup: 2, Rounds: 2, Window: 4}
			if testing.Short() {
				s.Sizes, s.Threads, s.Rounds = s.Sizes[1:], s.Threads[1:], 1
			}
			require.NoError(t, s.Check())
			ctx := bounded(t)
			rows, err := s.Run(ctx, open, startBoth(ctx), nil)
			require.NoError(t, err)
			each := 0
			for _, n := range s.Threads {
				each += len(s.Tests) * len(s.Sizes) * len(s.Modes) * n
			}
			require.Len(t, rows, s.Cases()+each, "a row for all threads, and one for each")
			for _, r := range rows {
				assert.Positive(t, r.NS, "%+v", r)
				assert.LessOrEqual(t, r.Slowest, r.Fastest, "%+v", r)
				assert.Positive(t, r.Slowest, "%+v", r)
			}
			var out strings.Builder
			require.NoError(t, Sheet(nil, nil, rows, false).Write(&out, "csv"))
			assert.Equal(t, s.Cases(), strings.Count(out.String(), ",all,"))
			assert.Equal(t, 1+s.Cases(), strings.Count(out.String(), "\n"))
		})
	}
}

// Wrong data is reported, whether the first byte differs, the last one or, before the clock runs, a byte between
// them.
func TestStudy_DetectsWrongData(t *testing.T) {
	ctx := bounded(t)
	p, err := newPair(ctx, job{Where: Where{Transport: "sm"}, Mode: Multi, Threads: 2, Memory: 1 << 10}, open, startTarget(ctx, target))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.close()) }()
	l := p.node.lanes[1]
	right := l.starts
	for _, test := range different() {
		for _, at := range []int{0, 20, 63} {
			l.corrupt(at)
			_, err = p.run(Part{Test: test, Size: 64, Window: 4, Warm: 1, Windows: 2, Seed: 5})
			require.ErrorIs(t, err, ErrData, "%s, byte %d", test.Name, at)
			l.starts = right
		}
	}
}

// wrongByte is neither the number of the lane nor, at these places, a byte of its pattern.
const wrongByte = 0xee

// corrupt makes the lane change a byte of the data that it sends and puts, before the post, and of the data that it
// gets, after the post: over sm a get completes in the call.
func (l *lane) corrupt(at int) {
	for _, start := range []*func() (*ucp.Request, error){&l.starts.send, &l.starts.active, &l.starts.put} {
		do := *start
		*start = func() (*ucp.Request, error) {
			l.out[l.slot*l.part.Size%len(l.out):][at] = wrongByte // one slot has the data of puts
			return do()
		}
	}
	get := l.starts.get
	l.starts.get = func() (r *ucp.Request, err error) {
		r, err = get()
		l.out[at] = wrongByte
		return r, err
	}
}

// If the allocation of memory fails, no object remains open: TestMain checks that.
func TestOpenNode_Fails(t *testing.T) {
	for _, m := range inOneProcess() {
		_, err := openNode(job{Where: Where{Transport: "sm"}, Mode: m, Threads: 2, Memory: 1 << 60}, open)
		require.ErrorContains(t, err, "invalid parameter", "%s", m)
	}
}

// When the target dies, the goroutines and the measurement end.
func TestStudy_TargetDies(t *testing.T) {
	ctx := bounded(t)
	for _, m := range inOneProcess() {
		for _, name := range []string{"am_lat", "tag_mr", "get_lat"} {
			t.Run(string(m)+"/"+name, func(t *testing.T) {
				test, err := ParseTest(name)
				require.NoError(t, err)
				p, err := newPair(ctx, job{Where: Where{Transport: "tcp"}, Mode: m, Threads: 2, Memory: 1 << 10}, open, startTarget(ctx, mortal))
				require.NoError(t, err)
				_, err = p.run(Part{Test: test, Size: 64, Window: 4, Warm: 1, Windows: 2})
				require.Error(t, err)
				require.NoError(t, p.close())
			})
		}
	}
}

// TestServe_EndsWithInitiator: a target returns without an error when its initiator is gone during a part.
func TestServe_EndsWithInitiator(t *testing.T) {
	ctx := bounded(t)
	here, there, err := oob.Pipe()
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, there, open) }()
	start := func() (net.Conn, io.Closer, error) { return here, here, nil }
	p, err := newPair(ctx, job{Where: Where{Transport: "tcp"}, Mode: Single, Threads: 2, Memory: 1 << 10}, open, start)
	require.NoError(t, err)
	test, err := ParseTest("am_lat")
	require.NoError(t, err)
	part := Part{Test: test, Size: 64, Window: 4, Warm: 1, Windows: 2}
	_, err = children.Query[struct{}](p.target, func(int) any { return part })
	require.NoError(t, err)
	require.NoError(t, p.close())
	assert.NoError(t, <-served)
}

// mortal is a target that receives a part and then exits.
func mortal(_ context.Context, c net.Conn) error {
	line := children.NewLine(c)
	var j job
	if err := line.Receive(&j); err != nil {
		return err
	}
	n, err := openNode(j, open)
	if err != nil {
		return err
	}
	var theirs contact
	err = errors.Join(line.Reply(n.contact(), nil), line.Receive(&theirs), n.connect(theirs), line.Reply(nil, nil),
		line.Receive(&Part{}), line.Reply(nil, nil), c.Close())
	return errors.Join(err, n.undo.Run())
}

// TestPairs_DetectsWrongData: wrong data of one pair is ErrData for all.
func TestPairs_DetectsWrongData(t *testing.T) {
	_, err := together([]outcome{{}, {Wrong: "byte 3"}})
	require.ErrorIs(t, err, ErrData)
	assert.ErrorContains(t, err, "pair 1: byte 3")
}

// TestPairs_Together: the time of all pairs is from the first start to the last end.
func TestPairs_Together(t *testing.T) {
	all, err := together([]outcome{{Times: times{All: 30, Begin: 20, End: 50}}, {Times: times{All: 25, Begin: 10, End: 35}}})
	require.NoError(t, err)
	assert.Equal(t, times{All: 40, Each: []time.Duration{30, 25}, Begin: 10, End: 50}, all)
}

// TestPairs_InitiatorDies: when an initiator dies, the others and the measurement end.
func TestPairs_InitiatorDies(t *testing.T) {
	ctx := bounded(t)
	var dead atomic.Bool
	p, err := newPairs(ctx, job{Where: Where{Transport: "sm"}, Mode: Processes, Threads: 2, Memory: 1 << 10}, startTarget(ctx, func(ctx context.Context, c net.Conn) error {
		if dead.Swap(true) {
			return initiator(ctx, c)
		}
		line := children.NewLine(c)
		return errors.Join(line.Receive(&job{}), line.Reply(nil, nil), line.Receive(&Part{}), c.Close())
	}))
	require.NoError(t, err)
	test, err := ParseTest("am_lat")
	require.NoError(t, err)
	_, err = p.run(Part{Test: test, Size: 64, Window: 4, Warm: 1, Windows: 2})
	require.ErrorIs(t, err, children.ErrGone)
	require.NoError(t, p.close())
}

// TestQuiet: garbage collection is enabled again when the last measurement has ended, in any order.
func TestQuiet(t *testing.T) {
	was := debug.SetGCPercent(70)
	defer debug.SetGCPercent(was)
	percent := func() int {
		p := debug.SetGCPercent(-1)
		debug.SetGCPercent(p)
		return p
	}
	first, second := quiet(), quiet()
	first()
	assert.Equal(t, -1, percent())
	second()
	assert.Equal(t, 70, percent())
}

func TestRowsOf(t *testing.T) {
	round := func(all, a, b time.Duration) times { return times{All: all, Each: []time.Duration{a, b}} }
	rows := rowsOf(job{Mode: Multi, Threads: 2}, Tests()[0], 8, 10, []times{round(200, 100, 200), round(400, 100, 400), round(1000, 1000, 50)})
	require.Len(t, rows, 3)
	assert.Equal(t, Row{Test: "am_lat", Size: 8, Mode: Multi, Threads: 2, Thread: All, NS: 20, Rate: 5e7,
		MiB: 5e7 * 8 / (1 << 20), Slowest: 5e7, Fastest: 1e8}, rows[0])
	assert.Equal(t, 10.0, rows[1].NS)
	assert.Equal(t, 20.0, rows[2].NS)
}

func TestStudy_Check(t *testing.T) {
	good := Study{Tests: Tests(), Sizes: []int{8}, Threads: []int{MaxThreads}, Modes: Modes(), Iterations: 1, Rounds: 1, Window: 1}
	require.NoError(t, good.Check())
	for name, spoil := range map[string]func(*Study){
		"no tests":    func(s *Study) { s.Tests = nil },
		"no threads":  func(s *Study) { s.Threads = []int{0} },
		"too many":    func(s *Study) { s.Threads = []int{MaxThreads + 1} },
		"no bytes":    func(s *Study) { s.Sizes = []int{0} },
		"too long":    func(s *Study) { s.Sizes = []int{MaxSize + 1} },
		"no window":   func(s *Study) { s.Window = 0 },
		"no rounds":   func(s *Study) { s.Rounds = 0 },
		"no modes":    func(s *Study) { s.Modes = nil },
		"no warm-up?": func(s *Study) { s.Warmup = -1 },
	} {
		s := good
		spoil(&s)
		assert.ErrorIs(t, s.Check(), ErrStudy, name)
	}
}
