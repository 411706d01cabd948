package softhca

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// next returns a packet of the message that QP q expects: a payload of n bytes of a message of length
// bytes, for the window.
func (s *siege) next(q int, op, flags uint8, n, length int) (ring.Packet, []byte) {
	t := &s.qps[q]
	return ring.Packet{Op: op, Flags: flags, DstQPN: t.v.Number(), SrcQPN: t.remote, MSN: t.q.resp.msn, Total: uint32(length),
		RAddr: s.window.Addr(), RKey: s.window.RKey(), Ext: siegeQKey}, s.payload(n)
}

// sendNext sends such a packet as the peer of QP q, and lets the device handle it.
func (s *siege) sendNext(q int, op, flags uint8, n, length int) {
	pkt, payload := s.next(q, op, flags, n, length)
	require.True(s.t, s.peers[s.qps[q].peer].request(pkt, payload))
	s.settle()
}

const flagOnly = ring.FlagFirst | ring.FlagLast

// A packet that does not continue the open message stops its QP, and its sender gets a NAK. The device
// writes to no buffer that was delivered, and completes no receive that was not consumed: settle
// checks that.
func TestRequest_InvalidPacketStopsQP(t *testing.T) {
	type p struct {
		op, flags uint8
		n, length int
	}
	for name, packets := range map[string][]p{
		"a write that ends as a send":          {{ring.OpWrite, ring.FlagFirst, 0, 8}, {ring.OpSend, ring.FlagLast, 8, 8}},
		"a write with data ends as a send":     {{ring.OpWrite, ring.FlagFirst, 8, 16}, {ring.OpSend, ring.FlagLast, 8, 16}},
		"a send that ends as a write":          {{ring.OpSend, ring.FlagFirst, 8, 16}, {ring.OpWrite, ring.FlagLast, 8, 16}},
		"a send that begins again as a write":  {{ring.OpSend, ring.FlagFirst, 8, 16}, {ring.OpWrite, flagOnly, 8, 8}},
		"a send that ends as an immediate":     {{ring.OpSend, ring.FlagFirst, 8, 16}, {ring.OpWriteImm, flagOnly | ring.FlagImm, 0, 8}},
		"a read inside a send":                 {{ring.OpSend, ring.FlagFirst, 8, 16}, {ring.OpRead, flagOnly, 0, 16}},
		"an atomic inside a write":             {{ring.OpWrite, ring.FlagFirst, 8, 16}, {ring.OpAtomicFA, flagOnly, 0, 16}},
		"a send of more than its length":       {{ring.OpSend, ring.FlagFirst, 8, 16}, {ring.OpSend, ring.FlagLast, 9, 16}},
		"a send of less than its length":       {{ring.OpSend, ring.FlagFirst, 8, 16}, {ring.OpSend, ring.FlagLast, 7, 16}},
		"a send that ends without last":        {{ring.OpSend, ring.FlagFirst, 8, 16}, {ring.OpSend, 0, 8, 16}},
		"a length that changes":                {{ring.OpSend, ring.FlagFirst, 8, 16}, {ring.OpSend, ring.FlagLast, 16, 24}},
		"a length that changes from the start": {{ring.OpSend, ring.FlagFirst, 64, 128}, {ring.OpSend, flagOnly, 8, 8}},
		"an empty packet in a send":            {{ring.OpSend, ring.FlagFirst, 8, 16}, {ring.OpSend, 0, 0, 16}},
		"a message that is too long":           {{ring.OpWrite, ring.FlagFirst, 8, maxMessage + 1}},
		"a read with a payload":                {{ring.OpRead, flagOnly, 8, 8}},
		"a read of several packets":            {{ring.OpRead, ring.FlagFirst, 0, 8}},
		"an atomic of several packets":         {{ring.OpAtomicCS, ring.FlagFirst, 0, 8}},
		"a response":                           {{ring.OpReadData, flagOnly, 8, 8}},
		"an unknown operation":                 {{200, flagOnly, 8, 8}},
		"a response inside a message":          {{ring.OpSend, ring.FlagFirst, 8, 16}, {ring.OpAck, ring.FlagLast, 8, 16}},
	} {
		for kind, q := range map[string]int{"own receives": 0, "shared receives": 1} {
			t.Run(name+", "+kind, func(t *testing.T) {
				s := newSiege(t)
				s.begin(t)
				defer s.end()
				s.sendNext(q, ring.OpSend, flagOnly, 9, 9)
				s.stalled = true
				s.peers[0].drain(func(*ring.Packet) {})
				for _, p := range packets {
					s.sendNext(q, p.op, p.flags, p.n, p.length)
				}
				assert.Equal(t, verbs.QPStateErr, s.qps[q].v.State())
				refused := 0
				s.peers[0].drain(func(pkt *ring.Packet) {
					if pkt.Op == ring.OpNak && prm.Syndrome(pkt.Status) == prm.SyndromeRemoteInvalidReq {
						refused++
					}
				})
				assert.Equal(t, 1, refused, "refusals")
				s.finish()
			})
		}
	}
}

// A message may be sent again from its first packet, as its requester has rewound the queue. It fills
// the receive that it has consumed.
func TestRequest_RestartedMessageKeepsReceive(t *testing.T) {
	s := newSiege(t)
	s.begin(t)
	defer s.end()
	s.sendNext(0, ring.OpSend, ring.FlagFirst, 8, 16)
	s.sendNext(0, ring.OpSend, ring.FlagFirst, 4, 16)
	s.sendNext(0, ring.OpSend, ring.FlagLast|ring.FlagImm, 12, 16)
	assert.Equal(t, verbs.QPStateRTS, s.qps[0].v.State())
	assert.EqualValues(t, 1, s.qps[0].q.rq.consumed)
	assert.Equal(t, 1, s.outstanding(0), "one of two receives is outstanding")
	s.finish()
}

// reply sends a response to the oldest message in flight, as the peer of QP q.
func (s *siege) reply(q int, pkt ring.Packet, n int) {
	t := &s.qps[q]
	pkt.DstQPN = t.v.Number()
	pkt.MSN += (t.q.req.msn - t.q.req.inFlight) & mlx5PSNMask
	require.True(s.t, s.peers[t.peer].respond(pkt, s.payload(n)))
}

// Types of work requests for siege.postSend.
const (
	kindSend = iota
	kindSendImm
	kindInline
	kindRead
	kindFetchAdd
	kindCmpSwap
	kindWrite
	kindWriteImm
	kindLongSend
)

// A response that is not valid for the request fails it and stops the QP: data for a request that is only
// acknowledged, an acknowledgement for a request that returns data, data in the wrong order.
func TestResponse_InvalidForRequest(t *testing.T) {
	const size = 16
	type a struct {
		pkt ring.Packet
		n   int
	}
	data := func(off uint64, flags uint8, n int) a {
		return a{ring.Packet{Op: ring.OpReadData, Flags: flags, RAddr: off}, n}
	}
	ack, atomicOK := a{ring.Packet{Op: ring.OpAck}, 0}, a{ring.Packet{Op: ring.OpAtomicOK, Flags: ring.FlagLast}, 0}
	for name, c := range map[string]struct {
		kind      byte
		responses []a
	}{
		"read data for a send":        {kindSend, []a{data(0, ring.FlagLast, size)}},
		"read data for a write":       {kindWrite, []a{data(0, ring.FlagLast, size)}},
		"read data for an atomic":     {kindFetchAdd, []a{data(0, ring.FlagLast, 8)}},
		"an old value for a send":     {kindSend, []a{atomicOK}},
		"an old value for a read":     {kindRead, []a{atomicOK}},
		"an acknowledged read":        {kindRead, []a{ack}},
		"an acknowledged atomic":      {kindCmpSwap, []a{ack}},
		"no receive for a read":       {kindRead, []a{{ring.Packet{Op: ring.OpRNR}, 0}}},
		"no receive for a write":      {kindWrite, []a{{ring.Packet{Op: ring.OpRNR}, 0}}},
		"read data too long":          {kindRead, []a{data(0, ring.FlagLast, size+1)}},
		"read data too short":         {kindRead, []a{data(0, ring.FlagLast, size-1)}},
		"read data without end":       {kindRead, []a{data(0, 0, size)}},
		"read data at wrong offset":   {kindRead, []a{data(8, ring.FlagLast, 8)}},
		"read data twice":             {kindRead, []a{data(0, 0, 8), data(0, 0, 8)}},
		"read data with a gap":        {kindRead, []a{data(0, 0, 4), data(8, ring.FlagLast, 8)}},
		"an empty packet in a read":   {kindRead, []a{data(0, 0, 0)}},
		"a request as a response":     {kindSend, []a{{ring.Packet{Op: ring.OpSend, Flags: flagOnly}, 8}}},
		"a NAK without syndrome":      {kindSend, []a{{ring.Packet{Op: ring.OpNak}, 0}}},
		"a NAK with a flush":          {kindSend, []a{{ring.Packet{Op: ring.OpNak, Status: uint8(prm.SyndromeWRFlush)}, 0}}},
		"a NAK with unknown syndrome": {kindRead, []a{{ring.Packet{Op: ring.OpNak, Status: 0xfe}, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSiege(t)
			s.begin(t)
			defer s.end()
			s.postSend(0, c.kind, size-1)
			driveUntilIdle(s.h)
			require.EqualValues(t, 1, s.qps[0].q.req.inFlight)
			for _, a := range c.responses {
				s.reply(0, a.pkt, a.n)
			}
			driveUntilIdle(s.h)
			s.checkMemory()
			require.Equal(t, 1, s.cq.Poll(s.wcs[:1]))
			assert.Equal(t, verbs.WCBadRespErr, s.wcs[0].Status)
			assert.Equal(t, verbs.QPStateErr, s.qps[0].v.State())
			s.completed(&s.wcs[0])
			s.finish()
		})
	}
}

// The acknowledgement of a later message does not complete a read.
func TestResponse_RejectsSkippedRead(t *testing.T) {
	s := newSiege(t)
	s.begin(t)
	defer s.end()
	s.postSend(0, kindRead, 15)
	s.postSend(0, kindSend, 15)
	driveUntilIdle(s.h)
	require.EqualValues(t, 2, s.qps[0].q.req.inFlight)
	s.reply(0, ring.Packet{Op: ring.OpAck, MSN: 1}, 0)
	driveUntilIdle(s.h)
	require.Equal(t, 2, s.cq.Poll(s.wcs[:2]))
	assert.Equal(t, verbs.WCBadRespErr, s.wcs[0].Status)
	assert.Equal(t, verbs.WCWRFlushErr, s.wcs[1].Status)
	s.completed(&s.wcs[0])
	s.completed(&s.wcs[1])
	s.finish()
}

// partlySend posts sends until only a part of the last one is in the ring of the peer, and returns the
// number of the complete ones.
func (s *siege) partlySend() (complete uint32) {
	s.stalled = true
	r := &s.qps[0].q.req
	for !r.partlySent() {
		s.postSend(0, kindLongSend, 0)
		s.settle()
	}
	return r.inFlight
}

// A message that gets an RNR NAK while its sender still waits for room in the ring is sent again from its
// first packet.
func TestRNR_PartlySent(t *testing.T) {
	s := newSiege(t)
	s.begin(t)
	defer s.end()
	complete := s.partlySend()
	require.NotZero(t, complete)
	msn := s.qps[0].q.req.msn
	s.reply(0, ring.Packet{Op: ring.OpRNR, MSN: complete}, 0)
	s.settle()
	assert.Zero(t, s.qps[0].q.req.inFlight, "earlier messages are complete")
	var firsts, lasts int
	for lasts == 0 {
		s.settle()
		s.peers[0].drain(func(pkt *ring.Packet) {
			if pkt.MSN == msn {
				firsts += int(pkt.Flags & ring.FlagFirst)
				lasts += int(pkt.Flags & ring.FlagLast / ring.FlagLast)
			}
		})
	}
	assert.Equal(t, 2, firsts)
	assert.Equal(t, 1, lasts)
	s.reply(0, ring.Packet{Op: ring.OpAck}, 0)
	s.settle()
	assert.Empty(t, s.outstandingSends(0))
	s.finish()
}

// A message that gets a NAK before its last packet is sent completes with the syndrome of the NAK.
func TestNak_PartlySent(t *testing.T) {
	s := newSiege(t)
	s.begin(t)
	defer s.end()
	complete := s.partlySend()
	s.reply(0, ring.Packet{Op: ring.OpNak, MSN: complete, Status: uint8(prm.SyndromeRemoteInvalidReq)}, 0)
	driveUntilIdle(s.h)
	n := s.cq.Poll(s.wcs[:])
	require.Greater(t, n, int(complete))
	for i := range s.wcs[:n] {
		want := verbs.WCSuccess
		switch {
		case i == int(complete):
			want = verbs.WCRemInvReqErr
		case i > int(complete):
			want = verbs.WCWRFlushErr // of the receives
		}
		assert.Equal(t, want, s.wcs[i].Status)
		s.completed(&s.wcs[i])
	}
	s.finish()
}

// outstandingSends returns the IDs of the send work requests of a QP that have not completed.
func (s *siege) outstandingSends(q int) (ids []uint64) {
	for _, p := range s.posts {
		if p.qp == q && !p.recv {
			ids = append(ids, p.id)
		}
	}
	return ids
}

// The response to a read ends when its QP is reset. When the QP is connected again, it starts with the
// message number of the new connection.
func TestRead_QPConnectedAgain(t *testing.T) {
	s := newSiege(t)
	s.begin(t)
	defer s.end()
	s.stalled = true
	in := s.peers[0].in
	read := func() { // of the complete window; the ring has room for some thousands of requests
		pkt, _ := s.next(0, ring.OpRead, flagOnly, 0, windowLen)
		require.True(t, s.peers[0].request(pkt, nil))
		s.settle()
	}
	for in.resp.Room(maxResponses * ring.MaxRecord) {
		read()
	}
	in.reading = readback{qp: s.qps[0].q, pkt: ring.Packet{DstQPN: s.qps[0].v.Number(), SrcQPN: s.qps[0].remote,
		Total: windowLen, RAddr: s.window.Addr(), RKey: s.window.RKey()}}
	s.qps[0].q.resp.open.kind = ring.OpRead
	s.reconnect(0)
	s.stalled = false
	s.settle()
	s.settle()
	assert.Nil(t, in.reading.qp)
	assert.EqualValues(t, siegePSN, s.qps[0].q.resp.msn)
	s.sendNext(0, ring.OpSend, flagOnly, 9, 9)
	assert.Equal(t, verbs.QPStateRTS, s.qps[0].v.State())
	s.finish()
}

// A peer that continues to write to its ring after its link has gone down does not keep the device
// busy.
func TestDropInbound_PeerContinuesWriting(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that the peer always writes before the device reads
	s := newSiege(t)
	s.begin(t)
	defer s.end()
	p := s.peers[0]
	pkt, _ := s.next(3, ring.OpDatagram, flagOnly, 0, 0)
	pkt.Ext++ // the device drops it
	for p.request(pkt, nil) {
	}
	started, stop, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		close(started)
		for ctl := p.requests.Ctl; ; runtime.Gosched() {
			select {
			case <-stop:
				return
			default:
				ctl.Tail.Store(ctl.Head.Load() + ring.Len) // the same packets again
			}
		}
	}()
	<-started
	s.h.dropInbound(p.in)
	s.h.dials.Wait()
	close(stop)
	<-done
	s.finish()
}
