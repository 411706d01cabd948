package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// queued is the reference transport as a component: it has receive queues.
type queued struct {
	world  *memtp.World
	layers []wrap.Hooks
	mds    []uct.MD // that were opened, in order
}

func (c *queued) Name() string { return "memtp" }
func (c *queued) MDs() ([]uct.MDResource, error) {
	return []uct.MDResource{{Name: "mem0"}}, nil
}
func (c *queued) OpenMD(string) (uct.MD, error) {
	md, err := c.world.OpenMD()
	if err != nil {
		return nil, err
	}
	c.mds = append(c.mds, md)
	return wrap.Domain(md, c.layers...), nil
}

// queues returns a set of the reference transport only.
func queues(layers ...wrap.Hooks) tlsets.Set {
	return tlsets.Set{Name: "queues", Open: func(testing.TB) (a, b []uct.Component) {
		c := []uct.Component{&queued{world: memtp.NewWorld(), layers: layers}}
		return c, c
	}}
}

// queueSets are transports that have queues.
func queueSets() []tlsets.Set {
	direct := tlsets.Real("xrc_mlx5", "xrc_mlx5")
	direct.Like = "xrc"
	return []tlsets.Set{queues(), tlsets.Real("xrc", `\xrc`), direct}
}

// tupleq is a configuration with tuple queues.
var tupleq = ucp.Config{TagProto: "tupleq"}

// overQueues runs a test over each transport that has queues.
func overQueues(t *testing.T, f func(t *testing.T, p *ucppair.Pair)) {
	for _, set := range queueSets() {
		t.Run(set.Name, func(t *testing.T) { f(t, ucppair.New(t, set, tupleq).Connect()) })
	}
}

// tupleStat returns a counter of tuple queues of w.
func tupleStat(w *ucp.Worker, name string) uint64 { return counters(w)["worker/tupleq."+name] }

// passTag sends a message and receives it.
func passTag(p *ucppair.Pair, tag uint64, n, seed int) {
	p.T.Helper()
	want, got := testenv.Pattern(n, seed), make([]byte, n)
	r, err := p.B.W.TagRecv(got, tag, exact, nil, nil)
	require.NoError(p.T, err)
	s, err := p.A.EP.TagSend(tag, want, nil)
	require.NoError(p.T, err)
	require.NoError(p.T, p.Finish(r, nil))
	require.NoError(p.T, p.Finish(s, nil))
	testenv.RequireBytes(p.T, want, got)
}

// openTuple makes messages of a tag use a queue.
func openTuple(p *ucppair.Pair, tag uint64) {
	p.T.Helper()
	before, k := tupleStat(p.B.W, "receives"), 0
	testenv.ProgressWithin(p.T, testenv.Watchdog, func() bool {
		k++
		passTag(p, tag, 64, k)
		return tupleStat(p.B.W, "receives") > before
	})
}

func TestTuple_MessagesGoThroughQueues(t *testing.T) {
	overQueues(t, func(t *testing.T, p *ucppair.Pair) {
		openTuple(p, 7)
		for k, n := range []int{0, 1, 8, 300, 5000, 100_000} {
			passTag(p, 7, n, k)
		}
		assert.EqualValues(t, 7, tupleStat(p.B.W, "receives"))
		assert.EqualValues(t, 7, tupleStat(p.A.W, "sends"))
		assert.Zero(t, tupleStat(p.A.W, "resent"))
	})
}

// TestTuple_CompletedAtOnce: if the message of a receive has arrived before, OnDone is not called, whichever operation uses
// the request afterwards.
func TestTuple_CompletedAtOnce(t *testing.T) {
	overQueues(t, func(t *testing.T, p *ucppair.Pair) {
		p.Both()
		passTag(p, 7, 64, 0)
		s, err := p.A.EP.TagSend(8, testenv.Pattern(64, 1), nil)
		require.NoError(t, p.Finish(s, err))
		p.Until(func() bool { return p.B.W.Tags().Unexpected() == 1 })
		r, err := p.B.W.TagRecv(make([]byte, 64), 8, exact, nil, &ucp.OpParams{OnDone: func(error) {
			assert.Fail(t, "OnDone of an operation that returned no request")
		}})
		require.NoError(t, err)
		require.Nil(t, r)
		s, err = p.B.EP.TagSend(9, testenv.Pattern(64, 2), nil)
		require.NoError(t, err)
		got := make([]byte, 64)
		r, err = p.A.W.TagRecv(got, 9, exact, nil, nil)
		require.NoError(t, p.Finish(r, err))
		require.NoError(t, p.Finish(s, nil))
		openTuple(p, 7)
		settleQueues(p)
	})
}

// settleQueues makes progress until nothing is in flight.
func settleQueues(p *ucppair.Pair) {
	const idle = 16
	for n := 0; n < idle; n++ {
		if p.Step() > 0 {
			n = 0
		}
	}
}

// mostlyExact are masks of receives, most of them exact, so that queues remain open.
var mostlyExact = []uint64{exact, exact, exact, exact, exact, exact, exact, exact, 1, 0}

// TestTuple_Model: any history of sends, receives, cancels and probes has the results of a serial matcher, while queues
// open and close.
func TestTuple_Model(t *testing.T) {
	small := ucp.Config{TagProto: "tupleq_copy", TupleqMax: 2, TupleqMaxMessage: 5000}
	for _, set := range queueSets() {
		set.Run(t, func(t *testing.T) { tupleModel(t, set, tupleq) })
	}
	// The completion of a bcopy message is known as soon as its receive has completed.
	t.Run("queues, copied", func(t *testing.T) { tupleModel(t, queues(), small) })
}

// quiet reports whether no queue opens or closes, and each unreceived message is unexpected or in a queue.
func (m *tagModel) quiet() bool {
	w := m.p.B.W
	_, steady := w.TupleQueues().Queues()
	waiting, still := m.p.A.EP.Messages().TupleSender().Waiting()
	return steady && still && w.Tags().Unexpected()+waiting == len(m.msgs)
}

func tupleModel(t *testing.T, set tlsets.Set, cfg ucp.Config) {
	through := uint64(0)
	rapid.Check(t, func(rt *rapid.T) {
		m := &tagModel{t: rt, p: ucppair.New(t, set, cfg).Connect(), masks: mostlyExact}
		passTag(m.p, 9, 8, 0) // connects
		m.settle = func() { m.p.Until(m.quiet) }
		through -= tupleStat(m.p.B.W, "receives")
		for tag := range rapid.Uint64Range(0, 4).Draw(rt, "open") {
			openTuple(m.p, tag)
			passTag(m.p, tag, 8, 0) // through the queue; later ones may or may not
		}
		rt.Repeat(map[string]func(*rapid.T){
			"send": func(*rapid.T) { m.send() }, "send again": func(*rapid.T) { m.send() },
			"receive": func(*rapid.T) { m.post() }, "receive again": func(*rapid.T) { m.post() },
			"cancel": func(*rapid.T) { m.cancel() }, "probe": func(*rapid.T) { m.probe() },
		})
		m.drain()
		through += tupleStat(m.p.B.W, "receives")
	})
	assert.Positive(t, through, "messages through queues")
	t.Logf("%d messages went through queues", through)
}
