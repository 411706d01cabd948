package ucxtcp

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/sockio"
	"github.com/gucx/gucx/uct/ucttest"
)

func hi(t testing.TB, ep *EP) {
	t.Helper()
	require.NoError(t, ep.AMShort(msgID, 0x2020202020206968, nil)) // "hi      "
}

var hiFrame = message("hi      ")

// TestDial_SendsBytesOfUCX: a connection that this side makes has the frames of UCX in the same
// order.
func TestDial_SendsBytesOfUCX(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	ep := e.to(p.port, uct.DialOnUse)
	hi(t, ep)
	s := p.accept()
	want := first(e.it.listen.Port(), false, 0)
	assert.Equal(t, want, s.read(len(want)))
	s.send(event(eventAck))
	assert.Equal(t, hiFrame, s.read(len(hiFrame)))
	done := 0
	c := &uct.Completion{Count: 1, Func: func(*uct.Completion) { done++ }}
	pending, err := ep.Flush(c)
	require.NoError(t, err)
	require.True(t, pending)
	assert.Equal(t, putFrameOf(0, 0), s.read(frameLen+putLen))
	assert.Zero(t, done)
	s.send(putAckFrame(0))
	until(t, "flush", func() bool { return done == 1 }, e)
	pending, err = ep.Flush(nil)
	assert.False(t, pending, "nothing was sent since")
	require.NoError(t, err)

	require.NoError(t, ep.KeepAlive())
	assert.Equal(t, frame(idKeepAlive), s.read(frameLen))
	require.NoError(t, ep.Close())
	assert.Equal(t, event(eventFin), s.readAll())
}

// TestDial_LargeMessagesBecomePending: if an EP has no room for a large message before it is
// connected, the message can wait as a pending request.
func TestDial_LargeMessagesBecomePending(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	ep := e.to(p.port, uct.DialOnUse)
	iov := []uct.IOV{{Buf: make([]byte, e.it.attr.AM.MaxZcopy)}}
	post := func() error { _, err := ep.AMZcopy(msgID, nil, iov, nil); return err }
	sent := 0
	for ; post() == nil; sent++ {
		require.Less(t, sent, 100)
	}
	require.NoError(t, ep.AMShort(msgID, 0, nil), "there is room for a small one")
	r := &uct.PendingReq{Func: func(*uct.PendingReq) error { return post() }}
	require.NoError(t, ep.AddPending(r), "not ErrBusy")
	s := p.accept()
	s.read(len(first(0, false, 0)))
	s.send(event(eventAck))
	s.read((sent+1)*(frameLen+len(iov[0].Buf)) + frameLen + wordLen)
	assert.Nil(t, r.Next)
	require.NoError(t, ep.Close())
}

// TestDial_NumbersConnections: the connections of EPs to one peer have consecutive sequence
// numbers.
func TestDial_NumbersConnections(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	for i := range uint64(3) {
		ep := e.to(p.port, uct.DialNow)
		want := first(e.it.listen.Port(), false, i)
		assert.Equal(t, want, p.accept().read(len(want)))
		require.NoError(t, ep.Close())
	}
}

// TestDial_PeerJoins: the peer joins with ACK_WITH_REQ, or with its own request.
func TestDial_PeerJoins(t *testing.T) {
	for _, joins := range []bool{true, false} {
		e := newEnd(t, Config{})
		p := newRawPeer(t, e)
		ep := e.to(p.port, uct.DialNow)
		s := p.accept()
		s.read(len(first(0, false, 0)))
		if joins {
			s.send(event(eventAckRequest))
		} else {
			s.send(event(eventAck))
			s.send(requestFrame(p.port, false, 0))
			assert.Equal(t, event(eventAck), s.read(frameLen+eventLen))
		}
		s.send(message("hello"))
		until(t, "message", func() bool { return len(e.got) == 1 }, e)
		s.send(event(eventFin))
		until(t, "FIN", func() bool { return ep.conn.gotFin }, e)
		hi(t, ep) // the peer still receives
		assert.Equal(t, hiFrame, s.read(len(hiFrame)))
		require.NoError(t, s.c.Close())
		until(t, "error", func() bool { return len(e.errs) > 0 }, e)
		assert.ErrorIs(t, e.errs[0], uct.ErrPeerClosed)
		require.NoError(t, ep.Close())
	}
}

// TestAccept_EPUsesConnection: a peer without an EP here gets an ACK, and its messages are
// delivered. An EP that is made later uses the same connection.
func TestAccept_EPUsesConnection(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	s := p.dial(first(p.port, false, 0))
	assert.Equal(t, event(eventAck), s.read(frameLen+eventLen))
	s.send(message("hello"))
	until(t, "message", func() bool { return len(e.got) == 1 }, e)
	require.Len(t, e.it.unnamed.all, 1)
	ep := e.to(p.port, uct.DialedByPeer)
	assert.Equal(t, requestFrame(e.it.listen.Port(), false, 0), s.read(len(requestFrame(0, false, 0))))
	assert.Empty(t, e.it.unnamed.all)
	assert.Equal(t, uct.ErrNoResource, errOf(ep.AMBcopy(msgID, nil)), "not before the ACK")
	s.send(event(eventAck))
	until(t, "connected", func() bool { return ep.sends }, e)
	hi(t, ep)
	assert.Equal(t, hiFrame, s.read(len(hiFrame)))
	s.send(message("again"))
	until(t, "message", func() bool { return len(e.got) == 2 }, e)
	require.NoError(t, ep.Close())
	assert.Equal(t, event(eventFin), s.read(frameLen+eventLen))
	s.send(message("after FIN"))
	until(t, "message", func() bool { return len(e.got) == 3 }, e)
	s.send(event(eventFin))
	s.readAll()
	until(t, "leave", func() bool { return len(e.left) == 1 }, e)
	assert.ErrorIs(t, e.left[0], uct.ErrPeerClosed)
}

// TestAdopt_DialsAgain: if the peer closes an adopted connection before it acknowledges the
// request, the EP dials once.
func TestAdopt_DialsAgain(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	s := p.dial(first(p.port, false, 0))
	s.read(frameLen + eventLen)
	ep := e.to(p.port, uct.DialOnUse)
	hi(t, ep)
	s.read(len(requestFrame(0, false, 0)))
	require.NoError(t, s.c.Close())
	again := p.accept()
	assert.Equal(t, first(e.it.listen.Port(), false, 0), again.read(len(first(0, false, 0))))
	assert.Len(t, e.left, 1)
	again.send(event(eventAck))
	assert.Equal(t, hiFrame, again.read(len(hiFrame)), "the message that was posted before")
	assert.Empty(t, e.errs)
	require.NoError(t, again.c.Close())
	until(t, "error", func() bool { return len(e.errs) == 1 }, e)
	require.NoError(t, ep.Close())
}

// TestAdopt_DoesNotDialAfterOwnClose: an EP does not dial after this side has ended its adopted
// connection.
func TestAdopt_DoesNotDialAfterOwnClose(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		end  func(*Conn)
		want error
	}{
		{"timeout", Config{ConnTimeout: 50 * time.Millisecond}, func(*Conn) {}, ucs.ErrTimedOut},
		{"malformed", Config{}, func(c *Conn) { c.Drop(errMalformed) }, ucs.ErrConnReset},
		{"no answer", Config{}, func(c *Conn) { c.End(errConnected) }, ucs.ErrConnReset},
	} {
		e := newEnd(t, tc.cfg)
		p := newRawPeer(t, e)
		s := p.dial(first(p.port, false, 0))
		s.read(frameLen + eventLen)
		ep := e.to(p.port, uct.DialOnUse)
		hi(t, ep)
		tc.end(ep.conn)
		until(t, tc.name, func() bool { return len(e.errs) == 1 }, e)
		assert.ErrorIs(t, e.errs[0], tc.want, tc.name)
		assert.Nil(t, ep.conn, tc.name)
		s.readAll()
		assert.Zero(t, e.it.conns.Len(), tc.name)
		require.NoError(t, ep.Close())
	}
}

// TestClose_PeerJoins: the peer may still join the connection of a closed EP until the connection
// is half-closed.
func TestClose_PeerJoins(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	ep := e.to(p.port, uct.DialNow)
	s := p.accept()
	s.read(len(first(0, false, 0)))
	s.send(event(eventAck))
	until(t, "connected", func() bool { return ep.sends }, e)
	c := ep.conn
	require.NoError(t, ep.Close())
	require.True(t, c.closing)
	s.send(requestFrame(p.port, false, 0))
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { // Progress would half-close it
		c.receive()
		return c.peerSends
	})
	want := append(event(eventAck), event(eventFin)...)
	assert.Equal(t, want, s.read(len(want)))
	s.send(message("hello"))
	until(t, "message", func() bool { return len(e.got) == 1 }, e)
	s.send(event(eventFin))
	s.readAll()
}

func errOf(_ int, err error) error { return err }

// TestAccept_EPJoins: an EP that has not connected joins the connection of its peer.
func TestAccept_EPJoins(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	ep := e.to(p.port, uct.DialByPeer)
	s := p.dial(first(p.port, false, 0))
	assert.Equal(t, event(eventAckRequest), s.read(frameLen+eventLen))
	until(t, "connected", func() bool { return ep.sends }, e)
	hi(t, ep)
	assert.Equal(t, hiFrame, s.read(len(hiFrame)))
	require.NoError(t, ep.Close())
}

// TestNewEP_DialedByPeerNeedsConnection: DialedByPeer fails if the peer has not connected, because
// its address is only its own claim.
func TestNewEP_DialedByPeerNeedsConnection(t *testing.T) {
	e := newEnd(t, Config{})
	_, err := e.it.NewEP(uct.EPParams{DeviceAddr: e.it.DeviceAddr(nil), IfaceAddr: []byte{1, 1}, Dial: uct.DialedByPeer})
	assert.ErrorIs(t, err, uct.ErrUnreachable)
}

// TestDial_SimultaneousKeepsLowerAddress: if both sides dial, the connection of the side with the
// lower address remains.
func TestDial_SimultaneousKeepsLowerAddress(t *testing.T) {
	t.Run("greater", func(t *testing.T) {
		e, p := orderedPair(t, true)
		ep := e.to(p.port, uct.DialOnUse)
		hi(t, ep)
		own := p.accept()
		s := p.dial(first(p.port, false, 0))
		assert.Equal(t, event(eventAckRequest), s.read(frameLen+eventLen))
		assert.Equal(t, hiFrame, s.read(len(hiFrame)), "the posted message uses the other connection")
		assert.Equal(t, first(e.it.listen.Port(), false, 0), own.readAll())
		s.send(message("hello"))
		until(t, "message", func() bool { return len(e.got) == 1 }, e)
		require.NoError(t, ep.Close())
	})
	t.Run("lower", func(t *testing.T) {
		e, p := orderedPair(t, false)
		ep := e.to(p.port, uct.DialOnUse)
		hi(t, ep)
		own := p.accept()
		own.read(len(first(0, false, 0)))
		s := p.dial(first(p.port, false, 0))
		until(t, "stale", func() bool { return ep.stale != nil }, e)
		assert.Empty(t, e.it.unnamed.all)
		own.send(event(eventAckRequest))
		own.send(message("hello"))
		assert.Equal(t, hiFrame, own.read(len(hiFrame)))
		assert.Empty(t, s.readAll(), "no reply on the stale connection")
		until(t, "message", func() bool { return len(e.got) == 1 }, e)
		assert.Equal(t, 1, e.it.conns.Len())
		require.NoError(t, ep.Close())
	})
}

// TestDial_ToItself: an iface can be its own peer.
func TestDial_ToItself(t *testing.T) {
	e := newEnd(t, Config{})
	ep := e.to(e.it.listen.Port(), uct.DialOnUse)
	hi(t, ep)
	until(t, "message", func() bool { return len(e.got) == 1 }, e)
	require.NoError(t, ep.Close())
	until(t, "closed", func() bool { return e.it.conns.Len() == 0 }, e)
}

// TestEndpointConnection: an endpoint connection has no ACK, and both sides can send.
func TestEndpointConnection(t *testing.T) {
	t.Run("accepts", func(t *testing.T) {
		e, p := orderedPair(t, true)
		made, err := e.it.NewEP(uct.EPParams{})
		require.NoError(t, err)
		ep := made.(*EP)
		s := p.dial(first(p.port, true, ep.key))
		s.send(message("early"))
		until(t, "attached", func() bool { return ep.conn != nil }, e)
		assert.Empty(t, e.got, "nothing is read before Connect")
		require.NoError(t, ep.Connect(e.it.DeviceAddr(nil), epAddrOf(p.port, 77)))
		until(t, "message", func() bool { return len(e.got) == 1 }, e)
		hi(t, ep)
		assert.Equal(t, hiFrame, s.read(len(hiFrame)))
		require.NoError(t, ep.Close())
		assert.Empty(t, s.readAll(), "no FIN")
	})
	t.Run("dials", func(t *testing.T) {
		e, p := orderedPair(t, false)
		made, err := e.it.NewEP(uct.EPParams{})
		require.NoError(t, err)
		ep := made.(*EP)
		require.NoError(t, ep.Connect(e.it.DeviceAddr(nil), epAddrOf(p.port, 77)))
		hi(t, ep)
		s := p.accept()
		want := append(first(e.it.listen.Port(), true, 77), hiFrame...)
		assert.Equal(t, want, s.read(len(want)))
		s.send(message("hello"))
		until(t, "message", func() bool { return len(e.got) == 1 }, e)
		require.NoError(t, s.c.Close())
		until(t, "error", func() bool { return len(e.errs) == 1 }, e)
		assert.ErrorIs(t, e.errs[0], ucs.ErrConnReset)
		require.NoError(t, ep.Close())
	})
	t.Run("another peer", func(t *testing.T) {
		e, p := orderedPair(t, true)
		made, err := e.it.NewEP(uct.EPParams{})
		require.NoError(t, err)
		ep := made.(*EP)
		require.NoError(t, ep.Connect(e.it.DeviceAddr(nil), epAddrOf(p.port, 77)))
		p.dial(first(p.port, true, ep.key+1)).readAll()
		p.dial(first(p.port+1, true, ep.key)).readAll()
		assert.Nil(t, ep.conn)
		assert.Equal(t, uint64(2), e.it.limits.refused.Load())
		require.NoError(t, ep.Close())
	})
}

func epAddrOf(port uint16, key byte) []byte {
	return []byte{byte(port >> 8), byte(port), key, 0, 0, 0, 0, 0, 0, 0}
}

// TestClose_DeliversAfterFin: messages of a closed EP arrive, also if the peer sends FIN in the
// meantime.
func TestClose_DeliversAfterFin(t *testing.T) {
	e := newEnd(t, Config{SndBuf: 4 << 10})
	p := newRawPeer(t, e)
	ep := e.to(p.port, uct.DialNow)
	s := p.accept()
	s.read(len(first(0, false, 0)))
	s.send(event(eventAckRequest))
	until(t, "connected", func() bool { return ep.sends }, e)
	iov := []uct.IOV{{Buf: make([]byte, e.it.attr.AM.MaxZcopy)}}
	sent := 0
	for ; !ep.conn.tx.blocked || ep.conn.tx.empty(); sent++ {
		_, err := ep.AMZcopy(msgID, nil, iov, nil)
		require.NoError(t, err)
	}
	c := ep.conn
	require.NoError(t, ep.Close())
	s.send(event(eventFin))
	until(t, "FIN", func() bool { return c.gotFin }, e)
	all := s.readAll()
	assert.Len(t, all, sent*(frameLen+len(iov[0].Buf))+frameLen+eventLen)
}

// TestClose_CallbackMayDrop: a callback of Close may drop other connections.
func TestClose_CallbackMayDrop(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	var all []*Conn
	for i := range uint64(3) {
		p.dial(first(p.port, false, i)).read(frameLen + eventLen)
		all = append(all, e.it.unnamed.all[i].c)
	}
	left := 0
	e.it.OnLeave(func(*Conn, error) {
		left++
		for _, c := range all {
			c.Drop(errMalformed)
		}
	})
	require.NoError(t, e.it.Close())
	assert.Equal(t, 3, left)
}

// TestDial_RefusedIsUnreachable: without a listener, the EP fails with ErrUnreachable.
func TestDial_RefusedIsUnreachable(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	require.NoError(t, p.l.Close())
	ep := e.to(p.port, uct.DialNow)
	until(t, "error", func() bool { return len(e.errs) == 1 }, e)
	assert.ErrorIs(t, e.errs[0], uct.ErrUnreachable)
	_, err := ep.Flush(nil)
	assert.ErrorIs(t, err, uct.ErrEPFailed)
	require.NoError(t, ep.Close())
}

// TestAccept_PeerClosesAfterAnyByte: a peer may disconnect after each byte of its first frames.
func TestAccept_PeerClosesAfterAnyByte(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	head := first(p.port, false, 0)
	all := append(append(append([]byte{}, head...), message("hello")...), event(eventFin)...)
	for n := range len(all) + 1 {
		e.left = nil
		s := p.dial(all[:n])
		if n < len(head) {
			require.NoError(t, s.c.CloseWrite())
			assert.Empty(t, s.readAll(), "%d bytes", n)
			assert.Empty(t, e.left, "%d bytes", n)
		} else {
			if n < len(all) { // otherwise it ends before the ACK
				s.read(frameLen + eventLen)
			}
			require.NoError(t, s.c.CloseWrite())
			until(t, "leave", func() bool { return len(e.left) == 1 }, e)
			want := ucs.ErrConnReset
			if n == len(all) {
				want = uct.ErrPeerClosed
			}
			assert.ErrorIs(t, e.left[0], want, "%d bytes", n)
		}
		assert.Zero(t, e.it.conns.Len(), "%d bytes", n)
		assert.Empty(t, e.it.unnamed.all, "%d bytes", n)
		assert.Empty(t, e.it.unexpected, "%d bytes", n)
	}
}

// TestDial_PeerClosesAfterAnyByte: if the peer disconnects after any byte of its reply, the EP
// fails once with the reason, and the operations in flight complete.
func TestDial_PeerClosesAfterAnyByte(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	all := append(append(event(eventAckRequest), message("hello")...), event(eventFin)...)
	for n := range len(all) + 1 {
		e.errs = nil
		ep := e.to(p.port, uct.DialOnUse)
		hi(t, ep)
		ends := []uct.Status(nil)
		c := &uct.Completion{Count: 1, Func: func(c *uct.Completion) { ends = append(ends, c.Status) }}
		_, err := ep.Flush(c)
		require.NoError(t, err)
		s := p.accept()
		s.send(all[:n])
		require.NoError(t, s.c.CloseWrite())
		until(t, "error", func() bool { return len(e.errs) == 1 && len(ends) == 1 }, e)
		want := ucs.ErrConnReset
		if n == len(all) {
			want = uct.ErrPeerClosed
		}
		assert.ErrorIs(t, e.errs[0], want, "%d bytes", n)
		assert.ErrorIs(t, ends[0].Err(), want, "%d bytes", n)
		require.NoError(t, ep.Close())
		s.readAll()
		assert.Zero(t, e.it.conns.Len(), "%d bytes", n)
	}
	assert.Len(t, e.got, len(event(eventFin))+1)
}

// TestConformance_IPv6 runs the checks of the suite that depend on addresses.
func TestConformance_IPv6(t *testing.T) {
	if d, err := findDevice(loopbackDevice, familyName6); err != nil || !d.ip.Is6() {
		t.Skip("the loopback device has no IPv6 address")
	}
	for _, mk := range []func() ucttest.Harness{harness, endpointHarness} {
		h := mk()
		h.StartPeer = nil
		h.Config = func(o ucttest.Options) any {
			c := tiny(o).(Config)
			c.Family = familyName6
			return c
		}
		for _, r := range ucttest.Results(h, "open", "addr/reachable", "addr/both-at-once", "am/sizes", "am/both-ways", "close/in-flight") {
			assert.False(t, r.Failed || r.Skipped, "%v", r)
		}
	}
}

// TestDeviceAddr_Captures: device addresses that UCX has sent are decoded and encoded, and boot ids
// are combined as in UCX.
func TestDeviceAddr_Captures(t *testing.T) {
	for _, b := range [][]byte{
		{0, 2, 0x0a, 0x4d, 0, 1},
		{1, 2, 0x12, 0xf1, 0x52, 0x51, 0x42, 0xac, 0x28, 0x9f, 0xf9, 0xff, 0xff, 0xef, 0, 0, 0, 0},
		{1, 2, 0x12, 0xf1, 0x52, 0x51, 0x42, 0xac, 0x28, 0x9f, 0xf9, 0xff, 0xff, 0xef},
		{1, 10, 0x12, 0xf1, 0x52, 0x51, 0x42, 0xac, 0x28, 0x9f, 0xf9, 0xff, 0xff, 0xef},
	} {
		a, err := parseDeviceAddr(b)
		require.NoError(t, err)
		assert.Equal(t, b, a.append(nil, len(b) == devLenWide))
	}
	_, err := parseDeviceAddr([]byte{2, 2, 1, 1, 1, 1})
	assert.ErrorIs(t, err, uct.ErrInvalidAddr)
	a := deviceAddr{ip: netip.MustParseAddr("fd00::2")}
	b := a.append(nil, true)
	got, err := parseDeviceAddr(b)
	require.NoError(t, err)
	assert.Equal(t, a, got)

	id, err := bootID("01234567-89ab-cdef-0123-456789abcdef")
	require.NoError(t, err)
	assert.Equal(t, uint64(0xcdef89ab01234567^0xefcdab8967450123), id)
	for _, bad := range []string{"", "0-0-0-0", "0-0-0-0-0", "x-0-0-0-000000000000"} {
		_, err = bootID(bad)
		assert.Error(t, err, bad)
	}
}

// TestDistance: a host in the same network is nearer than one behind a router, which is nearer than
// one with a route by another device.
func TestDistance(t *testing.T) {
	it := &Iface{dev: device{name: "lo", ip: netip.MustParseAddr("127.0.0.5"), network: netip.MustParsePrefix("127.0.0.0/24")}}
	at := func(ip string) int {
		return it.Distance((&deviceAddr{ip: netip.MustParseAddr(ip)}).append(nil, true))
	}
	assert.Equal(t, distanceLink, at("127.0.0.9"))
	assert.Equal(t, distanceOther, at("127.9.9.9"), "the kernel sends to it from another address")
	it.dev.ip = netip.MustParseAddr("127.0.0.1")
	it.dev.network = netip.Prefix{}
	source, err := sockio.Source(netip.MustParseAddr("127.9.9.9"))
	require.NoError(t, err)
	it.dev.ip = source
	assert.Equal(t, distanceRoute, at("127.9.9.9"))
	_, err = sockio.Source(netip.MustParseAddr("255.255.255.255"))
	assert.Error(t, err, "broadcast")
	assert.Equal(t, distanceNone, at("255.255.255.255"))
	assert.Equal(t, distanceLink, it.Distance((&deviceAddr{loopback: true, ip: it.dev.ip}).append(nil, true)))
	assert.Equal(t, distanceNone, it.Distance(nil))
}

// TestDevice_ChoosesAddress: a device has its first address of the family, else its first address.
// A loopback device has a loopback address.
func TestDevice_ChoosesAddress(t *testing.T) {
	for _, tc := range []struct {
		loopback           bool
		all                string
		family, want, from string
	}{
		{false, "fe80::1/64 10.0.0.1/8 10.0.0.2/8 fd00::1/64", familyName6, "fd00::1", "fd00::/64"},
		{false, "fe80::1/64 fd00::1/64 10.0.0.1/8", "inet", "10.0.0.1", "10.0.0.0/8"},
		{false, "fe80::1/64 10.0.0.1/8", familyName6, "10.0.0.1", "10.0.0.0/8"},
		{true, "10.0.0.1/32 127.0.0.1/8 fd00::1/128 ::1/128", "inet", "127.0.0.1", "127.0.0.0/8"},
		{true, "10.0.0.1/32 127.0.0.1/8 fd00::1/128 ::1/128", familyName6, "::1", "::1/128"},
	} {
		var addrs []net.Addr
		for _, text := range strings.Fields(tc.all) {
			ip, n, err := net.ParseCIDR(text)
			require.NoError(t, err)
			addrs = append(addrs, &net.IPNet{IP: ip, Mask: n.Mask})
		}
		d := device{loopback: tc.loopback}
		d.choose(addrs, tc.family)
		assert.Equal(t, tc.want, d.ip.String(), "%s of %s", tc.family, tc.all)
		assert.Equal(t, tc.from, d.network.String())
	}
	d := device{loopback: true}
	d.choose([]net.Addr{&net.IPNet{IP: net.IPv4(10, 0, 0, 1), Mask: net.CIDRMask(32, 32)}}, "inet")
	assert.False(t, d.ip.IsValid())
}

// TestSocketBuffers: dialed and accepted connections have the configured socket buffers.
func TestSocketBuffers(t *testing.T) {
	const send, receive = 48 << 10, 24 << 10
	a, b := newEnd(t, Config{SndBuf: send, RcvBuf: receive}), newEnd(t, Config{SndBuf: send, RcvBuf: receive})
	ep := a.to(b.it.listen.Port(), uct.DialNow)
	until(t, "connected", func() bool { return ep.sends && b.it.conns.Len() == 1 }, a, b)
	for _, c := range []*Conn{ep.conn, b.it.conns.All()[0]} {
		for option, want := range map[int]int{unix.SO_SNDBUF: send, unix.SO_RCVBUF: receive} {
			n, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, option)
			require.NoError(t, err)
			assert.Equal(t, 2*want, n, "the kernel doubles it")
		}
	}
	require.NoError(t, ep.Close())
}

// TestOpen_RejectsInvalidParams: OpenIface returns an error for each invalid parameter.
func TestOpen_RejectsInvalidParams(t *testing.T) {
	md, err := openMD()
	require.NoError(t, err)
	for _, tc := range []struct {
		p    uct.IfaceParams
		want error
	}{
		{uct.IfaceParams{Transport: Name, Device: "none"}, uct.ErrInvalidParam},
		{uct.IfaceParams{Transport: "tcp", Device: "lo"}, uct.ErrInvalidParam},
		{uct.IfaceParams{Transport: Name, Device: "lo", Token: "x"}, uct.ErrUnsupported},
		{uct.IfaceParams{Transport: Name, Device: "lo", Config: Config{Family: "ipx"}}, uct.ErrInvalidParam},
		{uct.IfaceParams{Transport: Name, Device: "lo", Config: Config{LoopbackAddr: "broad"}}, uct.ErrInvalidParam},
		{uct.IfaceParams{Transport: Name, Device: "lo", Config: Config{Port: 1 << 16}}, uct.ErrInvalidParam},
		{uct.IfaceParams{Transport: Name, Device: "lo", Config: Config{MaxFrame: 1}}, uct.ErrInvalidParam},
	} {
		_, err := md.OpenIface(tc.p)
		assert.True(t, errors.Is(err, tc.want), "%v", err)
	}
	only, err := New(Config{}).OpenMD(Name)
	require.NoError(t, err)
	all, err := only.Resources()
	require.NoError(t, err)
	for _, r := range all {
		assert.Equal(t, loopbackDevice, r.Device, "only loopback by default")
	}
	require.NoError(t, md.Close())
	require.NoError(t, only.Close())
}

// TestAccept_UsesConnectionWithAnySerial: an accepted EP sends on its connection, whatever its
// serial number is.
func TestAccept_UsesConnectionWithAnySerial(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	s := p.dial(first(p.port, false, 1))
	s.read(frameLen + eventLen)
	c := e.it.unexpected[peerID{addr: e.it.unnamed.all[0].c.peer, sn: 1}]
	require.NotNil(t, c)
	ep, err := e.it.Accept(c)
	require.NoError(t, err)
	assert.Same(t, ep, c.EP())
	s.read(len(requestFrame(0, false, 1)))
	s.send(event(eventAck))
	until(t, "connected", func() bool { return ep.sends }, e)
	hi(t, ep)
	assert.Equal(t, hiFrame, s.read(len(hiFrame)))
	_, err = e.it.Accept(c)
	assert.ErrorIs(t, err, ucs.ErrInvalidState)

	for _, want := range []uint64{0, 2} { // the serial number of the accepted one is in use
		other := e.to(p.port, uct.DialNow)
		assert.Equal(t, want, other.sn)
		require.NoError(t, other.Close())
	}
	require.NoError(t, ep.Close())
	_, err = e.it.Accept(c)
	assert.ErrorIs(t, err, ucs.ErrInvalidState)
}

// TestAccept_FreesSerial: a serial number that the peer chose is in use until the connection ends,
// and then nothing of it is stored.
func TestAccept_FreesSerial(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	s := p.dial(first(p.port, false, 0))
	s.read(frameLen + eventLen)
	ep, err := e.it.Accept(e.it.unnamed.all[0].c)
	require.NoError(t, err)
	s.read(len(requestFrame(0, false, 0)))
	s.send(event(eventAck))
	until(t, "connected", func() bool { return ep.sends }, e)
	require.NoError(t, ep.Close())
	assert.Empty(t, e.it.nextSN)
	assert.Len(t, e.it.closedEPs, 1)
	other := e.to(p.port, uct.DialNow)
	assert.Equal(t, uint64(1), other.sn, "the peer may use its endpoint")
	require.NoError(t, other.Close())
	require.NoError(t, s.c.Close())
	until(t, "ended", func() bool { return e.it.conns.Len() == 0 }, e)
	assert.Empty(t, e.it.closedEPs)
}

// TestClose_DeliversBeforeConnected: messages that were posted before the EP was connected and
// closed are sent before FIN.
func TestClose_DeliversBeforeConnected(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	ep := e.to(p.port, uct.DialOnUse)
	hi(t, ep)
	require.NoError(t, ep.Close())
	s := p.accept()
	s.read(len(first(0, false, 0)))
	s.send(event(eventAck))
	want := append(append([]byte{}, hiFrame...), event(eventFin)...)
	assert.Equal(t, want, s.read(len(want)))
}

// TestUnblock_StopsWatchingForRoom: EPOLLOUT is disabled after the socket has room.
func TestUnblock_StopsWatchingForRoom(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	ep := e.to(p.port, uct.DialNow)
	s := p.accept()
	s.read(len(first(0, false, 0)))
	s.send(event(eventAck))
	until(t, "connected", func() bool { return ep.sends }, e)
	ep.conn.tx.watchesOut = true // as for a full socket that a retry has written to since
	ep.conn.setEvents()
	until(t, "quiet", func() bool { return !ep.conn.tx.watchesOut && e.it.Arm(0) == nil }, e)
	require.NoError(t, ep.Close())
}
