package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/wireup"
)

// Tests of peers that claim to be other workers, and that use ids of others.

// third opens a worker that has no connection to the pair.
func (p *pair) third(c *Context) *Worker {
	p.t.Helper()
	w, err := c.NewWorker(WorkerConfig{})
	require.NoError(p.t, err)
	p.t.Cleanup(func() { require.NoError(p.t, w.Close()) })
	return w
}

// sealed returns a handshake message from w to another worker, with its proof.
func (w *Worker) sealed(to *Worker, m *handshake.Msg) []byte {
	p, err := w.peers.Find(to.net.packed)
	if err != nil {
		panic(err)
	}
	return p.Seal(m.Append(nil))
}

// impostures are REQUESTs to b that a worker sends with the address of a.
func impostures(t *testing.T, p *pair, bad *Worker) map[string][]byte {
	request := func(uuid uint64, addr []byte) *handshake.Msg {
		return &handshake.Msg{
			Type: handshake.Request, SrcUUID: uuid, DstUUID: p.b.w.net.addr.UUID(), SrcEP: 1, Addr: addr,
			Lanes: []handshake.MsgLane{{Roles: handshake.Set(wireup.RMA), EPAddr: []byte{0, 0}}},
		}
	}
	mixed := *bad.net.addr
	mixed.Key = p.a.w.net.addr.Key
	elsewhere, err := mixed.Pack()
	require.NoError(t, err)
	a := p.a.w.net.addr.UUID()
	return map[string][]byte{
		"the address of a":                  bad.sealed(p.b.w, request(a, p.a.w.net.packed)),
		"the key of a, at another place":    bad.sealed(p.b.w, request(a, elsewhere)),
		"the uuid of a, with its own key":   bad.sealed(p.b.w, request(a, bad.net.packed)),
		"the address of a, as its own uuid": bad.sealed(p.b.w, request(bad.net.addr.UUID(), p.a.w.net.packed)),
		"a message for another worker":      p.a.w.sealed(bad, request(a, p.a.w.net.packed)),
		"no proof":                          request(a, p.a.w.net.packed).Append(nil),
		"a proof of zeros":                  append(request(a, p.a.w.net.packed).Append(nil), make([]byte, 16)...),
	}
}

// TestImpostor_Request: a worker that sends a REQUEST with the address of another one gets no reply, and nothing is
// stored for it. The worker with that address connects as usual, with an EP that was made before and with one that is
// made later.
func TestImpostor_Request(t *testing.T) {
	for _, dialed := range []bool{true, false} {
		p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
		bad := p.third(p.a.ctx)
		if dialed {
			p.b.dial(t, &p.a)
		}
		eps, peers, sent := p.b.w.eps.Len(), p.b.w.peers.Len(), f.Sent
		for name, msg := range impostures(t, p, bad) {
			refused := p.b.w.stats.badMessages.Load()
			p.b.w.handleWireup(msg, nil)
			p.idle()
			assert.Equal(t, refused+1, p.b.w.stats.badMessages.Load(), name)
			assert.Equal(t, eps, p.b.w.eps.Len(), name)
			assert.Equal(t, peers, p.b.w.peers.Len(), name)
			assert.Equal(t, sent, f.Sent, name)
		}
		if !dialed {
			p.b.dial(t, &p.a)
		}
		require.Nil(t, p.b.ep.link)
		p.connect().warm()
		require.NoError(t, p.finish(p.b.ep.Put([]byte{7}, p.a.mem.Addr(), p.b.key, nil)))
		require.NoError(t, p.finish(p.b.ep.Flush()))
		assert.Equal(t, byte(7), p.a.mem.Bytes()[0])
		assert.Equal(t, 1, p.b.w.eps.Len(), "one connection serves both")
	}
}

// TestImpostor_Connected: only the peer can change or close a connection. A message with valid ids and the proof of
// another worker is dropped.
func TestImpostor_Connected(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.both().warm()
	require.NoError(t, p.finish(p.b.ep.Put([]byte{1}, p.a.mem.Addr(), p.b.key, nil)))
	p.idle()
	bad, e := p.third(p.a.ctx), p.b.ep
	for typ := handshake.Request; typ <= handshake.Dropped; typ++ {
		for _, dst := range []uint64{e.id, 0} {
			m := &handshake.Msg{
				Type: typ, SrcUUID: p.a.w.net.addr.UUID(), DstUUID: p.b.w.net.addr.UUID(), SrcEP: e.link.conn.RemoteEP(), DstEP: dst,
				Addr: p.a.w.net.packed, Lanes: []handshake.MsgLane{{Roles: handshake.Set(wireup.RMA), EPAddr: []byte{0, 0}}},
			}
			refused, ignored := p.b.w.stats.badMessages.Load(), e.link.conn.Ignored()
			p.b.w.handleWireup(bad.sealed(p.b.w, m), nil)
			p.idle()
			assert.Equal(t, refused+1, p.b.w.stats.badMessages.Load(), "%v", typ)
			assert.Equal(t, ignored, e.link.conn.Ignored(), "%v", typ)
			assert.Equal(t, 1, p.b.w.eps.Len())
		}
	}
	require.NoError(t, p.finish(e.Put([]byte{7}, p.a.mem.Addr(), p.b.key, nil)))
	require.NoError(t, p.finish(p.a.ep.Put([]byte{7}, p.b.mem.Addr(), p.a.key, nil)))
}
