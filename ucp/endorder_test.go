package ucp_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/endorder.txt")

// TestEndOrder records the order in which an EP completes, fails or drops operations: requests of each class,
// callbacks, received messages, streams and keys, for each reason. What the caller observes must not depend on how the
// worker finds its protocols.
func TestEndOrder(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	const file = "testdata/endorder.txt"
	recorded := map[string][]string{}
	if !*rewrite {
		recorded = readEndOrder(t, file)
	}
	var b strings.Builder
	for _, set := range []struct {
		name  string
		cfg   ucp.Config
		kinds []faketp.Kind
	}{
		{"rc+ud", ucp.Config{}, []faketp.Kind{faketp.LikeRC(), faketp.LikeUD()}},
		{"tcp, fragments", ucp.Config{RndvScheme: "am"}, []faketp.Kind{faketp.LikeTCP()}},
		{"sm, tupleq", ucp.Config{TagProto: "tupleq"}, []faketp.Kind{faketp.LikeSM()}},
	} {
		for _, how := range endings {
			for _, connected := range []bool{true, false} {
				if !connected && !how.unconnected {
					continue
				}
				title := fmt.Sprintf("%s, connected %t: %s", set.name, connected, how.name)
				t.Run(title, func(t *testing.T) {
					cfg := set.cfg
					cfg.EagerWindow = 32 << 10
					x := newEndOrder(t, cfg, set.kinds)
					x.run(connected, how.end)
					fmt.Fprintf(&b, "# %s\n%s", title, strings.ReplaceAll(strings.Join(x.lines, "; "), "; - ", "\n- "))
					b.WriteString("\n")
					if !*rewrite {
						assert.Equal(t, recorded[title], x.lines)
					}
				})
			}
		}
	}
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
}

// readEndOrder returns what was observed, by the titles of the file.
func readEndOrder(t *testing.T, file string) map[string][]string {
	all, err := os.ReadFile(file)
	require.NoError(t, err)
	recorded := map[string][]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimSpace(string(all)), "# "), "\n# ") {
		title, lines, _ := strings.Cut(part, "\n")
		recorded[title] = strings.Split(strings.ReplaceAll(lines, "\n", "; "), "; ")
	}
	return recorded
}

// endings are the reasons why EPs close or fail.
var endings = []struct {
	name        string
	unconnected bool // also before the EP has connected
	end         func(x *endOrder)
}{
	{"a closes", true, func(x *endOrder) { x.close("a", &x.A, ucp.CloseFlush) }},
	{"a closes by force", true, func(x *endOrder) { x.close("a", &x.A, ucp.CloseForce) }},
	{"a closes, then by force", false, func(x *endOrder) {
		x.close("a", &x.A, ucp.CloseFlush)
		idle(x.Pair)
		x.close("a", &x.A, ucp.CloseForce)
	}},
	{"b closes", false, func(x *endOrder) { x.close("b", &x.B, ucp.CloseFlush) }},
	{"b closes by force", false, func(x *endOrder) { x.close("b", &x.B, ucp.CloseForce) }},
	{"both close", false, func(x *endOrder) {
		x.close("a", &x.A, ucp.CloseFlush)
		x.close("b", &x.B, ucp.CloseFlush)
	}},
	{"a fails", true, func(x *endOrder) { x.A.EP.Fail(ucs.StatusTimedOut, ucs.ErrTimedOut, nil) }},
	{"a's lane fails", false, func(x *endOrder) { x.lane(&x.A).Fail(ucs.StatusTimedOut) }},
	{"b's lane fails", false, func(x *endOrder) { x.lane(&x.B).Fail(ucs.StatusTimedOut) }},
	{"b is killed", false, func(x *endOrder) {
		for _, i := range x.f.Ifaces[len(x.f.Ifaces)/2:] {
			i.Kill()
		}
	}},
	{"a's worker closes", true, func(x *endOrder) { require.NoError(x.T, x.A.W.Close()) }},
	{"b's worker closes", false, func(x *endOrder) { require.NoError(x.T, x.B.W.Close()) }},
	{"b is to fail at the next progress", false, func(x *endOrder) {
		x.B.EP.MarkFailed(ucs.StatusRemoteInvalid, ucs.ErrRemoteInvalid, nil)
	}},
}

// endOrder is a pair of workers and what their callers observe.
type endOrder struct {
	*ucppair.Pair
	f     *faketp.Fabric
	kept  *ucp.ActiveMessage
	lines []string
}

func newEndOrder(t *testing.T, cfg ucp.Config, kinds []faketp.Kind) *endOrder {
	p, f := ucppair.Fake(t, cfg, kinds...)
	x := &endOrder{Pair: p.Connect(), f: f}
	for name, e := range map[string]*ucppair.End{"a": &x.A, "b": &x.B} {
		e.W.OnNotify(func(_ *ucp.EP, word uint64) { x.log("%s: notified of %d", name, word) })
	}
	x.B.W.OnActive(7, func(m *ucp.ActiveMessage) {
		x.log("b: active message of %d bytes", m.Length)
		if m.Data == nil {
			x.kept = m.Keep()
		}
	})
	x.watchEP("a", x.A.EP)
	return x
}

func (x *endOrder) log(format string, args ...any) {
	x.lines = append(x.lines, fmt.Sprintf(format, args...))
}

// watchEP records that an EP has failed.
func (x *endOrder) watchEP(name string, e *ucp.EP) {
	e.SetOnError(func(_ *ucp.EP, err error) { x.log("%s: EP failed: %s", name, outcome(err)) })
}

// outcome is the result of an operation.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return ucp.StatusOf(err).String()
}

// watch returns a function that gets the results of a call, and records how the operation completes.
func (x *endOrder) watch(name string) func(*ucp.Request, error) {
	return func(r *ucp.Request, err error) {
		switch {
		case err != nil:
			x.log("%s: refused, %s", name, outcome(err))
		case r == nil:
			x.log("%s: at once", name)
		default:
			r.OnDone(func(err error) { x.log("%s: %s", name, outcome(err)) })
			r.Release()
		}
	}
}

func (x *endOrder) close(name string, e *ucppair.End, mode ucp.CloseMode) {
	x.watch(name + " close")(e.EP.Close(mode))
}

// lane returns the endpoint of the messages of an end.
func (x *endOrder) lane(e *ucppair.End) *faketp.EP {
	for l := range e.EP.Lanes().All {
		if f, ok := e.EP.Lanes().All[l].EP.(*faketp.EP); ok {
			return f
		}
	}
	return nil
}

// freeze makes the transports of both ends stop or continue.
func (x *endOrder) freeze(frozen bool) {
	for _, i := range x.f.Ifaces {
		i.Frozen = frozen
	}
}

// run starts operations of each class, closes or fails EPs, and records what the caller observes.
func (x *endOrder) run(connected bool, end func(*endOrder)) {
	if connected {
		x.connected()
		x.freeze(true)
		x.transfers()
		x.log("- ends")
		end(x)
		idle(x.Pair)
		x.log("- transports go on")
		x.freeze(false)
	} else {
		x.transfers()
		x.messages()
		x.log("- ends")
		end(x)
	}
	idle(x.Pair)
	x.log("- afterwards")
	x.afterwards()
	idle(x.Pair)
}

// connected connects both EPs and starts messages, most of which wait for a receive.
func (x *endOrder) connected() {
	x.Warm()
	x.B.Dial(x.T, &x.A)
	x.watchEP("b", x.B.EP)
	idle(x.Pair)
	x.watch("b receive of 9")(tagRecv(&x.B, 9, 1000))
	x.watch("b receive of 3")(tagRecv(&x.B, 3, 50_000))
	x.messages()
	idle(x.Pair)
	x.watch("b put")(postPut(&x.B, 3000))
	x.watch("b stream receive")(streamRecv(&x.B))
	x.watch("b tag send, matched by nothing")(tagSendLen(&x.B, 5, 40_000))
}

func tagRecv(e *ucppair.End, tag uint64, n int) (*ucp.Request, error) {
	return e.W.TagRecv(make([]byte, n), tag, exact, nil, nil)
}

func tagSendLen(e *ucppair.End, tag uint64, n int) (*ucp.Request, error) {
	return e.EP.TagSend(tag, testenv.Pattern(n, 1), nil)
}

func postPut(e *ucppair.End, n int) (*ucp.Request, error) {
	return e.EP.Put(testenv.Pattern(n, 1), e.Key.Addr(), e.Key, nil)
}

func streamRecv(e *ucppair.End) (*ucp.Request, error) {
	return e.EP.StreamRecv(make([]byte, 10), true, new(int), nil)
}

// messages starts messages of each class from a.
func (x *endOrder) messages() {
	a := x.A.EP
	x.watch("tag send of 1 byte")(tagSendLen(&x.A, 1, 1))
	x.watch("tag send, announced")(tagSendLen(&x.A, 2, 50_000))
	x.watch("tag send, received")(tagSendLen(&x.A, 3, 50_000))
	x.watch("synchronous tag send")(a.TagSendSync(4, []byte{1}, nil))
	x.watch("active message, announced")(a.SendActive(7, []byte("header"), testenv.Pattern(50_000, 2), nil))
	x.watch("active message")(a.SendActive(7, nil, testenv.Pattern(100, 2), nil))
	x.watch("stream receive")(streamRecv(&x.A))
	x.watch("stream send")(a.StreamSend(testenv.Pattern(200_000, 3), nil))
	x.watch("tag send behind the stream")(tagSendLen(&x.A, 6, 8))
	x.watch("synchronous tag send behind the stream")(a.TagSendSync(6, testenv.Pattern(3000, 1), nil))
}

// transfers starts puts, gets and atomics at a, some of them behind a fence.
func (x *endOrder) transfers() {
	a, key, addr := x.A.EP, x.A.Key, x.A.Key.Addr()
	x.watch("put")(postPut(&x.A, 3000))
	x.watch("get")(a.Get(make([]byte, 3000), addr, key, nil))
	x.watch("fetch")(a.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), addr, key))
	x.watch("fetch of 4 bytes")(a.AtomicFetch(uct.AtomicXor, 4, 1, new(uint64), addr, key))
	x.watch("put with notification")(a.PutNotify(testenv.Pattern(300, 1), addr, key, 77, nil))
	require.NoError(x.T, a.PutImplicit(testenv.Pattern(2000, 1), addr, key, nil))
	x.watch("flush")(a.Flush())
	require.NoError(x.T, a.Fence())
	x.watch("put behind a fence")(postPut(&x.A, 8))
	x.watch("tag send behind a fence")(tagSendLen(&x.A, 8, 8))
	x.watch("flush of the worker")(x.A.W.Flush())
}

// afterwards records which calls still work, and then closes both EPs.
func (x *endOrder) afterwards() {
	for name, e := range x.ends() {
		if e.EP == nil {
			continue
		}
		x.log("%s: error: %s", name, outcome(e.EP.Err()))
		x.watch(name + " put")(postPut(e, 1))
		x.watch(name + " tag send")(tagSendLen(e, 8, 1))
		x.watch(name + " stream receive")(e.EP.StreamRecv(make([]byte, 5000), false, new(int), nil))
		x.watch(name + " flush")(e.EP.Flush())
		_, err := e.EP.Unpack(x.B.Mem.Pack())
		x.log("%s: unpack: %s", name, outcome(err))
	}
	idle(x.Pair)
	for tag := range uint64(9) {
		if r, err := tagRecv(&x.B, tag, 60_000); err == nil && r != nil {
			x.watch(fmt.Sprintf("b receive of %d", tag))(r, nil)
			r.Cancel()
		} else {
			x.log("b receive of %d: %s", tag, outcome(err))
		}
		idle(x.Pair)
	}
	if x.kept != nil {
		x.watch("b receive of the active message")(x.kept.Recv(make([]byte, 60_000), nil))
		x.kept.Release()
		idle(x.Pair)
	}
	for name, e := range x.ends() {
		if e.EP != nil {
			x.close(name, e, ucp.CloseForce)
		}
		idle(x.Pair)
		x.log("%s: %d EPs, %d bytes granted, %d bytes left behind", name, e.W.EPs().Len(), e.W.GrantedCredit(), e.W.LeftBytes())
	}
}

// ends yields both ends by name, in order.
func (x *endOrder) ends() func(func(string, *ucppair.End) bool) {
	return func(yield func(string, *ucppair.End) bool) { _ = yield("a", &x.A) && yield("b", &x.B) }
}
