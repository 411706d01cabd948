package ucttest

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/uct"
)

// request is a command for a peer.
type request struct {
	Op     string // one of the op constants
	Device []byte // opConnect: addresses of the test's side
	Iface  []byte
	EP     []byte
	Key    []byte // opFlood: memory of the test's side
	Raddr  uint64
	Kind   string // opFlood: name of a floodKind
	Off    int    // opRead, opWrite: range of the peer's memory
	Len    int    // opRead: bytes; opSend: bytes of each message; opQueue: of each receive
	Data   []byte // opWrite
	Count  int    // opSend: messages; opQueue: receives to post
}

// reply is the peer's reply to a request.
type reply struct {
	Err      string
	Device   []byte // opHello: addresses and memory of the peer
	Iface    []byte
	EP       []byte
	Key      []byte
	Raddr    uint64
	Data     []byte // opRead; opQueued: the last message
	Received int    // opReceived, opQueued: messages that arrived
	Posted   int    // opFlooded: operations that were accepted
	Steps    int    // opFlooded: attempts to post
	Foreign  int    // opFlooded: bytes that the peer read and that only their owner may read
	Number   uint32 // opQueue: of the peer's queue
}

const (
	opHello    = "hello"
	opConnect  = "connect"
	opRead     = "read"
	opWrite    = "write"
	opSend     = "send"
	opReceived = "received"
	opFlood    = "flood"
	opFlooded  = "flooded"
	opQueue    = "queue"
	opQueued   = "queued"
)

// peerAMID is the active-message id of messages to and from a peer: message i has
// the pattern of seed i.
const peerAMID = 7

// server is the peer's side of a connection to a Peer.
type server struct {
	t    *recorder
	pair *pair
	side *side
	link *link
	in   *inbox

	asker uct.EPParams // parameters of EPs to the test's iface
	flood *flood       // nil before opFlood
	recvs *queueEnd    // nil before opQueue
}

// ServePeer is the main function of a peer: it opens the transport and serves requests until requests returns EOF.
// Then it closes all objects and returns the failures of the peer, or nil.
func ServePeer(h Harness, requests io.Reader, replies io.Writer) error {
	t := &recorder{}
	s := &server{t: t, pair: &pair{t: t, h: &h, opts: Options{TxDepth: tinyTxDepth, RxDepth: tinyRxDepth}}}
	queue := make(chan request)
	go func() {
		defer close(queue)
		dec := json.NewDecoder(requests)
		for {
			var r request
			if dec.Decode(&r) != nil {
				return
			}
			queue <- r
		}
	}()
	s.t.isolate(func() { s.serve(queue, json.NewEncoder(replies)) })
	s.t.isolate(func() { s.pair.close(s.t) })
	for range queue {
	}
	if s.t.Failed() {
		return fmt.Errorf("%s", strings.Join(s.t.result.Log, "; "))
	}
	return nil
}

func (s *server) serve(queue <-chan request, enc *json.Encoder) {
	s.side = s.pair.open(s.t, "peer", nil)
	s.in = newInbox(s.t, s.side, peerAMID)
	for {
		select {
		case r, ok := <-queue:
			if !ok {
				return
			}
			race.AcquireFromPeers() // the asker may have accessed memory of this process before, and may do so after the reply
			m := s.answer(&r)
			race.ReleaseToPeers()
			if err := enc.Encode(m); err != nil {
				return
			}
		default:
			s.turn()
		}
	}
}

// turn does one step while no request is pending: it progresses the iface, or runs a step of the flood.
func (s *server) turn() {
	if s.flood == nil {
		s.pair.round()
		return
	}
	if s.flood.ended.Load() && s.asker.IfaceAddr != nil && s.flood.open == 0 {
		s.again()
	}
	s.flood.step()
}

// again replaces the failed EP by a new one, because a peer with a revoked key can also connect again.
func (s *server) again() {
	s.pair.closeLink(s.t, s.link)
	ep, err := s.side.Iface.NewEP(s.asker)
	if err != nil {
		return
	}
	s.link = s.pair.link(s.t, ep, s.side, nil)
	s.flood.l = s.link
	s.flood.ended.Store(false)
}

func (s *server) answer(r *request) (m reply) {
	var err error
	switch r.Op {
	case opHello:
		m, err = s.hello()
	case opConnect:
		err = s.connect(r)
	case opRead:
		m.Data = append([]byte(nil), s.side.Mem.Bytes()[r.Off:r.Off+r.Len]...)
	case opWrite:
		copy(s.side.Mem.Bytes()[r.Off:], r.Data)
	case opSend:
		err = s.send(r.Count, r.Len)
	case opReceived:
		m.Received = len(s.in.msgs)
	case opFlood:
		err = s.startFlood(r)
	case opFlooded:
		m.Posted, m.Steps = int(s.flood.posted.Load()), int(s.flood.steps.Load())
		m.Foreign = countByte(s.flood.iov[0].Buf, ownByte)
	case opQueue:
		m.Number = s.queue(r.Count, r.Len)
	case opQueued:
		m.Received, m.Data = s.queued()
	default:
		err = fmt.Errorf("unknown request %q", r.Op)
	}
	if err != nil {
		m.Err = err.Error()
	}
	return m
}

func (s *server) hello() (m reply, err error) {
	m.Device, m.Iface = s.side.addresses(s.t)
	if s.side.Mem != nil {
		m.Raddr = s.side.Mem.Addr()
		if m.Key, err = s.side.Mem.PackRKey(nil); err != nil {
			return m, err
		}
	}
	if s.side.Iface.Attr().Caps.Has(uct.CapConnectIface) {
		return m, nil
	}
	ep, err := s.side.Iface.NewEP(uct.EPParams{})
	if err != nil {
		return m, err
	}
	s.link = s.pair.link(s.t, ep, s.side, nil)
	m.EP = ep.Ops().Connect.EPAddr(nil)
	return m, nil
}

func (s *server) connect(r *request) error {
	if s.link != nil {
		return s.link.EP.Ops().Connect.Connect(r.Device, r.EP)
	}
	s.asker = uct.EPParams{DeviceAddr: r.Device, IfaceAddr: r.Iface}
	ep, err := s.side.Iface.NewEP(s.asker)
	if err != nil {
		return err
	}
	s.link = s.pair.link(s.t, ep, s.side, nil)
	return nil
}

// startFlood starts a flood of the memory that the request describes.
func (s *server) startFlood(r *request) error {
	var key uct.RKey
	if u := s.side.MD.Ext().Keys; u != nil {
		var err error
		if key, err = u.UnpackRKey(r.Key); err != nil {
			return err
		}
		s.pair.keys = append(s.pair.keys, unpacked{s.side.MD, key})
	}
	for _, k := range floodKinds(s.side.Iface.Attr()) {
		if k.name == r.Kind {
			s.flood = s.pair.newFlood(s.t, &k, s.link, r.Raddr, key)
			return nil
		}
	}
	return fmt.Errorf("no operation %q", r.Kind)
}

func (s *server) send(count, n int) error {
	v := anyAM(s.side.Iface.Attr())
	for i := range count {
		if err := s.pair.push(s.t, func() error {
			return v.send(s.pair, s.link, peerAMID, pattern(i, n))
		}); err != nil {
			return err
		}
	}
	return nil
}
