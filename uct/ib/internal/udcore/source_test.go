package udcore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// TestReceive_SameQPNOnAnotherPort: a datagram is a peer's only if its port is the peer's, because
// devices use the same QPNs. A datagram of the same QPN on another device has no effect.
func TestReceive_SameQPNOnAnotherPort(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		open := func() *side {
			s := newSide(t, ibtest.NewMD(t, softhca.FabricShm, over.Transport), Config{})
			s.keepTime() // devices connect in real time, and a lost datagram is retransmitted
			return s
		}
		a, peer, other := open(), open(), open()
		require.Equal(t, peer.it.core.qp.Number(), other.it.core.qp.Number())
		await := func(cond func() bool) {
			testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
				for _, s := range []*side{a, peer, other} {
					s.it.Progress()
				}
				return cond()
			})
		}
		good, bad := peer.epTo(a), other.epTo(a)
		good.send(t, 1)
		await(func() bool { return len(a.got) == 1 })
		bad.send(t, 2)
		await(func() bool { return len(a.got) == 2 })

		strays := a.it.core.strays.Load()
		bad.c.proto.Init(&other.it.core.params) // it loses the identity of its peer
		require.True(t, bad.c.proto.Accept(good.c.proto.Remote()))
		for i := range uint64(4) { // one of them is the next PSN of the other
			bad.send(t, 100+i)
		}
		await(func() bool { return a.it.core.strays.Load() >= strays+4 || len(a.got) > 2 })
		assert.Equal(t, []uint64{1, 2}, a.got)
		good.send(t, 3)
		await(func() bool { return len(a.got) == 3 })
		assert.Equal(t, []uint64{1, 2, 3}, a.got)
		assert.Empty(t, a.errs)
	})
}

// TestReceive_RequestForAnother: a request must come from the port that it names.
func TestReceive_RequestForAnother(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a := newSide(t, over.newMD(t), Config{})
		core := a.it.core
		req := dgram.Creq{Device: core.port.Addr, Iface: core.ifaceAddr(), ID: 1}
		data := req.Append(make([]byte, rxPrefix))
		data[0] = 6 << 4
		core.connectRequest(data, req.Iface.QPN)
		assert.Zero(t, core.conns.Len())
		assert.Equal(t, uint64(1), core.strays.Load())
		copy(data[8:], core.port.Addr.GID[:])
		core.connectRequest(data, req.Iface.QPN)
		assert.Equal(t, 1, core.conns.Len())
	})
}

func TestSource(t *testing.T) {
	grh := make([]byte, grhLen)
	grh[0] = 6 << 4
	gid := verbs.GID{0: 0xfe, 1: 0x80, 15: 9}
	copy(grh[8:], gid[:])
	assert.Equal(t, gid, source(grh))
	clear(grh)
	grh[20] = 4<<4 | 5
	copy(grh[32:], []byte{192, 0, 2, 7})
	assert.Equal(t, verbs.GID{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 7}, source(grh))
}
