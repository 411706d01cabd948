package softhca

import (
	"math/rand/v2"
	"testing"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// script is a string of bytes that encodes the steps of a siege; after its end it reads as zeros.
type script struct{ rest []byte }

func (s *script) next() byte {
	if len(s.rest) == 0 {
		return 0
	}
	b := s.rest[0]
	s.rest = s.rest[1:]
	return b
}

// pick uses the next byte as an index.
func pick[T any](s *script, from ...T) T { return from[int(s.next())%len(from)] }

// Types of steps: the low bits of the first byte. With stepHeld the device is not driven before a later
// step.
const (
	stepRequest  = iota // also 4 to 7
	stepResponse        // also 8 to 10
	stepSend            // also 11
	stepRecv
	stepOther = 12 // corrupt rings, reconnect, move to ERR, stall: 12 to 15
	stepHeld  = 0x80
)

// run executes a script.
func (s *siege) run(t testing.TB, b []byte) {
	s.begin(t)
	defer s.end()
	for in := (&script{b}); len(in.rest) > 0; {
		first := in.next()
		s.step(first&15, in)
		if first&stepHeld == 0 {
			s.settle()
		}
	}
	s.finish()
}

func (s *siege) step(kind byte, in *script) {
	switch kind {
	case stepRequest, 4, 5, 6, 7:
		s.request(in)
	case stepResponse, 8, 9, 10:
		s.respond(in)
	case stepSend, 11:
		s.postSend(pick(in, 0, 1, 2, 3, 4), in.next(), in.next())
	case stepRecv:
		s.postRecv(pick(in, sharedQueue, 0, 3, xrcQueues))
	case stepOther:
		s.corruptRings(in)
	case 13:
		s.reconnect(pick(in, 0, 1, 2, 3, 4, xrcTarget))
	case 14:
		q := pick(in, 0, 1, 2, 3, 4, xrcTarget)
		_ = s.qps[q].v.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState)
	case 15:
		s.stalled = !s.stalled
	}
}

// lengths of payloads and messages: around the lengths of cells, packets and atomics.
var lengths = [16]int{0, 1, 8, 16, 32, 63, 64, 65, 88, 89, 127, 128, 129, 256, 1024, ring.MaxPayload}

// near returns a number close to n, usually n.
func near(in *script, n uint32) uint32 {
	return n + pick[uint32](in, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, ^uint32(0), 2, 1<<23, 1<<24, 1<<31)
}

// request sends an arbitrary request packet to the device. Its bytes: op, flags, QP, sender, message
// number, payload length, message length, address, status.
func (s *siege) request(in *script) {
	pkt := ring.Packet{Op: pick[uint8](in, ring.OpSend, ring.OpWrite, ring.OpWriteImm, ring.OpRead, ring.OpAtomicFA, ring.OpAtomicCS, ring.OpDatagram,
		ring.OpFault, ring.OpFiller, ring.OpAck, ring.OpSend, ring.OpWrite, ring.OpSend, 200, ring.OpFilled)}
	pkt.Flags = in.next()
	q := int(in.next() % 8)
	from := in.next()
	pkt.DstQPN, pkt.SrcQPN = s.selfQP.Number(), s.selfQP.Number()
	peer := 0
	if q < len(s.qps) {
		t := &s.qps[q]
		pkt.DstQPN, pkt.SrcQPN, pkt.MSN, peer = t.v.Number(), t.remote, t.q.resp.msn, t.peer
	}
	if from&7 == 7 {
		peer ^= 1
	}
	if from>>3&7 == 7 {
		pkt.SrcQPN = foreign + uint32(from>>6)
	}
	pkt.MSN = near(in, pkt.MSN)
	payload := s.payload(lengths[in.next()%16])
	pkt.Total = s.length(in, len(payload))
	s.aim(in, &pkt)
	pkt.Status = in.next()
	pkt.Imm, pkt.Ext, pkt.Compare, pkt.SwapAdd = 7, siegeQKey, 1, 2
	if q == xrcTarget {
		s.aimXRC(in, &pkt)
	}
	if pkt.Status == 1 {
		pkt.Ext++
	}
	s.peers[peer].request(pkt, payload)
}

// length returns the message length in a packet.
func (s *siege) length(in *script, n int) uint32 {
	switch b := in.next(); {
	case b < 128:
		return uint32(n)
	case b < 250:
		return uint32(lengths[b%16])
	case b < 253:
		return uint32(2 * n)
	default:
		return 1<<31 - 1 + uint32(b-253)
	}
}

// aim sets the address and the key of a packet.
func (s *siege) aim(in *script, pkt *ring.Packet) {
	mr := pick(in, s.window, s.window, s.window, s.readOnly, s.own, s.bulk)
	pkt.RKey, pkt.RAddr = mr.RKey(), mr.Addr()
	pkt.RAddr += pick[uint64](in, 0, 0, 0, 8, 1, windowLen-8, windowLen-64, windowLen, ^uint64(0), ^uint64(7), 1<<40)
	if in.next() == 255 {
		pkt.RKey ^= 1
	}
}

// aimXRC sets the SRQ of a packet, and for a notice the number of the receive.
func (s *siege) aimXRC(in *script, pkt *ring.Packet) {
	n := s.xsrq.Number()
	pkt.Ext = pick(in, n, n, n, n, s.srq.Number()+1, 0, n|1<<16)
	if pkt.Op == ring.OpFilled {
		_, next := table.SplitClaim(s.h.claims.Of(n).Load())
		pkt.RAddr = uint64(near(in, uint32(next)-1))
	}
}

// claim writes to the claim word of the XRC SRQ, like a valid peer or not.
func (s *siege) claim(in *script, v uint64) {
	c := s.h.claims.Of(s.xsrq.Number())
	_, next := table.SplitClaim(c.Load())
	id := table.ClaimID(table.GIDWords(s.peers[0].gid))
	c.Store(pick(in, table.Claimed(id, next), table.Claimed(0, next+1), table.Claimed(id, next+1), table.Claimed(1, next), table.Claimed(0, next-1), v))
}

// respond sends an arbitrary response packet to the device. Its bytes: op, flags, QP, sender, message
// number, payload length, offset, status.
func (s *siege) respond(in *script) {
	pkt := ring.Packet{Op: pick[uint8](in, ring.OpAck, ring.OpNak, ring.OpRNR, ring.OpReadData, ring.OpAtomicOK, ring.OpReadData, ring.OpSend, ring.OpFiller, 200)}
	pkt.Flags = in.next()
	t := &s.qps[in.next()%5]
	from := in.next()
	r := &t.q.req
	pkt.DstQPN = t.v.Number()
	pkt.MSN = near(in, (r.msn-r.inFlight)&mlx5PSNMask)
	payload := s.payload(lengths[in.next()%16])
	pkt.RAddr = pick(in, uint64(t.sent), uint64(t.sent), uint64(t.sent), 0, 8, 1<<40, ^uint64(0))
	t.sent += len(payload)
	if pkt.Flags&ring.FlagLast != 0 || pkt.Op != ring.OpReadData {
		t.sent = 0
	}
	pkt.Status = pick[uint8](in, uint8(prm.SyndromeRemoteAccess), 0, 1, uint8(prm.SyndromeWRFlush), 0x12, 0x14, 0x15, 255)
	pkt.SwapAdd = 0x0102030405060708
	peer := t.peer
	if from&7 == 7 {
		peer ^= 1
	}
	s.peers[peer].respond(pkt, payload)
}

// corruptRings writes arbitrary indexes and record lengths to the rings of a peer.
func (s *siege) corruptRings(in *script) {
	p := s.peers[in.next()&1]
	v := pick[uint64](in, 0, 1, 64, ring.Len/2, ring.Len, ring.Len+64, 1<<63, ^uint64(0))
	switch in.next() % 8 {
	case 0:
		p.requests.Ctl.Tail.Add(v)
	case 1:
		p.responses.Ctl.Tail.Add(v)
	case 2:
		p.deviceResponses.Ctl.Head.Add(v)
	case 3:
		p.deviceRequests.Ctl.Head.Add(v)
	case 4:
		p.in.resp.Ctl.Waiting.Store(uint32(v))
		p.out.req.Ctl.Waiting.Store(uint32(v))
	case 5:
		p.ctl.attention.Store(uint32(v))
	case 6:
		s.claim(in, v)
	case 7:
		s.h.ctl.starving.Store(uint32(v))
		p.toDevice.header().starved.Store(uint32(v))
	}
}

// Seeds of the fuzzer: the steps of valid peers, and two scripts that found faults of a device that trusted
// the operation in a packet.
var siegeSeeds = [][]byte{
	{},
	{stepRequest, 0, 3, 0, 0, 0, 4}, // a send
	{stepRequest, 0, 7, 1, 0, 0, 4}, // with immediate, from an SRQ
	{stepRequest, 0, 1, 2, 0, 0, 4, 250, 0, 0, 0, 0, stepRequest, 0, 2, 2, 0, 0, 4, 134}, // with two packets
	{stepRequest, 1, 1, 0, 0, 0, 4, 250, 0, 0, 0, 0, stepRequest, 1, 2, 0, 0, 0, 4, 134}, // a write of two packets
	{stepRequest, 1, 3, 0, 0, 0, 2},                                                     // a write
	{stepRequest, 1, 7, 0, 0, 0, 2},                                                     // a write with immediate
	{stepRequest, 2, 7, 0, 0, 0, 0, 132},                                                // only its immediate
	{stepRequest, 3, 3, 0, 0, 0, 0, 132},                                                // a read
	{stepRequest, 4, 3, 0, 0, 0, 0, 130},                                                // an atomic
	{stepRequest, 6, 3, 3, 0, 0, 4},                                                     // a datagram
	{stepRequest, 6, 7, 4, 0, 0, 4},                                                     // with immediate, from an SRQ
	{stepSend, 0, 0, 7, stepResponse, 0, 2, 0, 0},                                       // a send is acknowledged
	{stepSend, 0, 0, 7, stepResponse, 2, 2, 0, 0, 0, 0, 0, 2, stepResponse, 0, 2, 0, 0}, // after an RNR NAK
	{stepSend, 0, 3, 7, stepResponse, 3, 2, 0, 0, 0, 2},                                 // a read
	{stepSend, 0, 4, 7, stepResponse, 4, 2, 0, 0},                                       // an atomic
	{stepSend, 3, 0, 7},                                                                 // a datagram
	// An XRC target: a send, a send of two packets, a write, a receive that the peer has filled, after a
	// claim and without one.
	{stepRequest, 0, 3 | ring.FlagXRC, xrcTarget, 0, 0, 4},
	{stepRequest, 0, 1 | ring.FlagXRC, xrcTarget, 0, 0, 4, 250, 0, 0, 0, 0, 0, stepRequest, 0, 2 | ring.FlagXRC, xrcTarget, 0, 0, 4, 134},
	{stepRequest, 1, 3 | ring.FlagXRC, xrcTarget, 0, 0, 2},
	{stepOther, 0, 0, 6, 1, stepRequest, 14, 3 | ring.FlagXRC, xrcTarget, 0, 0, 0, 130},
	{stepRequest, 14, 3 | ring.FlagXRC, xrcTarget, 0, 0, 0, 130},
	{15, stepSend, 0, 8, 0, stepSend, 0, 8, 0, stepResponse, 1, 2, 0, 0},
}

// FuzzSiege executes scripts of hostile peers.
func FuzzSiege(f *testing.F) {
	for _, b := range siegeSeeds {
		f.Add(b)
	}
	s := newSiege(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		s.run(t, b[:min(len(b), 1<<10)])
	})
}

// TestSiege executes random scripts, the same ones in each run: random bytes, and changed seeds.
func TestSiege(t *testing.T) {
	t.Run("private", func(t *testing.T) { newSiege(t).storm(t, testenv.Rounds(2000, 20_000)) })
	t.Run("shared", func(t *testing.T) { newSharedSiege(t).storm(t, testenv.Rounds(500, 5000)) })
}

func (s *siege) storm(t *testing.T, scripts int) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range scripts {
		b := randomScript(rng)
		if i%4 != 0 {
			b = changedSeeds(rng)
		}
		s.run(t, b)
		if t.Failed() {
			t.Fatalf("script %#v", b)
		}
	}
}

// randomScript returns random bytes, a third of them 0.
func randomScript(rng *rand.Rand) []byte {
	b := make([]byte, rng.IntN(400))
	for i := range b {
		if rng.IntN(3) != 0 {
			b[i] = byte(rng.Uint32())
		}
	}
	return b
}

// changedSeeds returns up to three seeds, with one or two changed bytes.
func changedSeeds(rng *rand.Rand) (b []byte) {
	for range 1 + rng.IntN(3) {
		b = append(b, siegeSeeds[1+rng.IntN(len(siegeSeeds)-1)]...)
	}
	for range 1 + rng.IntN(2) {
		b[rng.IntN(len(b))] = byte(rng.IntN(16))
	}
	return b
}
