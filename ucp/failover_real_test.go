package ucp_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
	"github.com/gucx/gucx/wireup"
)

// breaker is a layer that breaks an endpoint at its next operation.
type breaker struct {
	ep     uct.EP // nil: none
	reason error  // nil: ErrTimedOut
	times  int
}

func (b *breaker) plan(ep uct.EP, _ uct.Variant, _ int) (f wrap.Fault) {
	if ep == b.ep {
		f.Break = cmp.Or(b.reason, ucs.ErrTimedOut)
		b.times++
	}
	return f
}

// under returns a set whose first side has the layer.
func (b *breaker) under(set tlsets.Set) tlsets.Set {
	open := set.Open
	set.Open = func(t testing.TB) (x, y []uct.Component) {
		x, y = open(t)
		return layered(x, wrap.Faults(b.plan)), y
	}
	return set
}

// failing is an endpoint that can fail as by its device: the operations in flight are lost, and the peer gets no more
// ACKs.
type failing interface{ Fail(ucs.Status, error) }

// apart is two devices. One has the lower costs for messages, the other one for puts, gets and atomics.
func apart(testing.TB) func() []uct.Component {
	open := tlsets.SoftHCAs(2)
	return func() (list []uct.Component) {
		for _, c := range open() {
			list = append(list, pricedComponent{c})
		}
		return list
	}
}

// pricedComponent, its domains and its ifaces have the costs of apart.
type pricedComponent struct{ uct.Component }

func (c pricedComponent) OpenMD(name string) (uct.MD, error) {
	md, err := c.Component.OpenMD(name)
	return pricedMD{md}, err
}

type pricedMD struct{ uct.MD }

func (m pricedMD) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	i, err := m.MD.OpenIface(p)
	if err != nil {
		return nil, err
	}
	x := &costed{i, *i.Attr()}
	for v := range x.attr.Costs {
		x.attr.Costs[v] = uct.Cost{Latency: 1000, Bandwidth: 1 << 30}
		if message := uct.Variant(v) <= uct.AMZcopy; message == (p.Device == "softhca1:1") {
			x.attr.Costs[v].Latency = 9000
		}
	}
	return x, nil
}

// A side puts to the first half of the memory of the other side, has its atomics at the end of that half, and gets from
// the second half.
const (
	half    = tlsets.MemLen / 2
	putLen  = half - 64
	counter = half - 8
)

// underWay is the operations that one side has started.
type underWay struct {
	x, to      *ucppair.End
	seed       int
	may, must  []*ucp.Request // may fail with the reason, and must not fail
	started    int            // callbacks that must still be called
	completed  int
	got        []byte
	get        *ucp.Request
	from, into *ucp.Mem // of the message; nil if the caller has not registered it
	out, in    []byte
	increments [16]uint64
}

// memory says how the buffers of messages are registered.
type memory string

const (
	owned  memory = "owned"  // registered by the caller
	cached memory = "cached" // registered for the message
	listed memory = "listed" // registered for the message, and in pieces at the side that moves the data
)

// startAll starts a put, a get, atomics and a message in each direction.
func startAll(p *ucppair.Pair, seed int, by memory) (all []*underWay) {
	for k, x := range []*ucppair.End{&p.A, &p.B} {
		u := &underWay{x: x, to: []*ucppair.End{&p.B, &p.A}[k], seed: seed + k, got: make([]byte, half)}
		if by != owned {
			u.out, u.in = make([]byte, half), make([]byte, half)
		} else {
			u.from, u.into = memOf(p.T, x, half), memOf(p.T, u.to, half)
			u.out, u.in = u.from.Bytes(), u.into.Bytes()
		}
		copy(u.to.Mem.Bytes()[half:], testenv.Pattern(half, u.seed))
		u.start(p.T, by)
		all = append(all, u)
	}
	return all
}

func (u *underWay) start(t testing.TB, by memory) {
	t.Helper()
	keep := func(list *[]*ucp.Request, r *ucp.Request, err error) {
		if err != nil && list == &u.may { // it has completed already
			assert.ErrorIs(t, err, ucs.ErrTimedOut)
			return
		}
		require.NoError(t, err)
		if r != nil {
			*list = append(*list, r)
			u.started++
		}
	}
	tell, ep, at := &ucp.OpParams{OnDone: func(error) { u.completed++ }}, u.x.EP, u.x.Key.Addr()
	r, err := ep.Put(testenv.Pattern(putLen, u.seed), at, u.x.Key, tell)
	keep(&u.may, r, err)
	u.get, err = ep.Get(u.got, at+half, u.x.Key, tell)
	keep(&u.may, u.get, err)
	copy(u.out, testenv.Pattern(half, u.seed))
	in, out := ucp.Bytes(u.in), ucp.Bytes(u.out)
	if by == listed && ep.Worker().Context().Configuration().RndvScheme == putScheme {
		out = ucp.Buffers([][]byte{u.out[:half/2], u.out[half/2:]})
	} else if by == listed {
		in = ucp.Buffers([][]byte{u.in[:half/2], u.in[half/2:]})
	}
	r, err = u.to.W.TagRecvData(in, 1, exact, nil, &ucp.OpParams{Mem: u.into, OnDone: tell.OnDone})
	keep(&u.must, r, err)
	r, err = ep.TagSendData(1, out, &ucp.OpParams{Mem: u.from, OnDone: tell.OnDone})
	keep(&u.must, r, err)
	for i := range u.increments {
		r, err = ep.AtomicFetch(uct.AtomicAdd, 8, 1, &u.increments[i], at+counter, u.x.Key)
		keep(&u.may, r, err)
		if r != nil {
			u.started-- // has no parameters
		}
	}
}

// end waits for all operations, checks the results, and checks that a flush reports the failures.
func (u *underWay) end(p *ucppair.Pair) (lost int) {
	p.T.Helper()
	got := u.get == nil
	for _, r := range u.must {
		require.NoError(p.T, p.Finish(r, nil))
	}
	testenv.RequireBytes(p.T, testenv.Pattern(half, u.seed), u.in)
	for _, r := range u.may {
		p.Until(r.Done)
		got = got || r == u.get && r.Status() == ucs.StatusOK
		if err := p.Finish(r, nil); err != nil {
			assert.ErrorIs(p.T, err, ucs.ErrTimedOut)
			assert.NotErrorIs(p.T, err, ucs.ErrEPFailed)
			lost++
		}
	}
	if got {
		testenv.RequireBytes(p.T, testenv.Pattern(half, u.seed), u.got)
	}
	if err := p.Finish(u.x.EP.Flush()); err != nil {
		assert.ErrorIs(p.T, err, ucs.ErrTimedOut)
		require.NoError(p.T, p.Finish(u.x.EP.Flush()), "only the first flush reports it")
	}
	require.NoError(p.T, u.x.EP.Err())
	p.Until(func() bool { return u.completed == u.started })
	return lost
}

// checkGoesOn checks that all operations work in both directions, and that the broken lane is closed.
func checkGoesOn(p *ucppair.Pair, by memory) {
	p.T.Helper()
	for seed := range 3 {
		for _, u := range startAll(p, 10*seed, by) {
			require.Zero(p.T, u.end(p))
			testenv.RequireBytes(p.T, testenv.Pattern(putLen, u.seed), u.to.Mem.Bytes()[:putLen])
			seen := noteWords(u.to, func(uint64) {})
			require.NoError(p.T, p.Finish(u.x.EP.PutNotify(testenv.Pattern(putLen, 7), u.x.Key.Addr(), u.x.Key, 3, nil)))
			p.Until(func() bool { return len(seen.words) > 0 })
			testenv.RequireBytes(p.T, testenv.Pattern(putLen, 7), u.to.Mem.Bytes()[:putLen])
		}
	}
	for _, x := range []*ucppair.End{&p.A, &p.B} {
		p.Until(func() bool { // the device may have to flush the lane first
			retired := slices.ContainsFunc(x.EP.Lanes().All[:], func(l ucp.Lane) bool { return l.Retired })
			return !retired && x.EP.Handshake().Quiet()
		})
		require.NoError(p.T, x.EP.Err())
	}
}

// warmBoth makes both sides use each lane.
func warmBoth(p *ucppair.Pair) *ucppair.Pair {
	p.T.Helper()
	p.Both()
	for _, x := range []*ucppair.End{&p.A, &p.B} {
		require.NoError(p.T, p.Finish(x.EP.SendActive(1, nil, nil, nil)))
		require.NoError(p.T, p.Finish(x.EP.Put([]byte{1}, x.Key.Addr(), x.Key, nil)))
		require.NoError(p.T, x.EP.AtomicPost(uct.AtomicAdd, 8, 0, x.Key.Addr()+counter, x.Key))
		require.NoError(p.T, p.Finish(x.EP.Flush()))
		p.Until(func() bool { return spareLane(p, x) != nil })
	}
	return p
}

// spareLane returns a lane of x without the role of messages.
func spareLane(p *ucppair.Pair, x *ucppair.End) *ucp.Lane {
	for i := range x.EP.Lanes().All {
		if l := &x.EP.Lanes().All[i]; l.Active && l != x.EP.Lane(wireup.AM) {
			return l
		}
	}
	return nil
}

// TestFailover_RealLanes: a lane without messages breaks at one side while both sides have operations in flight over
// it. The lane is one of several for large transfers, or the lane of all puts, gets and atomics. The EPs do not fail.
// Messages arrive completely, also if their memory was registered with the domain of that lane only. All other
// operations complete once, or fail with the reason.
func TestFailover_RealLanes(t *testing.T) {
	apartSets := []tlsets.Set{configured("rc, apart", apart, `\rc`), configured("rc_mlx5, apart", apart, "rc_mlx5")}
	for _, set := range append(railSets()[1:], apartSets...) {
		for _, scheme := range []string{"get_zcopy", "put_zcopy"} {
			cfg := railConfig()
			cfg.RndvScheme = scheme
			t.Run(set.Name+"/"+scheme, func(t *testing.T) { breakSpare(t, set, cfg, owned) })
		}
	}
	for _, set := range apartSets {
		for _, scheme := range []string{"get_zcopy", "put_zcopy"} {
			cfg := ucp.Config{RndvScheme: scheme, RndvThresh: 1, MaxRndvRails: 1}
			for _, by := range []memory{cached, listed} {
				t.Run(set.Name+"/"+scheme+"/"+string(by), func(t *testing.T) { breakSpare(t, set, cfg, by) })
			}
		}
	}
}

func breakSpare(t *testing.T, set tlsets.Set, cfg ucp.Config, by memory) {
	t.Run("by a layer", func(t *testing.T) { breakByLayer(t, set, cfg, by) })
	t.Run("by the device", func(t *testing.T) { breakByDevice(t, set, cfg, by) })
}

// breakByLayer makes a layer break the next operation over a lane.
func breakByLayer(t *testing.T, set tlsets.Set, cfg ucp.Config, by memory) {
	b := &breaker{}
	p := warmBoth(ucppair.New(t, b.under(set), cfg))
	b.ep = spareLane(p, &p.A).EP
	for _, u := range startAll(p, 1, by) {
		u.end(p)
	}
	require.Positive(t, b.times)
	checkGoesOn(p, by)
}

// breakByDevice makes the device of a lane lose the operations in flight.
func breakByDevice(t *testing.T, set tlsets.Set, cfg ucp.Config, by memory) {
	p := warmBoth(ucppair.New(t, set, cfg))
	x, ok := spareLane(p, &p.A).EP.(failing)
	if !ok {
		t.Skip("nothing fails a connection of this transport alone")
	}
	both := startAll(p, 1, by)
	x.Fail(ucs.StatusTimedOut, ucs.ErrTimedOut)
	for _, u := range both {
		u.end(p)
	}
	checkGoesOn(p, by)
}

// TestFailover_AnyReason: the data of a message moves to another lane for any reason for which the lane breaks, also if
// a put of the caller was the reason.
func TestFailover_AnyReason(t *testing.T) {
	set := configured("rc, apart", apart, `\rc`)
	for _, scheme := range []string{"get_zcopy", "put_zcopy"} {
		for _, reason := range []error{ucs.ErrRemoteAccess, ucs.ErrRemoteInvalid, ucs.ErrIO} {
			t.Run(scheme+"/"+reason.Error(), func(t *testing.T) {
				b := &breaker{reason: reason}
				p := warmBoth(ucppair.New(t, b.under(set), ucp.Config{RndvScheme: scheme, RndvThresh: 1, MaxRndvRails: 1}))
				from, to := &p.A, &p.B
				if scheme == "get_zcopy" { // the receiver moves the data
					from, to = to, from
				}
				b.ep = spareLane(p, &p.A).EP
				data, buf := testenv.Pattern(half, 3), make([]byte, half)
				recv, err := to.W.TagRecv(buf, 1, exact, nil, nil)
				require.NoError(t, err)
				send, err := from.EP.TagSend(1, data, nil)
				require.NoError(t, err)
				require.NoError(t, p.Finish(recv, nil))
				require.NoError(t, p.Finish(send, nil))
				testenv.RequireBytes(t, data, buf)
				require.Positive(t, b.times)
				require.NoError(t, p.A.EP.Err())
			})
		}
	}
}
