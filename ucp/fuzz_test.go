package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/wireup"
)

// FuzzMessages: whatever active messages arrive, a connection that is up works on,
// and the worker closes clean.
func FuzzMessages(f *testing.F) {
	m := &wireup.Msg{
		Type: wireup.Request, SrcUUID: 1, DstUUID: 2, SrcEP: 3,
		Lanes: []wireup.MsgLane{{Roles: wireup.Set(wireup.RMA), EPAddr: []byte{0, 0}}},
	}
	f.Add(uint8(wire.AMWireup), m.Append(nil))
	m.Type, m.DstEP = wireup.Reply, 1<<32
	f.Add(uint8(wire.AMWireup), m.Append(nil))
	f.Add(uint8(wire.AMRequest), make([]byte, wire.RequestLen))
	f.Add(uint8(wire.AMAnswer), make([]byte, wire.AnswerLen))
	f.Add(uint8(wire.AMNotify), make([]byte, wire.NotifyLen))
	f.Fuzz(func(t *testing.T, id uint8, b []byte) {
		p, _ := fakePair(t, Config{}, likeRC(), likeUD(), likeTCP())
		p.connect().warm()
		a := p.a.w
		a.OnNotify(func(*EP, uint64) {})
		for _, addressed := range [][]byte{b, toWorker(a, p.a.ep, b)} {
			switch id % 4 {
			case wire.AMWireup:
				a.handleWireup(addressed, nil)
			case wire.AMRequest:
				a.handleRequest(addressed, nil)
			case wire.AMAnswer:
				a.handleAnswer(addressed, nil)
			case wire.AMNotify:
				a.handleNotify(addressed, nil)
			}
			p.idle()
		}
		if p.a.ep.Err() == nil { // a DISCONNECT of the peer is believed
			require.NoError(t, p.finish(p.a.ep.Put([]byte{1}, p.b.mem.Addr(), p.a.key, nil)))
			require.NoError(t, p.flush())
		}
	})
}

// toWorker gives a handshake message the names that make it look like the peer's.
func toWorker(w *Worker, ep *EP, b []byte) []byte {
	m, err := wireup.UnpackMsg(b)
	if err != nil {
		return b
	}
	m.SrcUUID, m.DstUUID = ep.peer.Addr.UUID, w.addr.UUID
	m.SrcEP, m.DstEP = ep.link.conn.RemoteEP(), ep.id
	return m.Append(nil)
}
