package ucp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// lies is a victim (a) with operations of all classes in progress to an honest peer (b), and another peer, which
// connects correctly and sends any messages.
type lies struct {
	*pair
	bad      end
	requests []*Request // of a and b; they must succeed
	atomic   *Request   // one of requests; nil if it has completed at once
	check    []func()   // of the received data, after them
	notified int
}

const (
	lieThresh = 4 << 10 // RNDV_THRESH, in bytes
	partID    = 1 << 40 // the id of a message of b of which a has received a part
)

// lieSets are the transports of these tests. With the fake one the target executes atomics.
func lieSets() []tlsets.Set {
	return []tlsets.Set{faketp.Set("like tcp", faketp.LikeTCP()), tlsets.Real("sm", "sm"), tlsets.Real("tcp", "tcp"), tlsets.Real("rc", `\rc`)}
}

func newLies(t testing.TB, set tlsets.Set, scheme string) *lies {
	t.Helper()
	a, b := set.Open(t)
	set.Open = func(testing.TB) (_, _ []uct.Component) { return a, b }
	cfg := Config{TLS: set.TLS, RndvThresh: lieThresh, RndvScheme: scheme, EagerWindow: victimWindow, Costs: CostsDeclared}
	x := &lies{pair: newPair(t, set, cfg)}
	x.bad.open(t, cfg, b)
	x.both().warm()
	x.bad.dial(t, &x.a)
	x.a.w.OnNotify(func(*EP, uint64) { x.notified++ })
	x.greet(x.a.ep, x.b.w)
	x.greet(x.b.ep, x.a.w)
	x.greet(x.bad.ep, x.a.w)
	return x
}

// greet sends a message, so that the lane for messages connects.
func (x *lies) greet(e *EP, to *Worker) {
	x.t.Helper()
	in, err := to.TagRecv(make([]byte, 1), 1, exact, nil, nil)
	require.NoError(x.t, err)
	out, err := e.TagSend(1, []byte{1}, nil)
	require.NoError(x.t, err)
	x.all(func() bool { return in.Done() && (out == nil || out.Done()) })
	for _, r := range []*Request{in, out} {
		if r != nil {
			require.NoError(x.t, r.take())
		}
	}
}

// all makes progress on the three workers until ok returns true.
func (x *lies) all(ok func() bool) {
	x.t.Helper()
	x.until(func() bool { x.bad.w.Progress(); return ok() })
}

// without makes progress on all but b until ok returns true.
func (x *lies) without(ok func() bool) {
	x.t.Helper()
	testenv.ProgressWithin(x.t, patience, func() bool {
		x.bad.w.Progress()
		x.a.w.Progress()
		return ok()
	})
}

// track records a request that must succeed.
func (x *lies) track(r *Request, err error) *Request {
	x.t.Helper()
	require.NoError(x.t, err)
	if r != nil {
		x.requests = append(x.requests, r)
	}
	return r
}

// receive posts a receive of a for a message of b.
func (x *lies) receive(tag uint64, data []byte, p *OpParams) *Request {
	x.t.Helper()
	buf := make([]byte, len(data))
	if p != nil {
		buf = p.Mem.Bytes()[:len(data)]
	}
	x.check = append(x.check, func() { requireBytes(x.t, data, buf) })
	return x.track(x.a.w.TagRecv(buf, tag, exact, nil, p))
}

// send sends an active message over the lane of e.
func (x *lies) send(e *EP, id uint8, msg []byte) {
	x.t.Helper()
	testenv.ProgressWithin(x.t, patience, func() bool {
		e.w.Progress()
		_, err := e.lane(wireup.AM).AM.AMBcopy(id, packer(msg))
		if err != uct.ErrNoResource {
			require.NoError(x.t, err)
		}
		return err == nil
	})
}

// begin starts operations of all classes, which wait for b. b makes no more progress.
func (x *lies) begin(scheme string) {
	a, b := &x.a, &x.b
	x.track(a.ep.TagSendSync(7, []byte("sync"), nil))
	announced := x.track(a.ep.TagSend(8, pattern(2*lieThresh, 8), nil))
	x.track(a.ep.StreamSend(pattern(2*victimWindow, 9), nil)) // b does not read it yet
	x.all(func() bool { return announced.remote != 0 && a.ep.msgs.stream.starved })
	x.idle()

	in := (*OpParams)(nil)
	if scheme == "put_zcopy" {
		in = &OpParams{Mem: a.memOf(x.t, 2*lieThresh)}
	}
	data, parts := pattern(2*lieThresh, 10), pattern(80, 11)
	fetching := x.receive(10, data, in)
	x.track(b.ep.TagSend(10, data, nil))
	x.receive(11, parts, nil)
	x.send(b.ep, wire.AMTagFirst, partOf(a.ep.id, 11, 80, parts[:40]))
	b.spin() // the last progress of b: a has not replied yet
	x.track(a.ep.StreamRecv(make([]byte, 10), true, new(int), nil))
	x.atomic = x.track(a.ep.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), a.key.Addr(), a.key))
	x.without(func() bool { return fetching.stage.fetches && a.ep.msgs.inbound != nil })
}

// partOf returns the first part of a message.
func partOf(ep, word, total uint64, data []byte) []byte {
	h, p := wire.Head{Word: word, EP: ep}, wire.Part{Value: total, ID: partID}
	return append(p.Append(h.Append(nil)), data...)
}

// honest lets b make progress again, and checks that all operations succeed.
func (x *lies) honest() {
	x.t.Helper()
	a, b := &x.a, &x.b
	x.send(b.ep, wire.AMFrag, append((&wire.Frag{EP: a.ep.id, ID: partID, Offset: 40}).Append(nil), pattern(80, 11)[40:]...))
	for tag, want := range map[uint64][]byte{7: []byte("sync"), 8: pattern(2*lieThresh, 8)} {
		buf := make([]byte, len(want))
		x.track(b.w.TagRecv(buf, tag, exact, nil, nil))
		x.check = append(x.check, func() { requireBytes(x.t, want, buf) })
	}
	stream := make([]byte, 2*victimWindow)
	x.track(b.ep.StreamRecv(stream, true, new(int), nil))
	x.track(b.ep.StreamSend(make([]byte, 10), nil))
	for _, r := range x.requests {
		x.all(r.Done)
		require.NoError(x.t, r.take())
	}
	requireBytes(x.t, pattern(2*victimWindow, 9), stream)
	for _, f := range x.check {
		f()
	}
	require.NoError(x.t, a.ep.Err())
	require.NoError(x.t, b.ep.Err())
	require.Zero(x.t, x.notified)
}

// state describes the state of b at the victim, which no other peer may change. It omits an atomic that a device executes
// without b, because the device completes it at any time.
func (x *lies) state() string {
	var s strings.Builder
	for _, r := range x.requests {
		if r == x.atomic && r.remote == 0 {
			continue
		}
		fmt.Fprintln(&s, r.flags, r.off, r.comp.Count, r.comp.Status, r.remote)
	}
	m, w := x.a.ep.msgs, x.a.w
	fmt.Fprintln(&s, x.a.ep.state, m.Credit, m.Held, m.inbound.got, m.stream.sent, m.stream.came, m.stream.asked)
	fmt.Fprintln(&s, w.tag.table.Unexpected(), w.pool.remote.Len(), w.eps.Len(), x.notified)
	return s.String()
}

// lie is a message with ids of another peer.
type lie struct {
	what string
	id   uint8
	msg  []byte
}

// aboutRequest returns lies about a request or a message that has an id at the receiver, over the connection with the
// id ep.
func aboutRequest(ep, id uint64) []lie {
	control := func(id, value uint64) []byte { return (&wire.Control{EP: ep, ID: id, Value: value}).Append(nil) }
	return []lie{
		{"ACK", wire.AMAck, control(id, 0)},
		{"ACK, canceled", wire.AMAck, control(id, uint64(ucs.StatusCanceled))},
		{"PUT DONE", wire.AMPutDone, control(id, 0)},
		{"RTR", wire.AMRTR, (&wire.RTR{EP: ep, ID: id, Recv: 1, Length: 1}).Append(nil)},
		{"DATA", wire.AMData, frag(ep, id, 0, 8)},
		{"STREAM TAKEN", wire.AMStreamTaken, control(id, 0)},
		{"FRAGMENT", wire.AMFrag, frag(ep, id, 0, 40)},
		{"FRAGMENT of a part", wire.AMFrag, frag(ep, partID, 40, 40)},
		{"ANSWER", wire.AMAnswer, (&wire.Answer{EP: ep, ID: id, Value: 99}).Append(nil)},
	}
}

// aboutConnection returns messages over the connection that has the id ep at the receiver.
func aboutConnection(ep uint64, to *EP) []lie {
	h := &wire.Head{Word: 11, EP: ep}
	head, data := h.Append(nil), []byte("a lie")
	rts := append(slices.Clone(head), (&wire.RTS{ID: 5, Length: 5}).Append(nil)...)
	stream := (&wire.Head{Word: to.msgs.stream.came, EP: ep}).Append(nil)
	active := (&wire.Head{Word: activeWord(7, nil), EP: ep}).Append(nil)
	return []lie{
		{"TAG", wire.AMTag, append(slices.Clone(head), data...)},
		{"TAG SYNC", wire.AMTagSync, partOf(ep, 11, 0, data)},
		{"TAG FIRST", wire.AMTagFirst, partOf(ep, 11, 80, data)},
		{"TAG RTS", wire.AMTagRTS, rts},
		{"ACTIVE", wire.AMActive, append(active, data...)},
		{"ACTIVE FIRST", wire.AMActiveFirst, partOf(ep, activeWord(7, nil), 80, data)},
		{"ACTIVE RTS", wire.AMActiveRTS, append(slices.Clone(active), rts[wire.HeadLen:]...)},
		{"ACTIVE SHORT", wire.AMActiveShort, append(hostileHead(wire.ShortActive(ep) | 7)[:wire.WordLen], data...)},
		{"STREAM", wire.AMStream, append(slices.Clone(stream), data...)},
		{"STREAM END", wire.AMStreamEnd, (&wire.Control{EP: ep, ID: to.msgs.stream.came}).Append(nil)},
		{"STREAM RTS", wire.AMStreamRTS, append(slices.Clone(stream), rts[wire.HeadLen:]...)},
		{"NOTIFY", wire.AMNotify, (&wire.Notify{EP: ep, Word: 9}).Append(nil)},
		{"ATOMIC", wire.AMRequest, (&wire.Request{Op: uct.AtomicAdd, Size: 8, EP: ep, ID: 1}).Append(nil)},
		{"CREDIT", wire.AMCredit, (&wire.Control{EP: ep, Value: 1 << 20}).Append(nil)},
		{"WITHDRAW", wire.AMWithdraw, (&wire.Control{EP: ep, ID: 1}).Append(nil)},
		{"LATER", wire.AMUnknown, (&wire.Control{EP: ep}).Append(nil)},
	}
}

// guesses are ids near a valid one.
func guesses(id uint64) []uint64 {
	return []uint64{id + 1, id - 1, id ^ 1<<32, id ^ 1<<63, id + 1<<32, id & 0xffffffff, 1 << 28, 0}
}

// checkLies sends lies over e, and checks that each is counted and changes nothing.
func (x *lies) checkLies(e *EP, all []lie) {
	x.t.Helper()
	for _, l := range all {
		before, bad := x.state(), x.a.w.stats.badMessages.Load()
		x.send(e, l.id, l.msg)
		x.without(func() bool { return x.a.w.stats.badMessages.Load() > bad })
		for range 10 {
			x.a.w.Progress()
		}
		assert.Equal(x.t, bad+1, x.a.w.stats.badMessages.Load(), l.what)
		require.Equal(x.t, before, x.state(), l.what)
	}
}

// TestLiar: a peer knows the ids of all requests and messages of another peer, but not the id of its connection. It
// cannot change the operations of the other peer, and each lie is counted.
func TestLiar(t *testing.T) {
	for _, scheme := range []string{"am", "put_zcopy"} {
		for _, set := range lieSets() {
			t.Run(scheme+"/"+set.Name, func(t *testing.T) {
				x := newLies(t, set, scheme)
				x.begin(scheme)
				own := x.bad.ep.link.conn.RemoteEP()
				var ids []uint64
				for r := range x.a.w.pool.remote.All() {
					ids = append(ids, r.remote)
				}
				require.GreaterOrEqual(t, len(ids), 3)
				for _, id := range ids {
					x.checkLies(x.bad.ep, aboutRequest(own, id))
				}
				for _, guess := range guesses(x.a.ep.id) {
					x.checkLies(x.bad.ep, aboutRequest(guess, ids[0]))
					x.checkLies(x.bad.ep, aboutConnection(guess, x.a.ep))
				}
				require.NoError(t, x.bad.ep.Err())
				x.honest()
			})
		}
	}
}

// TestLiar_NoHandshake: messages over a transport connection without a handshake change nothing.
func TestLiar_NoHandshake(t *testing.T) {
	for _, set := range lieSets() {
		t.Run(set.Name, func(t *testing.T) {
			x := newLies(t, set, "am")
			x.begin("am")
			p := x.bad.ep.peer.Aux[0]
			i, remote := x.bad.w.ifaces[p.Local], &x.a.w.net.addr.Resources[p.Remote]
			ep, err := i.NewEP(uct.EPParams{DeviceAddr: remote.DeviceAddr, IfaceAddr: remote.IfaceAddr})
			require.NoError(t, err)
			i.Retain()
			defer func() { require.NoError(t, ep.Close()); i.Release() }()
			bare := &EP{w: x.bad.w, link: &link{}}
			bare.link.lanes.Use[wireup.AM] = &lane{AM: ep.Ops().AM}
			for _, guess := range guesses(x.a.ep.id) {
				x.checkLies(bare, aboutRequest(guess, partID))
				x.checkLies(bare, aboutConnection(guess, x.a.ep))
			}
			x.honest()
		})
	}
}

// TestLiar_OwnConnection: messages over the own connection of the peer with the ids of another peer are its own messages: the
// receiver uses the connection over which they have arrived.
func TestLiar_OwnConnection(t *testing.T) {
	for _, set := range lieSets() {
		t.Run(set.Name, func(t *testing.T) {
			x := newLies(t, set, "am")
			var from, notifier *EP
			x.a.w.OnActive(7, func(m *ActiveMessage) { from = m.From })
			x.a.w.OnNotify(func(e *EP, _ uint64) { notifier = e })
			x.begin("am")
			var info TagInfo
			in, err := x.a.w.TagRecv(make([]byte, 5), 11, exact, &info, nil)
			require.NoError(t, err)
			before, own := x.state(), x.bad.ep.link.conn.RemoteEP()
			for _, l := range aboutConnection(own, x.a.ep) {
				if l.what == "TAG" || l.what == "ACTIVE" || l.what == "STREAM" || l.what == "NOTIFY" || l.what == "WITHDRAW" {
					x.send(x.bad.ep, l.id, l.msg)
				}
			}
			x.without(func() bool { return in.Done() && from != nil && notifier != nil && x.a.w.StreamReady() != nil })
			liar := x.a.w.eps.Find(own)
			for _, e := range []*EP{info.From, from, notifier, x.a.w.StreamReady()} {
				assert.Same(t, liar, e)
			}
			require.NoError(t, in.take())
			require.Equal(t, before, x.state())
			assert.False(t, liar.SamePeer(x.a.ep))
			x.honest()
		})
	}
}

// TestLiar_Dial: a dialer with the address of another worker does not connect, and calls no callback of the listener.
func TestLiar_Dial(t *testing.T) {
	for _, set := range lieSets() {
		t.Run(set.Name, func(t *testing.T) {
			p := newPair(t, set, Config{})
			l := p.b.listen(t, "unix", abstractName(), ListenConfig{})
			other := p.third(p.b.ctx)
			p.a.w.net.addr.Key, p.a.w.net.packed = other.net.addr.Key, other.net.packed
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := p.a.w.dial(ctx, "unix", l.Addr().String(), &DialConfig{}, func(ctx context.Context, done func() bool) error {
				return p.within(ctx, func() bool {
					other.Progress()
					if p.b.w.stats.badMessages.Load() > 0 {
						cancel()
					}
					return done()
				})
			})
			require.Error(t, err)
			require.NotZero(t, p.b.w.stats.badMessages.Load())
			p.until(func() bool { return len(p.b.w.connecting.listening.expected) == 0 && p.b.w.eps.Len() == 0 })
			assert.Empty(t, l.events)
		})
	}
}

// TestListen_RejectionHidesReasons: a dialer that Accept rejects gets neither the private data of the listener nor the
// reasons why no transport reaches it, which contain device names.
func TestListen_RejectionHidesReasons(t *testing.T) {
	a, b := faketp.New(faketp.LikeTCP()), faketp.New(faketp.LikeSM())
	set := tlsets.Set{Name: "no transport in common", Open: func(testing.TB) (_, _ []uct.Component) {
		return []uct.Component{a}, []uct.Component{b}
	}}
	p, accepts := newPair(t, set, Config{}), false
	l := p.b.listen(t, "unix", abstractName(), ListenConfig{
		Private: []byte("secret"), Accept: func(*ConnRequest) bool { return accepts },
	})
	_, err := p.dialTo(l, DialConfig{})
	var rejected *RejectedError
	require.ErrorAs(t, err, &rejected)
	require.NotErrorIs(t, err, ucs.ErrUnreachable)
	assert.Empty(t, rejected.Private)
	assert.NotContains(t, err.Error(), "fsm")
	accepts = true
	_, err = p.dialTo(l, DialConfig{})
	require.ErrorIs(t, err, ucs.ErrUnreachable)
	assert.ErrorContains(t, err, "fsm", "a dialer that is accepted gets the reasons")
}
