package ucttest

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/gucx/gucx/uct"
)

// request asks a peer to do something.
type request struct {
	Op     string // one of the op constants
	Device []byte // opConnect: addresses of the asker
	Iface  []byte
	EP     []byte
	Key    []byte // opConnect: memory of the asker
	Raddr  uint64
	Off    int    // opRead, opWrite: range of the peer's memory
	Len    int    // opRead: bytes; opSend: bytes of each message
	Data   []byte // opWrite
	Count  int    // opSend: messages
}

// reply answers a request.
type reply struct {
	Err      string
	Device   []byte // opHello: addresses and memory of the peer
	Iface    []byte
	EP       []byte
	Key      []byte
	Raddr    uint64
	Data     []byte // opRead
	Received int    // opReceived: messages that arrived whole and in order
}

const (
	opHello    = "hello"
	opConnect  = "connect"
	opRead     = "read"
	opWrite    = "write"
	opSend     = "send"
	opReceived = "received"
)

// peerAMID is the active-message id of messages to and from a peer: message i has
// the pattern of seed i.
const peerAMID = 7

// server is the peer's half.
type server struct {
	t    *recorder
	pair *Pair
	side *Side
	link *Link
	in   *inbox
}

// ServePeer is a peer: it opens the transport and serves requests until they end.
// It returns after everything is closed.
func ServePeer(h Harness, requests io.Reader, replies io.Writer) error {
	t := &recorder{}
	s := &server{t: t, pair: &Pair{t: t, h: &h, opts: Options{TxDepth: tinyTxDepth, RxDepth: tinyRxDepth}}}
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
		return fmt.Errorf("%s", strings.Join(s.t.verdict.Log, "; "))
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
			if err := enc.Encode(s.answer(&r)); err != nil {
				return
			}
		default:
			s.pair.round()
		}
	}
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
	m.EP = ep.(uct.EPConnector).EPAddr(nil)
	return m, nil
}

func (s *server) connect(r *request) error {
	if s.link != nil {
		return s.link.EP.(uct.EPConnector).Connect(r.Device, r.EP)
	}
	ep, err := s.side.Iface.NewEP(uct.EPParams{DeviceAddr: r.Device, IfaceAddr: r.Iface})
	if err != nil {
		return err
	}
	s.link = s.pair.link(s.t, ep, s.side, nil)
	return nil
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
