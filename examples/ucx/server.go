package main

import (
	"context"
	"encoding/binary"
	"errors"
	"log"
	"net/netip"

	"github.com/gucx/gucx/ucp/ucxpeer"
	"github.com/gucx/gucx/ucs"
)

// longestRequest is the maximum length of a request in bytes. It limits the memory for a request.
const longestRequest = 16 << 20

// serve serves clients at an address until ctx is done. It calls ready with the address at which it listens.
func serve(ctx context.Context, address string, ready func(addr string)) error {
	w, err := ucxpeer.NewWorker(ucxpeer.Config{})
	if err != nil {
		return err
	}
	defer w.Close()
	w.OnError(func(_ *ucxpeer.EP, err error) {
		if !errors.Is(err, ucs.ErrPeerClosed) {
			log.Print(err)
		}
	})
	w.OnActive(idRequest, reply)
	l, err := w.Listen(ctx, "tcp", address, ucxpeer.ListenConfig{
		OnConnect: func(*ucxpeer.EP) {}, // each request has the endpoint for its reply
		Accept:    func(from netip.AddrPort) bool { return from.Addr().IsLoopback() },
	})
	if err != nil {
		return err
	}
	defer l.Close()
	ready(l.Addr().String())
	if err = w.Serve(ctx); errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// reply replies to a request. The data of a large one remains at the client until there is a buffer for it.
func reply(m *ucxpeer.ActiveMessage) {
	if m.From == nil || len(m.Header) != 8 || m.Length > longestRequest {
		m.Reject()
		return
	}
	reply := append(make([]byte, 0, 16), m.Header...) // the message is valid until answer returns
	if m.Data != nil || m.Length == 0 {
		send(m.From, reply, m.Data)
		return
	}
	buf, from := make([]byte, m.Length), m.From
	r, err := m.Recv(buf, &ucxpeer.OpParams{OnDone: func(err error) {
		if err == nil {
			send(from, reply, buf)
		}
	}})
	if err == nil && r == nil {
		send(from, reply, buf)
	}
}

func send(to *ucxpeer.EP, reply, data []byte) {
	sum := uint64(0)
	for _, b := range data {
		sum += uint64(b)
	}
	if _, err := to.SendActive(idReply, binary.LittleEndian.AppendUint64(reply, sum), nil, nil); err != nil {
		log.Print(err)
	}
}
