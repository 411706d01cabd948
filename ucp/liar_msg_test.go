package ucp_test

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
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// lies is a victim (a) with operations of all classes in progress to an honest peer (b), and another peer, which
// connects correctly and sends any messages.
type lies struct {
	*ucppair.Pair
	bad      ucppair.End
	requests []*ucp.Request // of a and b; they must succeed
	atomic   *ucp.Request   // one of requests; nil if it has completed at once
	check    []func()       // of the received data, after them
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
	cfg := ucp.Config{TLS: set.TLS, RndvThresh: lieThresh, RndvScheme: scheme, EagerWindow: victimWindow, Costs: ucp.CostsDeclared}
	x := &lies{Pair: ucppair.New(t, set, cfg)}
	x.bad.Open(t, cfg, b)
	x.Both().Warm()
	x.bad.Dial(t, &x.A)
	x.A.W.OnNotify(func(*ucp.EP, uint64) { x.notified++ })
	x.greet(x.A.EP, x.B.W)
	x.greet(x.B.EP, x.A.W)
	x.greet(x.bad.EP, x.A.W)
	return x
}

// greet sends a message, so that the lane for messages connects.
func (x *lies) greet(e *ucp.EP, to *ucp.Worker) {
	x.T.Helper()
	in, err := to.TagRecv(make([]byte, 1), 1, exact, nil, nil)
	require.NoError(x.T, err)
	out, err := e.TagSend(1, []byte{1}, nil)
	require.NoError(x.T, err)
	x.all(func() bool { return in.Done() && (out == nil || out.Done()) })
	for _, r := range []*ucp.Request{in, out} {
		if r != nil {
			require.NoError(x.T, r.Take())
		}
	}
}

// all makes progress on the three workers until ok returns true.
func (x *lies) all(ok func() bool) {
	x.T.Helper()
	x.Until(func() bool { x.bad.W.Progress(); return ok() })
}

// without makes progress on all but b until ok returns true.
func (x *lies) without(ok func() bool) {
	x.T.Helper()
	testenv.ProgressWithin(x.T, testenv.Watchdog, func() bool {
		x.bad.W.Progress()
		x.A.W.Progress()
		return ok()
	})
}

// track records a request that must succeed.
func (x *lies) track(r *ucp.Request, err error) *ucp.Request {
	x.T.Helper()
	require.NoError(x.T, err)
	if r != nil {
		x.requests = append(x.requests, r)
	}
	return r
}

// receive posts a receive of a for a message of b.
func (x *lies) receive(tag uint64, data []byte, p *ucp.OpParams) *ucp.Request {
	x.T.Helper()
	buf := make([]byte, len(data))
	if p != nil {
		buf = p.Mem.Bytes()[:len(data)]
	}
	x.check = append(x.check, func() { testenv.RequireBytes(x.T, data, buf) })
	return x.track(x.A.W.TagRecv(buf, tag, exact, nil, p))
}

// send sends an active message over the lane of e.
func (x *lies) send(e *ucp.EP, id uint8, msg []byte) {
	x.T.Helper()
	testenv.ProgressWithin(x.T, testenv.Watchdog, func() bool {
		e.Worker().Progress()
		_, err := e.Lane(wireup.AM).AM.AMBcopy(id, packer(msg))
		if err != uct.ErrNoResource {
			require.NoError(x.T, err)
		}
		return err == nil
	})
}

// begin starts operations of all classes, which wait for b. b makes no more progress.
func (x *lies) begin(scheme string) {
	a, b := &x.A, &x.B
	x.track(a.EP.TagSendSync(7, []byte("sync"), nil))
	announced := x.track(a.EP.TagSend(8, testenv.Pattern(2*lieThresh, 8), nil))
	x.track(a.EP.StreamSend(testenv.Pattern(2*victimWindow, 9), nil)) // b does not read it yet
	x.all(func() bool { return announced.RemoteID() != 0 && a.EP.Messages().Stream().Starved() })
	idle(x.Pair)

	in := (*ucp.OpParams)(nil)
	if scheme == "put_zcopy" {
		in = &ucp.OpParams{Mem: memOf(x.T, a, 2*lieThresh)}
	}
	data, parts := testenv.Pattern(2*lieThresh, 10), testenv.Pattern(80, 11)
	fetching := x.receive(10, data, in)
	x.track(b.EP.TagSend(10, data, nil))
	x.receive(11, parts, nil)
	x.send(b.EP, wire.AMTagFirst, partOf(a.EP.ID(), 11, 80, parts[:40]))
	spin(b) // the last progress of b: a has not replied yet
	x.track(a.EP.StreamRecv(make([]byte, 10), true, new(int), nil))
	x.atomic = x.track(a.EP.AtomicFetch(uct.AtomicAdd, 8, 1, new(uint64), a.Key.Addr(), a.Key))
	x.without(func() bool { return fetching.Fetches() && a.EP.Messages().Inbound() != nil })
}

// partOf returns the first part of a message.
func partOf(ep, word, total uint64, data []byte) []byte {
	h, p := wire.Head{Word: word, EP: ep}, wire.Part{Value: total, ID: partID}
	return append(p.Append(h.Append(nil)), data...)
}

// honest lets b make progress again, and checks that all operations succeed.
func (x *lies) honest() {
	x.T.Helper()
	a, b := &x.A, &x.B
	x.send(b.EP, wire.AMFrag, append((&wire.Frag{EP: a.EP.ID(), ID: partID, Offset: 40}).Append(nil), testenv.Pattern(80, 11)[40:]...))
	for tag, want := range map[uint64][]byte{7: []byte("sync"), 8: testenv.Pattern(2*lieThresh, 8)} {
		buf := make([]byte, len(want))
		x.track(b.W.TagRecv(buf, tag, exact, nil, nil))
		x.check = append(x.check, func() { testenv.RequireBytes(x.T, want, buf) })
	}
	stream := make([]byte, 2*victimWindow)
	x.track(b.EP.StreamRecv(stream, true, new(int), nil))
	x.track(b.EP.StreamSend(make([]byte, 10), nil))
	for _, r := range x.requests {
		x.all(r.Done)
		require.NoError(x.T, r.Take())
	}
	testenv.RequireBytes(x.T, testenv.Pattern(2*victimWindow, 9), stream)
	for _, f := range x.check {
		f()
	}
	require.NoError(x.T, a.EP.Err())
	require.NoError(x.T, b.EP.Err())
	require.Zero(x.T, x.notified)
}

// state describes the state of b at the victim, which no other peer may change. It omits an atomic that a device executes
// without b, because the device completes it at any time.
func (x *lies) state() string {
	var s strings.Builder
	for _, r := range x.requests {
		if r == x.atomic && r.RemoteID() == 0 {
			continue
		}
		s.WriteString(r.Text())
	}
	m, w := x.A.EP.Messages(), x.A.W
	fmt.Fprintln(&s, x.A.EP.Phase(), m.Credit, m.Held, m.Inbound().Got(), m.Stream().SendOffset(), m.Stream().ReceiveOffset(), m.Stream().RequestedBytes())
	fmt.Fprintln(&s, w.Tags().Unexpected(), w.RemoteRequests().Len(), w.EPs().Len(), x.notified)
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
func aboutConnection(ep uint64, to *ucp.EP) []lie {
	h := &wire.Head{Word: 11, EP: ep}
	head, data := h.Append(nil), []byte("a lie")
	rts := append(slices.Clone(head), (&wire.RTS{ID: 5, Length: 5}).Append(nil)...)
	stream := (&wire.Head{Word: to.Messages().Stream().ReceiveOffset(), EP: ep}).Append(nil)
	active := (&wire.Head{Word: ucp.ActiveWord(7, nil), EP: ep}).Append(nil)
	return []lie{
		{"TAG", wire.AMTag, append(slices.Clone(head), data...)},
		{"TAG SYNC", wire.AMTagSync, partOf(ep, 11, 0, data)},
		{"TAG FIRST", wire.AMTagFirst, partOf(ep, 11, 80, data)},
		{"TAG RTS", wire.AMTagRTS, rts},
		{"ACTIVE", wire.AMActive, append(active, data...)},
		{"ACTIVE FIRST", wire.AMActiveFirst, partOf(ep, ucp.ActiveWord(7, nil), 80, data)},
		{"ACTIVE RTS", wire.AMActiveRTS, append(slices.Clone(active), rts[wire.HeadLen:]...)},
		{"ACTIVE SHORT", wire.AMActiveShort, append(hostileHead(wire.ShortActive(ep) | 7)[:wire.WordLen], data...)},
		{"STREAM", wire.AMStream, append(slices.Clone(stream), data...)},
		{"STREAM END", wire.AMStreamEnd, (&wire.Control{EP: ep, ID: to.Messages().Stream().ReceiveOffset()}).Append(nil)},
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
func (x *lies) checkLies(e *ucp.EP, all []lie) {
	x.T.Helper()
	for _, l := range all {
		before, bad := x.state(), x.A.W.BadMessages().Load()
		x.send(e, l.id, l.msg)
		x.without(func() bool { return x.A.W.BadMessages().Load() > bad })
		for range 10 {
			x.A.W.Progress()
		}
		assert.Equal(x.T, bad+1, x.A.W.BadMessages().Load(), l.what)
		require.Equal(x.T, before, x.state(), l.what)
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
				own := x.bad.EP.Handshake().RemoteEP()
				var ids []uint64
				for r := range x.A.W.RemoteRequests().All() {
					ids = append(ids, r.RemoteID())
				}
				require.GreaterOrEqual(t, len(ids), 3)
				for _, id := range ids {
					x.checkLies(x.bad.EP, aboutRequest(own, id))
				}
				for _, guess := range guesses(x.A.EP.ID()) {
					x.checkLies(x.bad.EP, aboutRequest(guess, ids[0]))
					x.checkLies(x.bad.EP, aboutConnection(guess, x.A.EP))
				}
				require.NoError(t, x.bad.EP.Err())
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
			p := x.bad.EP.Peer().Aux[0]
			i, remote := x.bad.W.Ifaces()[p.Local], &x.A.W.AddressInfo().Resources[p.Remote]
			ep, err := i.NewEP(uct.EPParams{DeviceAddr: remote.DeviceAddr, IfaceAddr: remote.IfaceAddr})
			require.NoError(t, err)
			i.Retain()
			defer func() { require.NoError(t, ep.Close()); i.Release() }()
			bare := ucp.BareEP(x.bad.W, ep)
			for _, guess := range guesses(x.A.EP.ID()) {
				x.checkLies(bare, aboutRequest(guess, partID))
				x.checkLies(bare, aboutConnection(guess, x.A.EP))
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
			var from, notifier *ucp.EP
			x.A.W.OnActive(7, func(m *ucp.ActiveMessage) { from = m.From })
			x.A.W.OnNotify(func(e *ucp.EP, _ uint64) { notifier = e })
			x.begin("am")
			var info ucp.TagInfo
			in, err := x.A.W.TagRecv(make([]byte, 5), 11, exact, &info, nil)
			require.NoError(t, err)
			before, own := x.state(), x.bad.EP.Handshake().RemoteEP()
			for _, l := range aboutConnection(own, x.A.EP) {
				if l.what == "TAG" || l.what == "ACTIVE" || l.what == "STREAM" || l.what == "NOTIFY" || l.what == "WITHDRAW" {
					x.send(x.bad.EP, l.id, l.msg)
				}
			}
			x.without(func() bool { return in.Done() && from != nil && notifier != nil && x.A.W.StreamReady() != nil })
			liar := x.A.W.EPs().Find(own)
			for _, e := range []*ucp.EP{info.From, from, notifier, x.A.W.StreamReady()} {
				assert.Same(t, liar, e)
			}
			require.NoError(t, in.Take())
			require.Equal(t, before, x.state())
			assert.False(t, liar.SamePeer(x.A.EP))
			x.honest()
		})
	}
}

// TestLiar_Dial: a dialer with the address of another worker does not connect, and calls no callback of the listener.
func TestLiar_Dial(t *testing.T) {
	for _, set := range lieSets() {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{})
			l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{})
			other := thirdWorker(p, p.B.Ctx)
			p.A.W.UseAddressOf(other)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := p.A.W.DialWith(ctx, "unix", l.Addr().String(), &ucp.DialConfig{}, func(ctx context.Context, done func() bool) error {
				return progressing(p)(ctx, func() bool {
					other.Progress()
					if p.B.W.BadMessages().Load() > 0 {
						cancel()
					}
					return done()
				})
			})
			require.Error(t, err)
			require.NotZero(t, p.B.W.BadMessages().Load())
			p.Until(func() bool { return p.B.W.ExpectedPeers() == 0 && p.B.W.EPs().Len() == 0 })
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
	p, accepts := ucppair.New(t, set, ucp.Config{}), false
	l := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{
		Private: []byte("secret"), Accept: func(*ucp.ConnRequest) bool { return accepts },
	})
	_, err := dialTo(p, l, ucp.DialConfig{})
	var rejected *ucp.RejectedError
	require.ErrorAs(t, err, &rejected)
	require.NotErrorIs(t, err, ucs.ErrUnreachable)
	assert.Empty(t, rejected.Private)
	assert.NotContains(t, err.Error(), "fsm")
	accepts = true
	_, err = dialTo(p, l, ucp.DialConfig{})
	require.ErrorIs(t, err, ucs.ErrUnreachable)
	assert.ErrorContains(t, err, "fsm", "a dialer that is accepted gets the reasons")
}
