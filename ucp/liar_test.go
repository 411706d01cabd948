package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/wireup"
)

// Tests of peers that claim to be other workers, and that use ids of others.

// thirdWorker opens a worker that has no connection to the pair.
func thirdWorker(p *ucppair.Pair, c *ucp.Context) *ucp.Worker {
	p.T.Helper()
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(p.T, err)
	p.T.Cleanup(func() { require.NoError(p.T, w.Close()) })
	return w
}

// seal returns a handshake message from w to another worker, with its proof.
func seal(w *ucp.Worker, to *ucp.Worker, m *handshake.Msg) []byte {
	p, err := w.Peers().Find(to.Address())
	if err != nil {
		panic(err)
	}
	return p.Seal(m.Append(nil))
}

// impostures are REQUESTs to b that a worker sends with the address of a.
func impostures(t *testing.T, p *ucppair.Pair, bad *ucp.Worker) map[string][]byte {
	request := func(uuid uint64, addr []byte) *handshake.Msg {
		return &handshake.Msg{
			Type: handshake.Request, SrcUUID: uuid, DstUUID: p.B.W.AddressInfo().UUID(), SrcEP: 1, Addr: addr,
			Lanes: []handshake.MsgLane{{Roles: handshake.Set(wireup.RMA), EPAddr: []byte{0, 0}}},
		}
	}
	mixed := *bad.AddressInfo()
	mixed.Key = p.A.W.AddressInfo().Key
	elsewhere, err := mixed.Pack()
	require.NoError(t, err)
	a := p.A.W.AddressInfo().UUID()
	return map[string][]byte{
		"the address of a":                  seal(bad, p.B.W, request(a, p.A.W.Address())),
		"the key of a, at another place":    seal(bad, p.B.W, request(a, elsewhere)),
		"the uuid of a, with its own key":   seal(bad, p.B.W, request(a, bad.Address())),
		"the address of a, as its own uuid": seal(bad, p.B.W, request(bad.AddressInfo().UUID(), p.A.W.Address())),
		"a message for another worker":      seal(p.A.W, bad, request(a, p.A.W.Address())),
		"no proof":                          request(a, p.A.W.Address()).Append(nil),
		"a proof of zeros":                  append(request(a, p.A.W.Address()).Append(nil), make([]byte, 16)...),
	}
}

// TestImpostor_Request: a worker that sends a REQUEST with the address of another one gets no reply, and nothing is
// stored for it. The worker with that address connects as usual, with an EP that was made before and with one that is
// made later.
func TestImpostor_Request(t *testing.T) {
	for _, dialed := range []bool{true, false} {
		p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
		bad := thirdWorker(p, p.A.Ctx)
		if dialed {
			p.B.Dial(t, &p.A)
		}
		eps, peers, sent := p.B.W.EPs().Len(), p.B.W.Peers().Len(), f.Sent
		for name, msg := range impostures(t, p, bad) {
			refused := p.B.W.BadMessages().Load()
			p.B.W.Handler(wire.AMWireup)(msg, nil)
			idle(p)
			assert.Equal(t, refused+1, p.B.W.BadMessages().Load(), name)
			assert.Equal(t, eps, p.B.W.EPs().Len(), name)
			assert.Equal(t, peers, p.B.W.Peers().Len(), name)
			assert.Equal(t, sent, f.Sent, name)
		}
		if !dialed {
			p.B.Dial(t, &p.A)
		}
		require.False(t, p.B.EP.Linked())
		p.Connect().Warm()
		require.NoError(t, p.Finish(p.B.EP.Put([]byte{7}, p.A.Mem.Addr(), p.B.Key, nil)))
		require.NoError(t, p.Finish(p.B.EP.Flush()))
		assert.Equal(t, byte(7), p.A.Mem.Bytes()[0])
		assert.Equal(t, 1, p.B.W.EPs().Len(), "one connection serves both")
	}
}

// TestImpostor_Connected: only the peer can change or close a connection. A message with valid ids and the proof of
// another worker is dropped.
func TestImpostor_Connected(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Both().Warm()
	require.NoError(t, p.Finish(p.B.EP.Put([]byte{1}, p.A.Mem.Addr(), p.B.Key, nil)))
	idle(p)
	bad, e := thirdWorker(p, p.A.Ctx), p.B.EP
	for typ := handshake.Request; typ <= handshake.Dropped; typ++ {
		for _, dst := range []uint64{e.ID(), 0} {
			m := &handshake.Msg{
				Type: typ, SrcUUID: p.A.W.AddressInfo().UUID(), DstUUID: p.B.W.AddressInfo().UUID(), SrcEP: e.Handshake().RemoteEP(), DstEP: dst,
				Addr: p.A.W.Address(), Lanes: []handshake.MsgLane{{Roles: handshake.Set(wireup.RMA), EPAddr: []byte{0, 0}}},
			}
			refused, ignored := p.B.W.BadMessages().Load(), e.Handshake().Ignored()
			p.B.W.Handler(wire.AMWireup)(seal(bad, p.B.W, m), nil)
			idle(p)
			assert.Equal(t, refused+1, p.B.W.BadMessages().Load(), "%v", typ)
			assert.Equal(t, ignored, e.Handshake().Ignored(), "%v", typ)
			assert.Equal(t, 1, p.B.W.EPs().Len())
		}
	}
	require.NoError(t, p.Finish(e.Put([]byte{7}, p.A.Mem.Addr(), p.B.Key, nil)))
	require.NoError(t, p.Finish(p.A.EP.Put([]byte{7}, p.B.Mem.Addr(), p.A.Key, nil)))
}
