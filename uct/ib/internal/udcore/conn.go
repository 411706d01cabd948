package udcore

import (
	"container/heap"
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// conn is one connection to a peer iface.
type conn struct {
	proto   dgram.Conn
	peer    *peer
	id      uint32 // our id: the destination in packets of the peer
	number  uint32 // number of the connection between the two ifaces
	ep      *EP    // nil if only the peer uses the connection
	gone    bool   // a FIN was received
	head    *packet
	tail    *packet
	unsent  *packet // first packet to send or retransmit; nil if none
	flushes flushQueue

	ackListed  bool // in it.acks
	urgent     bool // in it.urgent
	waiting    bool // in it.stalled
	nextAck    *conn
	nextUrgent *conn
	nextTx     *conn
	base.Slot
}

// peerKey identifies an iface.
type peerKey struct {
	dev ibport.DeviceAddr
	qpn uint32
}

// peer is an iface with which this iface has connections.
type peer struct {
	key   peerKey
	ah    *verbs.AH
	conns map[uint32]*conn // by number
	free  freeNumbers
}

// freeNumbers allocates the smallest number of a connection that no EP has.
type freeNumbers struct {
	heap numberHeap // freed numbers below next
	next uint32     // no EP has this number or a higher one
}

// alloc allocates the smallest free number for an EP.
func (f *freeNumbers) alloc() uint32 {
	if len(f.heap) > 0 {
		return heap.Pop(&f.heap).(uint32)
	}
	f.next++
	return f.next - 1
}

// put frees the number of an EP.
func (f *freeNumbers) put(number uint32) { heap.Push(&f.heap, number) }

// numberHeap implements heap.Interface.
type numberHeap []uint32

func (h numberHeap) Len() int           { return len(h) }
func (h numberHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h numberHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *numberHeap) Push(number any)   { *h = append(*h, number.(uint32)) }

func (h *numberHeap) Pop() any {
	last := len(*h) - 1
	number := (*h)[last]
	*h = (*h)[:last]
	return number
}

// detachEP removes the EP from the connection, if there is one.
func (c *conn) detachEP() {
	if c.ep != nil {
		c.ep = nil
		c.peer.free.put(c.number)
	}
}

// findPeer returns the peer at an address that was checked, and makes it if necessary.
func (it *Iface) findPeer(key peerKey) (*peer, error) {
	if p := it.peers[key]; p != nil {
		return p, nil
	}
	ah, err := it.md.PD().CreateAH(it.port.AH(key.dev))
	if err != nil {
		return nil, it.opError("create ah", err)
	}
	p := &peer{key: key, ah: ah, conns: map[uint32]*conn{}}
	it.peers[key] = p
	return p, nil
}

// dropPeer removes a peer without connections.
func (it *Iface) dropPeer(p *peer) {
	if len(p.conns) == 0 && it.peers[p.key] == p {
		delete(it.peers, p.key)
		_ = p.ah.Close() // cannot fail: nothing uses it any more
	}
}

// closePeers closes the remaining address handles.
func (it *Iface) closePeers() (errs error) {
	for key, p := range it.peers {
		delete(it.peers, key)
		errs = errors.Join(errs, p.ah.Close())
	}
	return errs
}

// newConn makes the connection with this number. ErrNoMemory at the limit. Its id must differ from
// ids of other ifaces: if a peer has not detected the end of an earlier iface with the same QPN, it
// would take a request with the same id for a retransmission, and continue with the PSNs of the old
// connection. So each iface changes all its ids by its own random bits.
func (it *Iface) newConn(p *peer, number uint32) (*conn, error) {
	if it.conns.Len() >= it.cfg.MaxConns {
		return nil, fmt.Errorf("%w: %d connections, as many as MAX_CONNS allows", uct.ErrNoMemory, it.conns.Len())
	}
	c := &conn{peer: p, number: number}
	c.proto.Init(&it.params)
	if c.id = uint32(it.conns.Add(c)) ^ it.salt; c.id == 0 { // 0 is invalid: use the next id of the same index
		it.conns.Remove(uint64(it.salt))
		c.id = uint32(it.conns.Add(c)) ^ it.salt
	}
	p.conns[number] = c
	return c, nil
}

// drop closes a connection and completes its operations with st.
func (it *Iface) drop(c *conn, st ucs.Status) {
	it.conns.Remove(uint64(c.id ^ it.salt))
	if c.peer.conns[c.number] == c {
		delete(c.peer.conns, c.number)
	}
	it.active.Remove(c)
	head := c.head
	c.head, c.tail, c.unsent = nil, nil, nil
	c.proto.Init(&it.params) // idle: other lists that contain it skip it
	for p := head; p != nil; {
		next := p.next
		it.release(p, st)
		p = next
	}
	it.flushes.completeAll(&c.flushes, st)
	it.dropPeer(c.peer)
}

// fail closes a connection whose peer is lost, and reports the failure to its EP.
func (it *Iface) fail(c *conn, st ucs.Status, cause error) {
	e := c.ep
	c.detachEP()
	it.backlog = true // pending requests must fail, or can use the packets of c
	if e != nil {
		e.err = it.opError(fmt.Sprintf("connection %#x", c.id), ucs.EPFailed(ucs.Because(st, cause)))
		it.arb.Fail(&e.pending)
	}
	it.drop(c, st)
	if e != nil && !e.closed && it.onError != nil { // a completion may have closed it
		it.onError(e, e.err)
	}
}

// Bits of a connection's id, and of the index in it. An id is small, because each packet contains
// one. It need not be unpredictable, because packets are accepted only from the address and QP of
// the connection's peer (peer.sent), which the device writes.
const (
	idBits    = 24
	placeBits = 18
	maxConns  = 1<<placeBits - 1
)
