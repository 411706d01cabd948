package ucp

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
		cfg   Config
		kinds []faketp.Kind
	}{
		{"rc+ud", Config{}, []faketp.Kind{faketp.LikeRC(), faketp.LikeUD()}},
		{"tcp, fragments", Config{RndvScheme: "am"}, []faketp.Kind{faketp.LikeTCP()}},
		{"sm, tupleq", Config{TagProto: tagProtoTupleq}, []faketp.Kind{faketp.LikeSM()}},
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
	{"a closes", true, func(x *endOrder) { x.close("a", &x.a, CloseFlush) }},
	{"a closes by force", true, func(x *endOrder) { x.close("a", &x.a, CloseForce) }},
	{"a closes, then by force", false, func(x *endOrder) {
		x.close("a", &x.a, CloseFlush)
		x.idle()
		x.close("a", &x.a, CloseForce)
	}},
	{"b closes", false, func(x *endOrder) { x.close("b", &x.b, CloseFlush) }},
	{"b closes by force", false, func(x *endOrder) { x.close("b", &x.b, CloseForce) }},
	{"both close", false, func(x *endOrder) {
		x.close("a", &x.a, CloseFlush)
		x.close("b", &x.b, CloseFlush)
	}},
	{"a fails", true, func(x *endOrder) { x.a.ep.fail(ucs.StatusTimedOut, ucs.ErrTimedOut, nil) }},
	{"a's lane fails", false, func(x *endOrder) { x.lane(&x.a).Fail(ucs.StatusTimedOut) }},
	{"b's lane fails", false, func(x *endOrder) { x.lane(&x.b).Fail(ucs.StatusTimedOut) }},
	{"b is killed", false, func(x *endOrder) {
		for _, i := range x.f.Ifaces[len(x.f.Ifaces)/2:] {
			i.Kill()
		}
	}},
	{"a's worker closes", true, func(x *endOrder) { require.NoError(x.t, x.a.w.Close()) }},
	{"b's worker closes", false, func(x *endOrder) { require.NoError(x.t, x.b.w.Close()) }},
	{"b is to fail at the next progress", false, func(x *endOrder) {
		x.b.ep.markFailed(ucs.StatusRemoteInvalid, ucs.ErrRemoteInvalid, nil)
	}},
}

// endOrder is a pair of workers and what their callers observe.
type endOrder struct {
	*pair
	f     *faketp.Fabric
	kept  *ActiveMessage
	lines []string
}

func newEndOrder(t *testing.T, cfg Config, kinds []faketp.Kind) *endOrder {
	p, f := fakePair(t, cfg, kinds...)
	x := &endOrder{pair: p.connect(), f: f}
	for name, e := range map[string]*end{"a": &x.a, "b": &x.b} {
		e.w.OnNotify(func(_ *EP, word uint64) { x.log("%s: notified of %d", name, word) })
	}
	x.b.w.OnActive(7, func(m *ActiveMessage) {
		x.log("b: active message of %d bytes", m.Length)
		if m.Data == nil {
			x.kept = m.Keep()
		}
	})
	x.watchEP("a", x.a.ep)
	return x
}

func (x *endOrder) log(format string, args ...any) {
	x.lines = append(x.lines, fmt.Sprintf(format, args...))
}

// watchEP records that an EP has failed.
func (x *endOrder) watchEP(name string, e *EP) {
	e.onError = func(_ *EP, err error) { x.log("%s: EP failed: %s", name, outcome(err)) }
}

// outcome is the result of an operation.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return statusOf(err).String()
}

// watch returns a function that gets the results of a call, and records how the operation completes.
func (x *endOrder) watch(name string) func(*Request, error) {
	return func(r *Request, err error) {
		switch {
		case err != nil:
			x.log("%s: refused, %s", name, outcome(err))
		case r == nil:
			x.log("%s: at once", name)
		default:
			r.onDone = func(err error) { x.log("%s: %s", name, outcome(err)) }
			r.armOnDone()
			r.Release()
		}
	}
}

func (x *endOrder) close(name string, e *end, mode CloseMode) {
	x.watch(name + " close")(e.ep.Close(mode))
}

// lane returns the endpoint of the messages of an end.
func (x *endOrder) lane(e *end) *faketp.EP {
	for l := range e.ep.link.lanes.All {
		if f, ok := e.ep.link.lanes.All[l].EP.(*faketp.EP); ok {
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
		x.idle()
		x.log("- transports go on")
		x.freeze(false)
	} else {
		x.transfers()
		x.messages()
		x.log("- ends")
		end(x)
	}
	x.idle()
	x.log("- afterwards")
	x.afterwards()
	x.idle()
}

// connected connects both EPs and starts messages, most of which wait for a receive.
func (x *endOrder) connected() {
	x.warm()
	x.b.dial(x.t, &x.a)
	x.watchEP("b", x.b.ep)
	x.idle()
	x.watch("b receive of 9")(x.b.tagRecv(9, 1000))
	x.watch("b receive of 3")(x.b.tagRecv(3, 50_000))
	x.messages()
	x.idle()
	x.watch("b put")(x.b.put(3000))
	x.watch("b stream receive")(x.b.streamRecv())
	x.watch("b tag send, matched by nothing")(x.b.tagSend(5, 40_000))
}

func (e *end) tagRecv(tag uint64, n int) (*Request, error) {
	return e.w.TagRecv(make([]byte, n), tag, exact, nil, nil)
}

func (e *end) tagSend(tag uint64, n int) (*Request, error) {
	return e.ep.TagSend(tag, pattern(n, 1), nil)
}

func (e *end) put(n int) (*Request, error) {
	return e.ep.Put(pattern(n, 1), e.key.Addr(), e.key, nil)
}

func (e *end) streamRecv() (*Request, error) {
	return e.ep.StreamRecv(make([]byte, 10), true, new(int), nil)
}

// messages starts messages of each class from a.
func (x *endOrder) messages() {
	a := x.a.ep
	x.watch("tag send of 1 byte")(x.a.tagSend(1, 1))
	x.watch("tag send, announced")(x.a.tagSend(2, 50_000))
	x.watch("tag send, received")(x.a.tagSend(3, 50_000))
	x.watch("synchronous tag send")(a.TagSendSync(4, []byte{1}, nil))
	x.watch("active message, announced")(a.SendActive(7, []byte("header"), pattern(50_000, 2), nil))
	x.watch("active message")(a.SendActive(7, nil, pattern(100, 2), nil))
	x.watch("stream receive")(x.a.streamRecv())
	x.watch("stream send")(a.StreamSend(pattern(200_000, 3), nil))
	x.watch("tag send behind the stream")(x.a.tagSend(6, 8))
	x.watch("synchronous tag send behind the stream")(a.TagSendSync(6, pattern(3000, 1), nil))
}

// transfers starts puts, gets and atomics at a, some of them behind a fence.
func (x *endOrder) transfers() {
	a, key, addr := x.a.ep, x.a.key, x.a.key.Addr()
	x.watch("put")(x.a.put(3000))
	x.watch("get")(a.Get(make([]byte, 3000), addr, key, nil))
	x.watch("fetch")(a.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), addr, key))
	x.watch("fetch of 4 bytes")(a.AtomicFetch(uct.AtomicXor, 4, 1, new(uint64), addr, key))
	x.watch("put with notification")(a.PutNotify(pattern(300, 1), addr, key, 77, nil))
	require.NoError(x.t, a.PutImplicit(pattern(2000, 1), addr, key, nil))
	x.watch("flush")(a.Flush())
	require.NoError(x.t, a.Fence())
	x.watch("put behind a fence")(x.a.put(8))
	x.watch("tag send behind a fence")(x.a.tagSend(8, 8))
	x.watch("flush of the worker")(x.a.w.Flush())
}

// afterwards records which calls still work, and then closes both EPs.
func (x *endOrder) afterwards() {
	for name, e := range x.ends() {
		if e.ep == nil {
			continue
		}
		x.log("%s: error: %s", name, outcome(e.ep.Err()))
		x.watch(name + " put")(e.put(1))
		x.watch(name + " tag send")(e.tagSend(8, 1))
		x.watch(name + " stream receive")(e.ep.StreamRecv(make([]byte, 5000), false, new(int), nil))
		x.watch(name + " flush")(e.ep.Flush())
		_, err := e.ep.Unpack(x.b.mem.Pack())
		x.log("%s: unpack: %s", name, outcome(err))
	}
	x.idle()
	for tag := range uint64(9) {
		if r, err := x.b.tagRecv(tag, 60_000); err == nil && r != nil {
			x.watch(fmt.Sprintf("b receive of %d", tag))(r, nil)
			r.Cancel()
		} else {
			x.log("b receive of %d: %s", tag, outcome(err))
		}
		x.idle()
	}
	if x.kept != nil {
		x.watch("b receive of the active message")(x.kept.Recv(make([]byte, 60_000), nil))
		x.kept.Release()
		x.idle()
	}
	for name, e := range x.ends() {
		if e.ep != nil {
			x.close(name, e, CloseForce)
		}
		x.idle()
		x.log("%s: %d EPs, %d bytes granted, %d bytes left behind", name, e.w.eps.Len(), e.w.messages.granted, e.w.messages.leftBytes)
	}
}

// ends yields both ends by name, in order.
func (x *endOrder) ends() func(func(string, *end) bool) {
	return func(yield func(string, *end) bool) { _ = yield("a", &x.a) && yield("b", &x.b) }
}
