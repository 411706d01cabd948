package ucp_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// FuzzHostilePeer: a connected peer sends any messages, in any order, while an honest peer has operations in progress.
// All operations of the honest peer succeed with the right data, its connection does not fail, and the sums of bytes at
// the worker are consistent.
func FuzzHostilePeer(f *testing.F) {
	testenv.SkipRace(f, oneGoroutine)
	for _, seed := range hostileSeeds() {
		f.Add(append([]byte{0}, seed...))
		f.Add(append([]byte{1}, seed...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		set := faketp.Set("like tcp", faketp.LikeTCP())
		if b[0]&1 != 0 {
			set = tlsets.Real("sm", "sm")
		}
		x := newHostile(t, set, tlsets.RndvSchemes[int(b[0]>>1)%len(tlsets.RndvSchemes)])
		b = b[1:]
		for range maxHostile {
			var m hostileMsg
			if b = m.unpack(b); b == nil {
				break
			}
			x.turn(m)
		}
		x.honest()
		x.balanced()
	})
}

// hostile is a lies that a fuzz input drives.
type hostile struct {
	*lies
	t       *testing.T
	turns   int
	redials int
}

// Ids in a message of an input, besides namesEP and namesRequest, whose higher bits select the request.
const (
	hostileGuess = 1 << 6 // the message has an id of a connection near that of the honest peer
	hostileStep  = 1 << 7 // the honest peer makes progress after it
)

// hostileTag is in the tags of the hostile peer, whose messages would match the receives of others.
const hostileTag = 1 << 63

// honestID is the id of active messages of the honest peer.
const honestID = 9

// maxRedials limits how often the hostile peer connects again.
const maxRedials = 3

func newHostile(t *testing.T, set tlsets.Set, scheme string) *hostile {
	x := &hostile{lies: newLies(t, set, scheme), t: t}
	w := x.A.W
	w.OnNotify(func(e *ucp.EP, _ uint64) {
		if e == x.A.EP {
			x.notified++
		}
	})
	w.OnActive(hostileID, func(m *ucp.ActiveMessage) {
		r, err := m.Recv(make([]byte, min(m.Length, 1000)), nil)
		if err == nil && r != nil {
			r.Release()
		}
	})
	x.begin(scheme)
	for range 3 {
		r, err := w.TagRecv(make([]byte, 300), hostileTag, hostileTag, &ucp.TagInfo{}, nil)
		require.NoError(t, err)
		r.Release()
	}
	return x
}

// turn sends a message of the hostile peer and starts an operation of the honest one.
func (x *hostile) turn(m hostileMsg) {
	x.turns++
	x.address(&m)
	x.send(m.id, m.body)
	for range 3 {
		x.bad.W.Progress()
		x.A.W.Progress()
	}
	x.traffic()
	if m.how&hostileStep != 0 {
		x.Step()
	}
}

// address sets the ids of a message as the input says.
func (x *hostile) address(m *hostileMsg) {
	e := x.bad.EP
	if !e.Linked() {
		return
	}
	own := e.Handshake().RemoteEP()
	if m.how&hostileGuess != 0 {
		near := guesses(x.A.EP.ID())
		own = near[x.turns%len(near)]
	}
	var waiting []uint64
	for r := range x.A.W.RemoteRequests().All() {
		waiting = append(waiting, r.RemoteID())
	}
	if m.id == wire.AMWireup {
		m.body = x.handshake(m)
		return
	}
	m.address(own, waiting)
	switch m.id {
	case wire.AMTag, wire.AMTagSync, wire.AMTagFirst, wire.AMTagRTS:
		if len(m.body) >= wire.WordLen {
			m.body[wire.WordLen-1] |= hostileTag >> 56
		}
	}
}

// handshake returns a handshake message of the hostile peer, or one that claims to be from the honest peer.
func (x *hostile) handshake(m *hostileMsg) []byte {
	h, err := handshake.UnpackMsg(m.body)
	if err != nil {
		return m.body
	}
	e := x.bad.EP
	h.SrcUUID, h.DstUUID = x.bad.W.AddressInfo().UUID(), x.A.W.AddressInfo().UUID()
	if m.how&namesEP != 0 {
		h.SrcEP, h.DstEP = e.ID(), e.Handshake().RemoteEP()
	}
	if len(h.Addr) > 0 {
		h.Addr = x.bad.W.Address()
	}
	if m.how&hostileGuess != 0 {
		h.SrcUUID, h.SrcEP, h.DstEP = x.B.W.AddressInfo().UUID(), x.B.EP.ID(), x.A.EP.ID()
		if len(h.Addr) > 0 {
			h.Addr, h.DstEP = x.B.W.Address(), 0
		}
	}
	return seal(x.bad.W, x.A.W, h)
}

// send sends a message if the connection accepts it. It replaces a failed connection a few times.
func (x *hostile) send(id uint8, msg []byte) {
	for range 100 {
		l := x.bad.EP.Lane(wireup.AM)
		if x.bad.EP.Err() != nil || l == nil {
			x.redial()
			return
		}
		if len(msg) > l.Iface.Attr().AM.MaxBcopy {
			return
		}
		if _, err := l.AM.AMBcopy(id, packer(msg)); err != uct.ErrNoResource {
			return
		}
		x.bad.W.Progress()
		x.A.W.Progress()
	}
}

// redial connects the hostile peer again.
func (x *hostile) redial() {
	if x.redials++; x.redials > maxRedials {
		return
	}
	if r, _ := x.bad.EP.Close(ucp.CloseForce); r != nil {
		r.Release()
	}
	x.bad.Dial(x.t, &x.A)
	if r, _ := x.bad.EP.TagSend(hostileTag, []byte{1}, nil); r != nil {
		r.Release()
	}
	for range 100 {
		x.bad.W.Progress()
		x.A.W.Progress()
	}
}

// traffic starts an operation between the honest peers.
func (x *hostile) traffic() {
	a, b, n, tag := &x.A, &x.B, 1+37*x.turns, uint64(1000+x.turns)
	data := testenv.Pattern(n, x.turns)
	switch x.turns % 5 {
	case 0:
		x.receive(tag, data, nil)
		x.track(b.EP.TagSend(tag, data, nil))
	case 1:
		buf := make([]byte, n)
		x.check = append(x.check, func() { testenv.RequireBytes(x.t, data, buf) })
		x.track(b.W.TagRecv(buf, tag, exact, nil, nil))
		x.track(a.EP.TagSend(tag, data, nil))
	case 2:
		arrived := false
		a.W.OnActive(honestID, func(m *ucp.ActiveMessage) {
			require.Same(x.t, x.A.EP, m.From)
			arrived = true
		})
		x.track(b.EP.SendActive(honestID, nil, data, nil))
		x.all(func() bool { return arrived })
	case 3:
		x.track(b.EP.Put(data, b.Key.Addr(), b.Key, nil))
		require.NoError(x.t, x.ends(b.EP.Flush())) // one flush of a waits for its stream
		testenv.RequireBytes(x.t, data, a.Mem.Bytes()[:n])
	case 4:
		buf := make([]byte, n)
		copy(b.Mem.Bytes(), data)
		require.NoError(x.t, x.ends(a.EP.Get(buf, a.Key.Addr(), a.Key, nil)))
		testenv.RequireBytes(x.t, data, buf)
	}
}

// ends waits for an operation.
func (x *hostile) ends(r *ucp.Request, err error) error {
	if r == nil || err != nil {
		return err
	}
	x.all(r.Done)
	return r.Take()
}

// balanced checks that the sums of the victim equal its contents.
func (x *hostile) balanced() {
	w := x.A.W
	w.CancelReceives()
	if r, _ := x.bad.EP.Close(ucp.CloseForce); r != nil { // an error means that it is closed already
		x.all(r.Done)
		r.Release()
	}
	x.all(func() bool { return w.RemoteRequests().Len() == 0 })
	var granted, left int64
	for e := range w.EPs().All() {
		if e.Messages() != nil && !e.Messages().Closed() {
			granted += ucp.BeyondFirst(e.Messages().Size)
		}
	}
	require.Equal(x.t, granted, w.GrantedCredit())
	for m := range w.Tags().Messages() {
		if u := m.Owner; u.MessagesOf().Closed() {
			left += window.Charge(u.Charge())
		}
	}
	require.Equal(x.t, left, w.LeftBytes())
	m := x.A.EP.Messages()
	require.Zero(x.t, m.Held, "all messages of the honest peer were received")
	require.LessOrEqual(x.t, m.Credit, m.Most)
}

// hostileSeeds are the seeds of FuzzMessages and some about the honest peer.
func hostileSeeds() (seeds [][]byte) {
	for i, seed := range messageSeeds() {
		var out []byte
		for {
			var m hostileMsg
			if seed = m.unpack(seed); seed == nil {
				break
			}
			m.how &= namesEP | namesRequest | 3<<2
			switch i % 3 {
			case 1:
				m.how |= hostileGuess
			case 2:
				m.how |= hostileStep
			}
			out = m.append(out)
		}
		seeds = append(seeds, out)
	}
	for typ := handshake.Request; typ <= handshake.Dropped; typ++ {
		m := &handshake.Msg{
			Type: typ, SrcUUID: 1, DstUUID: 2, SrcEP: 3, DstEP: 4, Addr: []byte{1},
			Lanes: []handshake.MsgLane{{Roles: handshake.Set(wireup.AM), EPAddr: []byte{0, 0}}},
		}
		for _, how := range []uint8{0, namesEP, hostileGuess, hostileGuess | hostileStep} {
			seeds = append(seeds, hostileMsg{wire.AMWireup, how, m.Append(nil)}.append(nil))
		}
	}
	credit := binary.LittleEndian.AppendUint64(make([]byte, 16), 1<<40)
	return append(seeds, hostileMsg{wire.AMCredit, namesEP, credit}.append(nil))
}
