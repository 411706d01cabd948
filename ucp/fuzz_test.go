package ucp_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/wireup"
)

// FuzzMessages: for any sequence of active messages over a connection, each request completes once, the resources of
// the messages are limited, another connection works, and the worker closes without errors.
func FuzzMessages(f *testing.F) {
	testenv.SkipRace(f, oneGoroutine)
	for _, seed := range messageSeeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x := newVictim(t)
		x.begin()
		for range maxHostile {
			var m hostileMsg
			if b = m.unpack(b); b == nil {
				break
			}
			x.handle(m)
		}
		x.bounded()
		x.othersWork()
		x.allEnd()
	})
}

// maxHostile is the maximum number of messages of one input.
const maxHostile = 64

// Ids in a message of an input.
const (
	namesEP      = 1 << iota // the id of the connection
	namesRequest             // the id of a request that waits for the peer; the higher bits select it
)

// hostileMsg is one message of an input: four bytes, then its body.
type hostileMsg struct {
	id, how uint8
	body    []byte
}

func (m *hostileMsg) unpack(b []byte) []byte {
	if len(b) < 4 {
		return nil
	}
	m.id, m.how = b[0]%(wire.AMStreamEnd+1), b[1]
	n := min(int(binary.LittleEndian.Uint16(b[2:])), len(b)-4)
	m.body = slices.Clone(b[4 : 4+n])
	return b[4+n:]
}

func (m hostileMsg) append(b []byte) []byte {
	b = append(b, m.id, m.how)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.body)))
	return append(b, m.body...)
}

// nameAt is the offset of the receiver's id of the connection.
var nameAt = [wire.AMStreamEnd + 1]int{
	wire.AMRequest: 8, wire.AMAnswer: 8, wire.AMTag: 8, wire.AMTagSync: 8, wire.AMTagFirst: 8, wire.AMTagRTS: 8,
	wire.AMActive: 8, wire.AMActiveFirst: 8, wire.AMActiveRTS: 8, wire.AMStream: 8,
	wire.AMStreamRTS: 8,
}

// address sets the ids of the message as the input says. The id of a request follows the id of the connection.
func (m *hostileMsg) address(ep uint64, waiting []uint64) {
	at := nameAt[m.id]
	switch {
	case m.how&namesEP == 0 || len(m.body) < at+8:
	case m.id == wire.AMActiveShort:
		id := binary.LittleEndian.Uint16(m.body)
		binary.LittleEndian.PutUint64(m.body, wire.ShortActive(ep)|uint64(id))
	default:
		binary.LittleEndian.PutUint64(m.body[at:], ep)
	}
	if m.how&namesRequest != 0 && len(m.body) >= at+16 && len(waiting) > 0 {
		binary.LittleEndian.PutUint64(m.body[at+8:], waiting[int(m.how>>2)%len(waiting)])
	}
}

// victim is a worker with a connection to a hostile peer, and another one to an honest peer.
type victim struct {
	t         *testing.T
	p         *ucppair.Pair
	iface     *faketp.Iface // of a
	good, bad *ucp.EP       // of a
	ask       *ucp.EP       // of b, the other end of good
	answers   int
	requests  []*ucp.Request
}

// victimWindow limits the unreceived messages of a peer, in bytes.
const victimWindow = 64 << 10

// Ids of active messages.
const (
	hostileID = 1 // received by the victim
	keptID    = 2 // kept by both sides
	askID     = 3 // from the honest peer
)

// queuedTagOfVictim is the tag of messages that wait for credit of the hostile peer.
const queuedTagOfVictim = 5

func newVictim(t *testing.T) *victim {
	p, f := ucppair.Fake(t, ucp.Config{RndvThresh: 128, EagerWindow: victimWindow}, faketp.LikeTCP())
	p.Both().Warm()
	x := &victim{t: t, p: p, iface: f.Ifaces[0], bad: p.A.EP}
	var err error
	x.good, err = p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	require.NoError(t, p.Finish(x.good.SendActive(keptID, nil, nil, nil)))
	x.ask, err = p.B.W.NewEP(p.A.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	p.A.W.OnNotify(func(*ucp.EP, uint64) {})
	p.A.W.OnActive(hostileID, func(m *ucp.ActiveMessage) {
		r, err := m.Recv(make([]byte, min(m.Length, 1000)), nil)
		x.track(r, err)
	})
	p.A.W.OnActive(askID, func(m *ucp.ActiveMessage) {
		if m.From == x.good {
			x.answers++
		}
	})
	return x
}

// track records a request that must complete.
func (x *victim) track(r *ucp.Request, err error) {
	if err == nil && r != nil {
		x.requests = append(x.requests, r)
	}
}

// begin starts operations of all classes, which wait for the peer.
func (x *victim) begin() {
	p, w, e := x.p, x.p.A.W, x.bad
	var kept []*ucp.ActiveMessage
	p.B.W.OnActive(keptID, func(m *ucp.ActiveMessage) { kept = append(kept, m.Keep()) })
	x.track(e.SendActive(keptID, nil, p.A.Mem.Bytes()[:500], &ucp.OpParams{Mem: p.A.Mem}))
	x.track(e.SendActive(keptID, nil, make([]byte, 5000), nil))
	x.track(e.TagSendSync(7, make([]byte, 10), nil))
	p.Until(func() bool { return len(kept) == 2 })
	idle(p)
	for range 3 {
		x.track(w.TagRecv(make([]byte, 300), 0, 0, &ucp.TagInfo{}, nil))
	}
	n := 0
	x.track(e.StreamRecv(make([]byte, 100), true, &n, nil))
	for range 2 * (victimWindow + window.MaxReserve) / window.MessageCharge { // the last ones have no credit
		x.track(e.TagSend(queuedTagOfVictim, nil, nil))
	}
	word := new(uint64)
	x.track(e.AtomicFetch(0, 8, 1, word, p.A.Key.Addr(), p.A.Key))
}

// handle passes a message to the victim. The peer makes no progress.
func (x *victim) handle(m hostileMsg) {
	w := x.p.A.W
	var waiting []uint64
	for r := range w.RemoteRequests().All() {
		waiting = append(waiting, r.RemoteID())
	}
	m.address(x.bad.ID(), waiting)
	if m.id == wire.AMWireup && m.how&namesEP != 0 {
		m.body = toWorker(x.p.B.W, w, x.bad, m.body)
	}
	x.iface.AM.Handle(m.id, m.body, nil)
	w.Progress()
}

// bounded checks the limits of what the peer makes the worker store.
func (x *victim) bounded() {
	w := x.p.A.W
	kept := 0
	for m := range w.Tags().Messages() {
		kept += m.Owner.BufferLen()
	}
	if m := x.bad.Messages(); m != nil {
		for in := m.Inbound(); in != nil; in = in.Next() {
			kept += in.Total()
		}
	}
	assert.LessOrEqual(x.t, kept, 2*(victimWindow+window.MaxReserve))
	assert.LessOrEqual(x.t, w.GrantedCredit(), int64(w.EPs().Len()*victimWindow))
}

// othersWork sends over the good connection in both directions.
func (x *victim) othersWork() {
	t, p := x.t, x.p
	require.NoError(t, x.good.Err())
	require.NoError(t, p.Finish(x.good.Put([]byte{1}, p.B.Mem.Addr(), x.keyOf(x.good), nil)))
	require.NoError(t, p.Finish(x.good.Flush()))
	answers := x.answers
	require.NoError(t, p.Finish(x.ask.SendActive(askID, nil, make([]byte, 50), nil)))
	p.Until(func() bool { return x.answers > answers })
}

func (x *victim) keyOf(e *ucp.EP) *ucp.RKey {
	key, err := e.Unpack(x.p.B.Mem.Pack())
	require.NoError(x.t, err)
	x.t.Cleanup(key.Close)
	return key
}

// allEnd closes the bad connection and the worker, and checks that no request is left.
func (x *victim) allEnd() {
	p := x.p
	if x.bad.Phase() != ucp.PhaseClosed {
		require.NoError(x.t, p.Finish(x.bad.Close(ucp.CloseForce)))
	}
	p.A.W.CancelReceives()
	for _, r := range x.requests {
		p.Until(r.Done)
		r.Release()
	}
	p.Until(func() bool { return p.A.W.GrantedCredit() <= victimWindow }) // of the honest peer
	left, eps := int64(0), map[*ucp.Messages]bool{}
	for m := range p.A.W.Tags().Messages() {
		if u := m.Owner; u.MessagesOf().Closed() {
			left += window.Charge(u.Charge()) + u.Slack()
			eps[u.MessagesOf()] = true
		}
	}
	left += int64(len(eps)) * ucp.DepartedCharge
	require.Equal(x.t, left, p.A.W.LeftBytes(), "bytes of the hostile peer")
}

// toWorker gives a handshake message valid ids of a peer, and seals it.
func toWorker(peer, w *ucp.Worker, ep *ucp.EP, b []byte) []byte {
	m, err := handshake.UnpackMsg(b)
	if err != nil || !ep.Linked() {
		return b
	}
	m.SrcUUID, m.DstUUID = ep.Peer().Addr.UUID(), w.AddressInfo().UUID()
	m.SrcEP, m.DstEP = ep.Handshake().RemoteEP(), ep.ID()
	return seal(peer, w, m)
}

// messageSeeds are inputs with messages of all types.
func messageSeeds() (seeds [][]byte) {
	add := func(msgs ...hostileMsg) {
		var b []byte
		for _, m := range msgs {
			b = m.append(b)
		}
		seeds = append(seeds, b)
	}
	hello := &handshake.Msg{
		Type: handshake.Request, SrcUUID: 1, DstUUID: 2, SrcEP: 3,
		Lanes: []handshake.MsgLane{{Roles: handshake.Set(wireup.RMA), EPAddr: []byte{0, 0}}},
	}
	add(hostileMsg{wire.AMWireup, namesEP, hello.Append(nil)})
	add(hostileMsg{wire.AMWireup, 0, hello.Append(nil)})
	hello.Type, hello.DstEP = handshake.Reply, 1<<32
	add(hostileMsg{wire.AMWireup, namesEP, hello.Append(nil)})
	add(hostileMsg{wire.AMRequest, namesEP, make([]byte, wire.RequestLen)})
	add(hostileMsg{wire.AMNotify, namesEP, make([]byte, wire.NotifyLen)})
	for which := range uint8(4) {
		how := namesEP | namesRequest | which<<2
		rtr := hostileMsg{wire.AMRTR, how, (&wire.RTR{Length: 300, Recv: 9}).Append(nil)}
		answer := hostileMsg{wire.AMAnswer, how, make([]byte, wire.AnswerLen)}
		ack := hostileMsg{wire.AMAck, how, make([]byte, wire.ControlLen)}
		add(rtr, answer, ack, rtr)
		add(answer)
		add(ack, hostileMsg{wire.AMPutDone, how, make([]byte, wire.ControlLen)})
	}
	add(hostileMsg{wire.AMCredit, namesEP, (&wire.Control{Value: ucp.MaxCredit}).Append(nil)})
	data := make([]byte, 40)
	head := func(word uint64) []byte { return (&wire.Head{Word: word}).Append(nil) }
	part := func(word, value, id uint64) []byte {
		return append((&wire.Part{Value: value, ID: id}).Append(head(word)), data...)
	}
	frag := func(id, off uint64) []byte { return append((&wire.Frag{ID: id, Offset: off}).Append(nil), data...) }
	rts := func(word, n, id uint64) []byte { return (&wire.RTS{ID: id, Length: n}).Append(head(word)) }
	add(hostileMsg{wire.AMTag, namesEP, append(head(1), data...)}, hostileMsg{wire.AMTagSync, namesEP, part(1, 0, 4)})
	for _, id := range []uint8{wire.AMTagFirst, wire.AMActiveFirst} {
		first, next := hostileMsg{id, namesEP, part(hostileID, 80, 5)}, hostileMsg{wire.AMFrag, namesEP, frag(5, 40)}
		add(first, next, next)
		add(first, first, first, first, hostileMsg{wire.AMFrag, namesEP, frag(5, 41)})
		add(hostileMsg{id, namesEP, part(hostileID, ucp.MaxEager, 5)})
	}
	for _, id := range []uint8{wire.AMTagRTS, wire.AMActiveRTS} {
		announce, next := hostileMsg{id, namesEP, rts(hostileID, 80, 6)}, hostileMsg{wire.AMData, namesEP | namesRequest | 3<<2, frag(0, 0)}
		add(announce, next, next, announce)
		add(announce, hostileMsg{wire.AMWithdraw, namesEP, (&wire.Control{ID: 6}).Append(nil)}, announce)
		add(hostileMsg{id, namesEP, rts(hostileID, ucp.MaxMessage, 6)}, next)
	}
	add(hostileMsg{wire.AMActiveShort, namesEP, append(head(hostileID)[:wire.WordLen], data...)})
	add(hostileMsg{wire.AMActive, namesEP, append(head(ucp.ActiveWord(hostileID, data[:9])), data...)})
	add(hostileMsg{wire.AMStream, namesEP, append(head(0), data...)}, hostileMsg{wire.AMStream, namesEP, append(head(40), data...)})
	add(hostileMsg{wire.AMStream, namesEP, append(head(7), data...)})
	add(hostileMsg{wire.AMStream, namesEP, head(7)}) // empty, at another offset
	end := hostileMsg{wire.AMStreamEnd, namesEP, (&wire.Control{}).Append(nil)}
	add(end, hostileMsg{wire.AMStream, namesEP, append(head(math.MaxUint64), data...)}, end)
	query := func(number uint32, kind wire.QueryKind, returned bool) hostileMsg {
		q := wire.Query{Number: number, Kind: kind, Returned: returned, Tag: queuedTagOfVictim, Mask: exact, Limit: 1 << 40}
		if kind == wire.QueryList {
			q.Limit = 0
		}
		return hostileMsg{wire.AMQuery, namesEP, q.Append(nil)}
	}
	for kind := range wire.QueryProbe + 1 {
		add(query(1, kind, true), query(2, kind, false), query(2, wire.QueryMatch, true), query(3, wire.QueryNone, true))
	}
	reply := func(number uint32, kind wire.ReplyKind, value uint64, pairs ...wire.Pair) hostileMsg {
		b := (&wire.Reply{Number: number, Kind: kind, Value: value}).Append(nil)
		for _, p := range pairs {
			b = p.Append(b)
		}
		return hostileMsg{wire.AMReply, namesEP, b}
	}
	offer := func(number uint32, message uint64) hostileMsg {
		o := wire.Offer{Query: number, Message: message, Tag: hostileID}
		return hostileMsg{wire.AMOffer, namesEP, (&wire.RTS{ID: 6, Length: 80}).Append(o.Append(nil))}
	}
	for credits := range uint64(3) {
		blocked, none := reply(0, wire.ReplyBlocked, credits), reply(1, wire.ReplyNone, 7)
		add(blocked, blocked, none, none, reply(2, wire.ReplyNone, 1), reply(3, wire.ReplyNone, 1), reply(4, wire.ReplyList, 0, wire.Pair{First: 9, Second: 1}), offer(5, 9))
		add(blocked, offer(1, 1), offer(1, 1), offer(2, 2), offer(3, 3), offer(4, 4))
		add(blocked, reply(1, wire.ReplyProbe, 1, wire.Pair{First: 1, Second: ucp.MaxMessage}), reply(2, wire.ReplyList, 0, wire.Pair{}))
	}
	return seeds
}
