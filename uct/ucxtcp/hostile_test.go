package ucxtcp

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// lengthOf returns the header of a frame with length n, without its body.
func lengthOf(id uint8, n uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte{id}, n)
}

func concat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// TestHostile_InvalidFramesFailConnection: a peer that sends an invalid frame loses its connection.
// Connections of other peers continue to work.
func TestHostile_InvalidFramesFailConnection(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	ok := newRawPeer(t, e)
	good := ok.dial(first(ok.port, false, 0))
	good.read(frameLen + eventLen)
	head := first(p.port, false, 0)
	badMagic := concat(head)
	badMagic[7] ^= 1
	otherIP := concat(head)
	otherIP[magicLen+frameLen+offSockaddr+offIP4] = 10
	otherFamily := concat(head)
	otherFamily[magicLen+frameLen+offSockaddr] = 1
	noPort := concat(head)
	copy(noPort[magicLen+frameLen+offSockaddr+offPort:], []byte{0, 0})
	for _, tc := range []struct {
		name    string
		send    []byte
		refused bool // refused in the handshake, otherwise counted as malformed
	}{
		{"magic", badMagic, true},
		{"first byte of another protocol", []byte("G"), true},
		{"message before the request", concat(head[:magicLen], message("x")), true},
		{"ack before the request", concat(head[:magicLen], event(eventAck)), true},
		{"unknown frame before the request", concat(head[:magicLen], lengthOf(99, 0)), true},
		{"address of another host", otherIP, true},
		{"family of no address", otherFamily, true},
		{"port 0", noPort, true},
		{"key of no endpoint", first(p.port, true, 1), true},
		{"unknown id", concat(head, lengthOf(36, 0)), false},
		{"last id", concat(head, lengthOf(255, 0)), false},
		{"longest length", concat(head, lengthOf(2, 0xffffffff)), false},
		{"longest length of an event", concat(head, lengthOf(idCM, 0xffffffff)), false},
		{"message too long", concat(head, lengthOf(2, defaultMaxFrame+1)), false},
		{"second request", concat(head, requestFrame(p.port, false, 0)), false},
		{"request of an endpoint", concat(head, requestFrame(p.port, true, 1)), false},
		{"ack of nothing", concat(head, event(eventAck)), false},
		{"unknown event", concat(head, event(5)), false},
		{"event 1 without a request", concat(head, event(eventRequest)), false},
		{"put with data", concat(head, putFrameOf(8, 0), make([]byte, 8)), false},
		{"put of 2^64-1 bytes", concat(head, putFrameOf(1<<64-1, 0)), false},
	} {
		refused, malformed := e.it.limits.refused.Load(), e.it.limits.malformed.Load()
		p.dial(tc.send).readAll()
		until(t, "cleaned", func() bool { return e.it.conns.Len() == 1 }, e)
		if tc.refused {
			refused++
		} else {
			malformed++
		}
		assert.Equal(t, refused, e.it.limits.refused.Load(), tc.name)
		assert.Equal(t, malformed, e.it.limits.malformed.Load(), tc.name)
		assert.Empty(t, e.got, tc.name)
	}
	good.send(message("still here"))
	until(t, "message", func() bool { return len(e.got) == 1 }, e)
	assert.Empty(t, e.errs)
}

// TestHostile_InvalidFramesFailEP: a peer to which an EP has connected must not send these frames.
func TestHostile_InvalidFramesFailEP(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	for _, tc := range []struct {
		name string
		send []byte
	}{
		{"message without a request", message("x")},
		{"message after an ack", concat(event(eventAck), message("x"))},
		{"second ack", concat(event(eventAck), event(eventAck))},
		{"fin without a request", concat(event(eventAck), event(eventFin))},
		{"request after fin", concat(event(eventAckRequest), event(eventFin), requestFrame(p.port, false, 0))},
		{"message after fin", concat(event(eventAckRequest), event(eventFin), message("x"))},
		{"ack of no put", concat(event(eventAck), putAckFrame(0))},
		{"ack of a later put", concat(event(eventAck), putAckFrame(7))},
		{"request with another number", concat(event(eventAck), requestFrame(p.port, false, 99))},
		{"request of another peer", concat(event(eventAck), requestFrame(p.port+1, false, 0))},
		{"put with data", concat(event(eventAckRequest), putFrameOf(1, 0), []byte{1})},
	} {
		e.errs = nil
		ep := e.to(p.port, uct.DialNow)
		s := p.accept()
		s.send(tc.send)
		until(t, tc.name, func() bool { return len(e.errs) == 1 }, e)
		assert.ErrorIs(t, e.errs[0], ucs.ErrConnReset, tc.name)
		require.NoError(t, ep.Close())
		assert.Empty(t, e.got, tc.name)
	}
}

// TestHostile_UnknownIdsAreDropped: messages with an id without handler are dropped and counted. An
// empty message is valid.
func TestHostile_UnknownIdsAreDropped(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	s := p.dial(concat(first(p.port, false, 0), frame(29, 1), frame(30), frame(31, 1, 2), frame(msgID)))
	until(t, "message", func() bool { return len(e.got) == 1 }, e)
	assert.Equal(t, []string{""}, e.got)
	s.send(putFrameOf(0, 41))
	assert.Equal(t, concat(event(eventAck), putAckFrame(41)), s.read(2*frameLen+eventLen+putAckLen))
}

// TestHostile_FloodOfPutsIsBounded: a peer that sends empty puts continuously and does not read
// uses bounded buffers.
func TestHostile_FloodOfPutsIsBounded(t *testing.T) {
	e := newEnd(t, Config{SndBuf: 4 << 10})
	p := newRawPeer(t, e)
	s := p.dial(first(p.port, false, 0))
	flood := bytes.Repeat(putFrameOf(0, 9), 1000)
	require.NoError(t, s.c.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
	over := make(chan bool)
	go func() {
		for range 200 {
			if _, err := s.c.Write(flood); err != nil {
				break
			}
		}
		close(over)
	}()
	until(t, "flood", func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	}, e)
	require.Len(t, e.it.unnamed.all, 1)
	c := e.it.unnamed.all[0].c
	assert.LessOrEqual(t, len(c.tx.buf), controlRoom)
	assert.LessOrEqual(t, len(c.rx.buf), smallRx)
}

// TestHostile_HalfFrameExpires: an unnamed peer that sends a part of a frame is disconnected.
func TestHostile_HalfFrameExpires(t *testing.T) {
	e := newEnd(t, Config{HelloTimeout: 50 * time.Millisecond})
	p := newRawPeer(t, e)
	idle := p.dial(first(p.port, false, 1))
	idle.read(frameLen + eventLen)
	p.dial(concat(first(p.port, false, 0), message("half")[:7])).readAll()
	assert.Equal(t, uint64(1), e.it.limits.stalled.Load())
	p.dial(first(p.port, false, 0)[:9]).readAll()
	assert.Equal(t, uint64(1), e.it.limits.refused.Load())
	idle.send(message("idle is no fault"))
	until(t, "message", func() bool { return len(e.got) == 1 }, e)
}

// TestHostile_FloodEvictsUnnamed: new connections evict the oldest one without a request, and not
// those of peers with an EP.
func TestHostile_FloodEvictsUnnamed(t *testing.T) {
	e := newEnd(t, Config{MaxUnnamed: 4})
	named, p := newRawPeer(t, e), newRawPeer(t, e)
	ep := e.to(named.port, uct.DialByPeer)
	kept := named.dial(first(named.port, false, 0))
	kept.read(frameLen + eventLen)
	answered := p.dial(first(p.port, false, 0))
	answered.read(frameLen + eventLen)
	var half []*stream
	for i := range 8 {
		half = append(half, p.dial(nil))
		until(t, "accepted", func() bool { return int(e.it.limits.evicted.Load()) == max(0, i-2) }, e)
	}
	until(t, "accepted", func() bool { return len(e.it.unnamed.all) == 4 && e.it.limits.evicted.Load() == 5 }, e)
	for _, s := range half[:5] {
		s.readAll()
	}
	answered.send(message("first"))
	kept.send(message("second"))
	until(t, "messages", func() bool { return len(e.got) == 2 }, e)
	for i := range uint64(4) { // connections with a request evict those without, then the oldest
		p.dial(first(p.port, false, i+1)).read(frameLen + eventLen)
	}
	answered.readAll()
	assert.Len(t, e.it.unnamed.all, 4)
	assert.Len(t, e.left, 1)
	hi(t, ep)
	assert.Equal(t, hiFrame, kept.read(len(hiFrame)))
	require.NoError(t, ep.Close())
}

// TestHostile_ConnectionsOfClosedEPsAreUnnamed: connections of closed EPs on which the peers
// continue to send count as unnamed.
func TestHostile_ConnectionsOfClosedEPsAreUnnamed(t *testing.T) {
	for _, cfg := range []Config{{MaxUnnamed: 3}, {MaxPerSource: 3}} {
		e := newEnd(t, cfg)
		p := newRawPeer(t, e)
		var streams []*stream
		for range 8 {
			ep := e.to(p.port, uct.DialNow)
			s := p.accept()
			s.read(len(first(0, false, 0)))
			s.send(event(eventAckRequest))
			until(t, "connected", func() bool { return ep.sends }, e)
			require.NoError(t, ep.Close())
			streams = append(streams, s)
		}
		for _, s := range streams[:5] {
			s.readAll()
		}
		until(t, "cleaned", func() bool { return e.it.conns.Len() == 3 }, e)
		assert.Equal(t, uint64(5), e.it.limits.evicted.Load())
		assert.Len(t, e.it.unnamed.all, 3)
		e.got = nil
		for _, s := range streams[5:] {
			s.send(message("still here"))
		}
		until(t, "messages", func() bool { return len(e.got) == 3 }, e)
	}
}

// TestHostile_MaxConnsEvictsNoNamed: connections of peers with an EP are not evicted.
func TestHostile_MaxConnsEvictsNoNamed(t *testing.T) {
	e := newEnd(t, Config{MaxConns: 2})
	a, b, p := newRawPeer(t, e), newRawPeer(t, e), newRawPeer(t, e)
	for _, peer := range []*rawPeer{a, b} {
		e.to(peer.port, uct.DialByPeer)
		peer.dial(first(peer.port, false, 0)).read(frameLen + eventLen)
	}
	p.dial(first(p.port, false, 0)).readAll()
	assert.Equal(t, 2, e.it.conns.Len())
	assert.Empty(t, e.errs)
}

// TestHostile_MemoryIsBounded: all unnamed connections share a limit for buffers of large frames.
func TestHostile_MemoryIsBounded(t *testing.T) {
	e := newEnd(t, Config{RxBuf: 8 << 20})
	p := newRawPeer(t, e)
	for i := range uint64(5) {
		s := p.dial(concat(first(p.port, false, i), lengthOf(msgID, defaultMaxFrame)))
		s.read(frameLen + eventLen)
		until(t, "memory", func() bool { return e.it.unnamed.memory <= unnamedMemory && e.it.conns.Len() == min(int(i)+1, 2) }, e)
	}
	assert.Equal(t, uint64(3), e.it.limits.evicted.Load())
}

// TestAccept_PausesWithoutDescriptors: an iface of a process without free descriptors serves its
// connections, and accepts again when there are descriptors.
func TestAccept_PausesWithoutDescriptors(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	s := p.dial(first(p.port, false, 0))
	s.send(message("one"))
	until(t, "message", func() bool { return len(e.got) == 1 }, e)
	waiting, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(e.it.listen))
	require.NoError(t, err)
	testenv.WithoutDescriptors(t, func() {
		until(t, "pause", func() bool { return e.it.listener.paused }, e)
		s.send(message("two"))
		until(t, "message", func() bool { return len(e.got) == 2 }, e)
	})
	w := p.stream(waiting)
	w.send(first(p.port, false, 1))
	assert.Equal(t, event(eventAck), w.read(frameLen+eventLen))
}

// TestAccept_LastDescriptor: an iface that has used the last descriptor of the process for a connection does not evict
// that connection while no peer waits.
func TestAccept_LastDescriptor(t *testing.T) {
	e := newEnd(t, Config{})
	p := newRawPeer(t, e)
	conn, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(e.it.listen))
	require.NoError(t, err)
	s := p.stream(conn)
	testenv.WithDescriptors(t, 1, func() {
		until(t, "connection", func() bool { return e.it.conns.Len() == 1 }, e)
		_, err := unix.Dup(0)
		require.ErrorIs(t, err, unix.EMFILE)
	})
	s.send(first(p.port, false, 0))
	assert.Equal(t, event(eventAck), s.read(frameLen+eventLen))
	assert.Zero(t, e.it.limits.evicted.Load())
	assert.Zero(t, e.it.limits.refused.Load())
	assert.False(t, e.it.listener.paused)
}

// TestHold_StopsPeer: a held connection reads at most its buffer, and loses no message.
func TestHold_StopsPeer(t *testing.T) {
	e := newEnd(t, Config{MaxFrame: 1 << 10, RxBuf: 4 << 10, RcvBuf: config.MemSize(4 << 10)})
	p := newRawPeer(t, e)
	n, held := 0, true
	var source *Conn
	require.NoError(t, e.it.SetAMHandler(msgID, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		n++
		if source = e.it.Source(); held {
			source.Hold()
		}
		return false
	})))
	s := p.dial(first(p.port, false, 0))
	require.NoError(t, s.c.SetWriteBuffer(4<<10))
	const count = 1000
	text := message(string(make([]byte, 500)))
	sent := make(chan error, 1)
	go func() {
		_, err := s.c.Write(bytes.Repeat(text, count))
		sent <- err
	}()
	until(t, "first message", func() bool { return n == 1 }, e)
	for range 1000 {
		e.it.Progress()
	}
	assert.Equal(t, 1, n)
	assert.LessOrEqual(t, len(source.rx.buf), 4<<10)
	assert.Empty(t, sent, "the peer cannot write all")
	for i := 2; i < 10; i++ {
		source.Resume()
		until(t, "next message", func() bool { return n == i }, e)
		e.it.Progress()
		assert.Equal(t, i, n)
	}
	held = false
	source.Resume()
	until(t, "the rest", func() bool { return n == count }, e)
	require.NoError(t, <-sent)
	assert.Nil(t, e.it.Source())
	source.Drop(errMalformed)
	until(t, "leave", func() bool { return len(e.left) == 1 }, e)
	source.Hold()
	source.Resume()
}

// TestNoAllocs: messages and flushes do not allocate.
func TestNoAllocs(t *testing.T) {
	testenv.SkipRace(t, "the race detector allocates")
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ep := a.to(b.it.listen.Port(), uct.DialOnUse)
	n := 0
	require.NoError(t, b.it.SetAMHandler(msgID, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { n++; return false })))
	done := &uct.Completion{Func: func(*uct.Completion) {}}
	data := make([]byte, 32<<10)
	iov := []uct.IOV{{Buf: data}}
	exchange := func() {
		want := n + 2
		_ = ep.AMShort(msgID, 1, data[:16])
		done.Count = 1
		if pending, _ := ep.AMZcopy(msgID, data[:8], iov, done); !pending {
			done.Count = 0
		}
		until(t, "messages", func() bool { return n == want && done.Count == 0 }, a, b)
		done.Count = 1
		if pending, _ := ep.Flush(done); !pending {
			done.Count = 0
		}
		until(t, "flush", func() bool { return done.Count == 0 }, a, b)
	}
	for range 10 {
		exchange()
	}
	testenv.NoAllocs(t, "message, zcopy message and flush", exchange)
	require.NoError(t, ep.Close())
}
