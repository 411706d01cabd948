package softhca

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// openUndriven opens a loop device without an engine: it does work only when the test drives it.
func openUndriven(t testing.TB) *hca {
	t.Helper()
	h, err := open(Config{Fabric: FabricLoop}, &uarPool{limit: deviceUARs})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	h.closing.Store(true)
	wake(h.wakeFD)
	<-h.engineDone
	h.closing.Store(false)
	return h
}

// driveUntilIdle drives a device without an engine until it has no more work.
func driveUntilIdle(h *hca) {
	h.call(attnRequest | attnResponse)
	for h.ctl.attention.Load()&attnWork != 0 {
		h.Drive()
	}
}

// hostilePeer is the remote side of both links between a device and a peer that may write anything to
// the memory that they share.
type hostilePeer struct {
	h     *hca
	gid   verbs.GID
	table table.Table // read by the device

	in              *inLink       // link from the peer: the device's side
	requests        ring.Producer // the peer's side
	deviceResponses ring.Consumer

	out            *outLink      // link to the peer: the device's side
	deviceRequests ring.Consumer // the peer's side
	responses      ring.Producer

	toDevice, toPeer linkMem
	ctl              *control // the peer's
}

// newHostilePeer connects a peer in both directions. Its table is empty.
func newHostilePeer(t testing.TB, h *hca, number byte) *hostilePeer {
	t.Helper()
	p := &hostilePeer{h: h, gid: h.gid}
	p.gid[15] ^= number
	alloc := func(n int) unsafe.Pointer {
		b, err := offheap.Alloc(n)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Free()) })
		return unsafe.Pointer(unsafe.SliceData(b.Bytes()))
	}
	p.table = table.Table{Base: alloc(table.Len)}
	p.table.Format()
	p.toDevice, p.toPeer = linkMem{alloc(linkLen)}, linkMem{alloc(linkLen)}
	p.ctl = (*control)(alloc(pageLen))
	p.attach()
	t.Cleanup(p.detach)
	return p
}

// attach creates new links, with empty rings.
func (p *hostilePeer) attach() {
	h := p.h
	for _, m := range []linkMem{p.toDevice, p.toPeer} {
		for _, at := range []uintptr{linkReq, linkResp} {
			*(*[ring.ControlLen]byte)(unsafe.Add(m.base, at)) = [ring.ControlLen]byte{}
		}
	}
	p.in = &inLink{hca: h, gid: table.GIDWords(p.gid), ctl: p.ctl, wakeFD: h.wakeFD, mem: p.toDevice,
		peerStays: func() bool { return false }, closeFunc: func() error { return nil }}
	p.in.hangUp = func() { h.dropInbound(p.in) } // as after the hang-up of the peer
	p.in.req, p.in.resp = p.toDevice.consumer(linkReq), p.toDevice.producer(linkResp)
	p.requests, p.deviceResponses = p.toDevice.producer(linkReq), p.toDevice.consumer(linkResp)
	p.in.state.Store(linkUp)

	p.out = &outLink{hca: h, gid: p.gid, table: p.table, arena: unsafe.Pointer(p.ctl), arenaLen: pageLen,
		ctl: p.ctl, wakeFD: h.wakeFD, mem: p.toPeer, closeFunc: func() error { return nil }}
	p.out.req, p.out.resp = p.toPeer.producer(linkReq), p.toPeer.consumer(linkResp)
	p.deviceRequests, p.responses = p.toPeer.consumer(linkReq), p.toPeer.producer(linkResp)
	p.out.state.Store(linkUp)

	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	h.setInbound(append(slices.Clone(*h.inbound.Load()), p.in))
	h.setOutbound(append(slices.Clone(*h.outbound.Load()), p.out))
	h.links = append(h.links, p.out)
}

// detach removes the links from the device, whose QPs no longer use them.
func (p *hostilePeer) detach() {
	h := p.h
	h.dials.Wait() // rejected links are removed in the background
	h.linkMu.Lock()
	defer h.linkMu.Unlock()
	h.setInbound(slices.DeleteFunc(slices.Clone(*h.inbound.Load()), func(l *inLink) bool { return l == p.in }))
	h.setOutbound(slices.DeleteFunc(slices.Clone(*h.outbound.Load()), func(l *outLink) bool { return l == p.out }))
	h.links = slices.DeleteFunc(h.links, func(l *outLink) bool { return l == p.out })
}

// accept sets the peer's table: its QP qpn is connected to the device's QP dest, and key is that of
// memory that the device does not map, at any address and of any length.
func (p *hostilePeer) accept(qpn, dest, pdn, key uint32) {
	e := p.table.QP(qpn)
	e.QPN.Store(qpn)
	e.DestQPN.Store(dest)
	e.SetDestGID(p.h.gid)
	e.Access.Store(uint32(allRemote))
	e.PDN.Store(pdn)
	e.State.Store(uint32(verbs.QPStateRTS))
	m := p.table.MR(key)
	m.Access.Store(uint32(allRemote))
	m.PDN.Store(pdn)
	m.Kind.Store(table.Private)
	m.Len.Store(1 << 40)
	m.Key.Store(key)
}

const allRemote = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// request puts a packet with the given payload into the request ring. False if the ring is full.
func (p *hostilePeer) request(pkt ring.Packet, payload []byte) bool {
	return put(&p.requests, pkt, payload)
}

// respond puts a packet into the response ring.
func (p *hostilePeer) respond(pkt ring.Packet, payload []byte) bool {
	return put(&p.responses, pkt, payload)
}

func put(r *ring.Producer, pkt ring.Packet, payload []byte) bool {
	to := r.Reserve(len(payload))
	if to == nil {
		return false
	}
	pkt.Length, pkt.Payload = to.Length, to.Payload
	*to = pkt
	copy(unsafe.Slice((*byte)(to.Body()), len(payload)), payload)
	r.Publish(to)
	return true
}

// drain consumes all packets that the device has sent to the peer, and calls f with each request and
// response.
func (p *hostilePeer) drain(f func(pkt *ring.Packet)) {
	for _, c := range []*ring.Consumer{&p.deviceRequests, &p.deviceResponses} {
		var pkt ring.Packet
		for _, ok, _ := c.Next(&pkt); ok; _, ok, _ = c.Next(&pkt) {
			f(&pkt)
			c.Release()
		}
	}
}
