package wrap_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
	"github.com/gucx/gucx/uct/wrap"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func harness(change func(*memtp.Config), layers ...wrap.Hooks) ucttest.Harness {
	world := memtp.NewWorld()
	return ucttest.Harness{
		OpenMD: func() (uct.MD, error) {
			md, err := world.OpenMD()
			if err != nil {
				return nil, err
			}
			return wrap.Domain(md, layers...), nil
		},
		Transport: memtp.Transport,
		Config: func(o ucttest.Options) any {
			c := &memtp.Config{TxDepth: o.TxDepth, RxDepth: o.RxDepth}
			if change != nil {
				change(c)
			}
			return c
		},
		OneSided: true,
	}
}

// kept are the checks that a layer could make fail.
var kept = []string{
	"attr/classes", "attr/costs", "attr/variants", "am/sizes", "am/both-ways", "order/variants", "put/sizes", "get/sizes",
	"atomic/operations", "fault/bounds", "pending/fifo", "pending/fair", "pending/purge", "flush/put", "fence/message",
	"close/in-flight", "desc/kept", "wake/receive", "queue/sizes", "queue/order", "queue/recall",
	"notify/sizes", "notify/order",
}

// TestConformance: what a layer does not mean to break stays whole, for each layer, and for
// all together with each set of classes.
func TestConformance(t *testing.T) {
	lines := 0
	trace := wrap.Trace(func(string) { lines++ })
	var clock time.Duration // goes on at each look
	rate := wrap.Rate(1e9, 4096, func() time.Duration { clock += time.Microsecond; return clock })
	faults := wrap.Faults(func(uct.EP, uct.Variant, int) wrap.Fault { return wrap.Fault{} })
	for _, tc := range []struct {
		name   string
		layers []wrap.Hooks
	}{
		{"nothing", []wrap.Hooks{{}}},
		{"trace", []wrap.Hooks{trace}},
		{"delay", []wrap.Hooks{wrap.Delay(5)}},
		{"faults", []wrap.Hooks{faults}},
		{"rate", []wrap.Hooks{rate}},
		{"all", []wrap.Hooks{wrap.Delay(2), faults, rate, trace}},
		{"all, otherwise", []wrap.Hooks{trace, rate, faults, wrap.Delay(2)}},
	} {
		for _, shape := range []struct {
			name   string
			change func(*memtp.Config)
		}{
			{"full", nil},
			{"ep", func(c *memtp.Config) { c.ConnectEP = true }},
			{"am only", func(c *memtp.Config) { c.AMOnly = true }},
		} {
			t.Run(tc.name+"/"+shape.name, func(t *testing.T) {
				if tc.name != "all" {
					testenv.SkipShort(t, "the checks for all layers together have each of them")
				}
				if len(tc.layers) == 1 && shape.change != nil {
					testenv.SkipSweep(t, "the checks for one layer; those for all layers have these classes")
				}
				for _, v := range ucttest.Results(harness(shape.change, tc.layers...), kept...) {
					assert.False(t, v.Failed, "%v", v)
				}
			})
		}
	}
	assert.Positive(t, lines)
}

// link is an EP between two ifaces of wrapped domains.
type link struct {
	a, b   uct.Iface
	ep     uct.EP
	failed []error
	got    int
}

func open(t *testing.T, layers ...wrap.Hooks) *link {
	t.Helper()
	l, h := &link{}, harness(nil, layers...)
	iface := func() uct.Iface {
		md, err := h.OpenMD()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, md.Close()) })
		i, err := md.OpenIface(uct.IfaceParams{Transport: memtp.Transport, Device: memtp.Device,
			OnError: func(ep uct.EP, err error) { assert.Same(t, l.ep, ep); l.failed = append(l.failed, err) }})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, i.Close()) })
		return i
	}
	l.a, l.b = iface(), iface()
	addr := l.b.Ext().Address
	var err error
	l.ep, err = l.a.NewEP(uct.EPParams{DeviceAddr: addr.DeviceAddr(nil), IfaceAddr: addr.IfaceAddr(nil)})
	require.NoError(t, err)
	require.NoError(t, l.b.SetAMHandler(1, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { l.got++; return false })))
	return l
}

func (l *link) progress(rounds int) {
	for range rounds {
		l.a.Progress()
		l.b.Progress()
	}
}

// TestFaults_Break: the EP fails as the contract says, with the plan's reason.
func TestFaults_Break(t *testing.T) {
	reason := errors.New("as planned")
	l := open(t, wrap.Faults(func(_ uct.EP, v uct.Variant, n int) wrap.Fault {
		if v == uct.AMShort && n == 2 {
			return wrap.Fault{Break: reason}
		}
		return wrap.Fault{}
	}))
	am := l.ep.Ops().AM
	require.NoError(t, am.AMShort(1, 0, nil))
	require.NoError(t, am.AMShort(1, 0, nil))
	l.progress(10)
	assert.Equal(t, 2, l.got)

	var dispatched []error
	var r uct.PendingReq
	r.Func = func(*uct.PendingReq) error {
		err := am.AMShort(1, 0, nil)
		dispatched = append(dispatched, err)
		return err
	}
	err := am.AMShort(1, 0, nil)
	require.ErrorIs(t, err, uct.ErrEPFailed)
	require.ErrorIs(t, err, reason)
	assert.ErrorIs(t, l.ep.AddPending(&r), uct.ErrEPFailed)
	assert.ErrorIs(t, l.a.Ext().Wake.Arm(uct.EventSendComp), uct.ErrBusy, "there is something to tell")
	assert.Empty(t, l.failed, "told by Progress")
	l.progress(10)
	assert.Equal(t, []error{reason}, l.failed)
	_, err = l.ep.Flush(nil)
	assert.ErrorIs(t, err, uct.ErrEPFailed)
	assert.ErrorIs(t, l.ep.Fence(), uct.ErrEPFailed)
	assert.Equal(t, 2, l.got)
	require.NoError(t, l.ep.Close())
	assert.Empty(t, dispatched)
}

// TestFaults_BreakTwice: an EP that fails below, and as planned, has failed once.
func TestFaults_BreakTwice(t *testing.T) {
	broken := func(uct.EP, uct.Variant, int) wrap.Fault { return wrap.Fault{Break: ucs.ErrTimedOut} }
	late := func(_ uct.EP, _ uct.Variant, n int) (f wrap.Fault) {
		if n > 0 {
			f.Break = ucs.ErrIO
		}
		return f
	}
	l := open(t, wrap.Faults(broken), wrap.Faults(late))
	am := l.ep.Ops().AM
	assert.ErrorIs(t, am.AMShort(1, 0, nil), ucs.ErrTimedOut)
	assert.ErrorIs(t, am.AMShort(1, 0, nil), ucs.ErrIO)
	l.progress(10)
	assert.Len(t, l.failed, 1)
	require.NoError(t, l.ep.Close())
}

// TestFaults_BreakOfAPair: the peer of an EP that broke hears of it when that is closed.
func TestFaults_BreakOfAPair(t *testing.T) {
	armed := false
	h := harness(func(c *memtp.Config) { c.ConnectEP = true }, wrap.Faults(func(uct.EP, uct.Variant, int) (f wrap.Fault) {
		if armed {
			f.Break = ucs.ErrTimedOut
		}
		return f
	}))
	var sides [2]struct {
		iface  uct.Iface
		ep     uct.EP
		failed []error
	}
	for k := range sides {
		x := &sides[k]
		md, err := h.OpenMD()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, md.Close()) })
		x.iface, err = md.OpenIface(uct.IfaceParams{Transport: h.Transport, Device: memtp.Device, Config: h.Config(ucttest.Options{}),
			OnError: func(_ uct.EP, err error) { x.failed = append(x.failed, err) }})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, x.iface.Close()) })
		x.ep, err = x.iface.NewEP(uct.EPParams{})
		require.NoError(t, err)
	}
	a, b := &sides[0], &sides[1]
	progress := func() { a.iface.Progress(); b.iface.Progress() }
	connect := func(x, to uct.EP, at uct.Iface) {
		require.NoError(t, x.Ops().Connect.Connect(at.Ext().Address.DeviceAddr(nil), to.Ops().Connect.EPAddr(nil)))
	}
	connect(a.ep, b.ep, b.iface)
	connect(b.ep, a.ep, a.iface)
	armed = true
	require.ErrorIs(t, a.ep.Ops().AM.AMShort(1, 0, nil), uct.ErrEPFailed)
	armed = false
	progress()
	require.Equal(t, []error{ucs.ErrTimedOut}, a.failed)
	require.NoError(t, b.ep.Ops().AM.AMShort(1, 0, nil))
	progress()
	assert.Empty(t, b.failed)
	require.NoError(t, a.ep.Close())
	_ = b.ep.Ops().AM.AMShort(1, 0, nil)
	progress()
	require.Len(t, b.failed, 1)
	assert.ErrorIs(t, b.failed[0], ucs.ErrPeerClosed)
	require.NoError(t, b.ep.Close())
}

// TestFaults_BreakBehindPending: requests that wait are dispatched, and see the failure.
func TestFaults_BreakBehindPending(t *testing.T) {
	broken := false
	l := open(t, wrap.Faults(func(uct.EP, uct.Variant, int) wrap.Fault {
		if broken {
			return wrap.Fault{Break: uct.ErrUnreachable}
		}
		return wrap.Fault{}
	}))
	am := l.ep.Ops().AM
	for am.AMShort(1, 0, nil) == nil {
	}
	var seen []error
	var r uct.PendingReq
	r.Func = func(*uct.PendingReq) error { err := am.AMShort(1, 0, nil); seen = append(seen, err); return err }
	require.NoError(t, l.ep.AddPending(&r))
	broken = true
	assert.ErrorIs(t, am.AMShort(1, 0, nil), uct.ErrEPFailed)
	l.progress(10)
	require.Len(t, seen, 1)
	assert.ErrorIs(t, seen[0], uct.ErrEPFailed)
	assert.Len(t, l.failed, 1)
	require.NoError(t, l.ep.Close())
}

// TestRate: as many bytes as the clock allows, and requests that wait go out in time.
func TestRate(t *testing.T) {
	var clock time.Duration
	l := open(t, wrap.Rate(1000, 32, func() time.Duration { return clock }))
	am := l.ep.Ops().AM
	post := func() error { return am.AMShort(1, 0, make([]byte, 8)) } // 16 bytes
	require.NoError(t, post())
	require.NoError(t, post())
	assert.Equal(t, uct.ErrNoResource, post())
	sent := 0
	var r uct.PendingReq
	r.Func = func(*uct.PendingReq) error {
		err := post()
		if err == nil {
			sent++
		}
		return err
	}
	require.NoError(t, l.ep.AddPending(&r))
	assert.ErrorIs(t, l.a.Ext().Wake.Arm(uct.EventSendComp), uct.ErrBusy, "only the clock lets it go")
	l.progress(10)
	assert.Zero(t, sent)
	assert.Equal(t, 2, l.got)
	clock = time.Millisecond // a byte: enough to begin
	l.progress(10)
	assert.Equal(t, 1, sent)
	assert.Equal(t, 3, l.got)
	clock = 16 * time.Millisecond
	assert.Equal(t, uct.ErrNoResource, post(), "what an operation took beyond is owed")
	clock = 17 * time.Millisecond
	assert.NoError(t, post())
	clock += time.Hour
	require.NoError(t, post())
	require.NoError(t, post())
	assert.Equal(t, uct.ErrNoResource, post(), "a burst, however long it was idle")
	require.NoError(t, l.ep.Close())
}

// mappedOnce reads mapped memory once.
type mappedOnce struct{ left int }

func (m *mappedOnce) GetMapped(buf []byte, _ uint64, _ uct.RKey) bool {
	m.left--
	return copy(buf, "x") > 0 && m.left >= 0
}

// TestIntercept_Mapped: gets of mapped memory are seen as gets, and one that is refused is not made.
func TestIntercept_Mapped(t *testing.T) {
	var lines []string
	mapped := &mappedOnce{left: 1}
	refused := false
	refuse := wrap.Faults(func(_ uct.EP, v uct.Variant, _ int) wrap.Fault {
		if v == uct.GetZcopy && refused {
			return wrap.Fault{Refuse: uct.ErrNoResource}
		}
		return wrap.Fault{}
	})
	l := open(t, wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Mapped = mapped }}, refuse, wrap.Trace(func(line string) { lines = append(lines, line) }))
	get := func() bool { return l.ep.Ops().Mapped.GetMapped(make([]byte, 5), 0, 0) }
	refused = true
	assert.False(t, get())
	assert.Equal(t, 1, mapped.left, "it was not made")
	refused = false
	assert.True(t, get())
	assert.False(t, get())
	require.NotEmpty(t, lines)
	assert.Contains(t, lines[len(lines)-2], "get_zcopy of 5 bytes: <nil>")
	require.NoError(t, l.ep.Close())
}

// wordsToShort has messages of two words by AMShort.
type wordsToShort struct{ uct.AMSender }

func (w wordsToShort) AMWords(id uint8, first, second uint64, payload []byte) error {
	return w.AMShort(id, first, append(binary.LittleEndian.AppendUint64(nil, second), payload...))
}

// TestIntercept_Words: messages of two words are seen as short ones, with all their bytes.
func TestIntercept_Words(t *testing.T) {
	var lines []string
	words := wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Words = wordsToShort{e.Has.AM} }}
	refuse := wrap.Faults(func(_ uct.EP, v uct.Variant, n int) wrap.Fault {
		if v == uct.AMShort && n == 1 {
			return wrap.Fault{Refuse: uct.ErrNoResource}
		}
		return wrap.Fault{}
	})
	l := open(t, words, refuse, wrap.Trace(func(line string) { lines = append(lines, line) }))
	for _, want := range []error{nil, uct.ErrNoResource, nil} {
		assert.Equal(t, want, l.ep.Ops().Words.AMWords(1, 2, 3, []byte("data")))
	}
	l.progress(10)
	assert.Equal(t, 2, l.got)
	require.Len(t, lines, 5, "two of them of what has arrived")
	assert.Contains(t, lines[0], "am_short of 20 bytes: <nil>")
	require.NoError(t, l.ep.Close())
}
