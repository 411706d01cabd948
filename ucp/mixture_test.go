package ucp_test

import (
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/tcp"
	"github.com/gucx/gucx/uct/wrap"
)

// mixtures are several transports together, and transports that other sets do not use for messages: tcp with TLS,
// datagrams, and datagrams that are lost and rejected.
func mixtures() []tlsets.Set {
	lossy := configured("ud with faults", faultyUD, `\ud`)
	verbs, direct := tlsets.Real("ud", `\ud`), tlsets.Real("ud_mlx5", "ud_mlx5")
	for _, set := range []*tlsets.Set{&lossy, &verbs, &direct} {
		set.MessagesOnly = true
	}
	return []tlsets.Set{
		tlsets.Real("sm+rc", "sm", `\rc`),
		configured("tcp, two devices", twoDevices, "tcp"),
		configured("tcp with TLS", secret, "tcp"),
		verbs, direct, lossy,
	}
}

// messageSets returns the sets of transports for messages.
func messageSets() []tlsets.Set { return append(faketp.AllSets(), mixtures()...) }

// memorySets returns the sets with put, get and atomics.
func memorySets() (sets []tlsets.Set) {
	for _, set := range messageSets() {
		if !set.MessagesOnly {
			sets = append(sets, set)
		}
	}
	return sets
}

// configured returns a set of real transports. Both ends have the components that open returns.
func configured(name string, open func(t testing.TB) func() []uct.Component, tls ...string) tlsets.Set {
	return tlsets.Set{Name: name, TLS: config.Allow(tls...), Open: func(t testing.TB) (a, b []uct.Component) {
		components := open(t)
		return components(), components()
	}}
}

// twoDevices is tcp over loopback and over another device, if there is one. Both report the same bandwidth.
func twoDevices(t testing.TB) func() []uct.Component {
	c := all.Config{TCP: tcp.Config{Devices: []string{"lo", netDevice(t)}}}
	return func() []uct.Component { return layered(c.Components(), wrap.Hooks{Iface: sixGBps}) }
}

// sixGBps makes an iface of tcp report a bandwidth of 6 GB/s.
func sixGBps(i *wrap.Iface) {
	x := &costed{i.Iface, *i.Attr()}
	if x.attr.Resource.Transport == "tcp" {
		for v := range x.attr.Costs {
			x.attr.Costs[v].Bandwidth, x.attr.Costs[v].SharedBandwidth = 6e9, 0
		}
	}
	i.Iface = x
}

// netDevice returns a network device other than loopback that is up. It skips the test if there is none.
func netDevice(t testing.TB) string {
	list, err := net.Interfaces()
	if err != nil {
		t.Skip(err)
	}
	for _, i := range list {
		const want = net.FlagUp | net.FlagRunning
		if i.Flags&(want|net.FlagLoopback) != want {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
				return i.Name
			}
		}
	}
	t.Skip("no network device besides loopback")
	return ""
}

// secret is tcp with TLS, where each message wakes four goroutines.
func secret(t testing.TB) func() []uct.Component {
	switch {
	case testing.Short():
		t.Skip("takes seconds")
	case runtime.GOMAXPROCS(0) == 1:
		t.Skip("with one processor a test that polls leaves the goroutines of TLS a look at their sockets each 10 ms")
	}
	return (&all.Config{TCP: tcp.Config{TLS: testenv.NewAuthority(t).Good()}}).Components
}

const (
	// fewBuffers makes a receiver that is slow lose datagrams.
	fewBuffers = 8
	// refuseEvery is the number of operations between two that are rejected.
	refuseEvery = 5
)

// faultyUD is ud that loses datagrams for lack of receive buffers, and rejects operations for lack of resources that it
// has.
func faultyUD(testing.TB) func() []uct.Component {
	plan := func(_ uct.EP, _ uct.Variant, n int) (f wrap.Fault) {
		if n%refuseEvery == 0 {
			f.Refuse = uct.ErrNoResource
		}
		return f
	}
	return func() (list []uct.Component) {
		for _, c := range tlsets.Components(all.Config{UD: ud.Config{RxDepth: fewBuffers, RTO: time.Millisecond}}) {
			if strings.HasPrefix(c.Name(), "ib") {
				c = wrap.Component(c, wrap.Faults(plan))
			}
			list = append(list, c)
		}
		return list
	}
}

// TestMixtures_FaultsHappen: the set with faults loses datagrams and retransmits them, and all messages arrive once and
// in order.
func TestMixtures_FaultsHappen(t *testing.T) {
	sets := mixtures()
	p := ucppair.New(t, sets[len(sets)-1], ucp.Config{}).Connect()
	const messages, length = 100, 1000
	for k := range messages {
		r, err := p.A.EP.TagSend(1, testenv.Pattern(length, k), nil)
		require.NoError(t, err)
		if r != nil {
			r.Release()
		}
		p.A.W.Progress()
	}
	for k := range messages {
		buf := make([]byte, length)
		r, err := p.B.W.TagRecv(buf, 1, exact, nil, nil)
		require.NoError(t, p.Finish(r, err))
		testenv.RequireBytes(t, testenv.Pattern(length, k), buf)
	}
	resent := uint64(0)
	for name, n := range counters(p.A.W) {
		if strings.HasSuffix(name, ".resends") {
			resent += n
		}
	}
	assert.Positive(t, resent)
}

// fetched is a fetching atomic on one word.
type fetched struct {
	op             uct.AtomicOp
	compare, value uint64
}

// wordModel is a word to which AtomicOp.Apply applies.
var wordModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		in, old := input.(fetched), state.(uint64)
		return output.(uint64) == old, in.op.Apply(8, old, in.compare, in.value)
	},
}

// fetcher is one of several clients that change a word at the same time.
type fetcher struct {
	ep     *ucp.EP
	key    *ucp.RKey
	raddr  uint64
	in     fetched
	result *uint64
	req    *ucp.Request
	busy   bool
	called int64
}

// start starts an operation.
func (x *fetcher) start(t *testing.T, in fetched, now int64) {
	x.in, x.busy, x.called, x.result = in, true, now, new(uint64)
	var err error
	if in.op == uct.AtomicCSwap {
		x.req, err = x.ep.AtomicCSwap(8, in.compare, in.value, x.result, x.raddr, x.key)
	} else {
		x.req, err = x.ep.AtomicFetch(in.op, 8, in.value, x.result, x.raddr, x.key)
	}
	require.NoError(t, err)
}

// end records the operation if it has completed.
func (x *fetcher) end(t *testing.T) bool {
	if !x.busy || x.req != nil && !x.req.Done() {
		return false
	}
	if x.busy = false; x.req != nil {
		require.NoError(t, x.req.Take())
		x.req = nil
	}
	return true
}

// TestAtomics_Linearizable: both sides have several fetching atomics on one word in flight. The results are those of
// some sequential order.
func TestAtomics_Linearizable(t *testing.T) {
	for _, set := range memorySets() {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{}).Connect()
			clear(p.B.Mem.Bytes()[:8])
			self, err := p.B.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
			require.NoError(t, err)
			key, err := self.Unpack(p.B.Mem.Pack())
			require.NoError(t, err)
			t.Cleanup(key.Close)
			raddr := p.B.Mem.Addr()
			all := []*fetcher{{ep: p.A.EP, key: p.A.Key, raddr: raddr}, {ep: p.A.EP, key: p.A.Key, raddr: raddr},
				{ep: self, key: key, raddr: raddr}, {ep: self, key: key, raddr: raddr}}
			history := fetchTogether(t, p, all)
			assert.True(t, porcupine.CheckOperations(wordModel, history), "no order explains the old values")
			history[0].Output = uint64(1) << 40
			assert.False(t, porcupine.CheckOperations(wordModel, history), "a value that the word never had")
		})
	}
}

// fetchTogether makes all fetchers do operations, and returns the history.
func fetchTogether(t *testing.T, p *ucppair.Pair, all []*fetcher) (history []porcupine.Operation) {
	const each = 12
	rng := rand.New(rand.NewPCG(1, 2))
	ops := []uct.AtomicOp{uct.AtomicAdd, uct.AtomicOr, uct.AtomicXor, uct.AtomicSwap, uct.AtomicCSwap}
	now, started := int64(0), 0
	p.Until(func() bool {
		for i, x := range all {
			if now++; x.end(t) {
				history = append(history, porcupine.Operation{ClientId: i, Input: x.in, Call: x.called, Output: *x.result, Return: now})
			}
			if now++; !x.busy && started < each*len(all) && rng.IntN(2) == 0 {
				x.start(t, fetched{ops[rng.IntN(len(ops))], rng.Uint64N(4), rng.Uint64N(4)}, now)
				started++
			}
		}
		return len(history) == each*len(all)
	})
	return history
}
