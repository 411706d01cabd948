package main

import (
	"context"
	"encoding/binary"
	"log"
	"slices"

	"github.com/gucx/gucx/ucp"
)

// maxRequest is the maximum length of a request in bytes. A client can send an RTS with
// any length.
const maxRequest = 16 << 20

// server has a goroutine for each request, so it uses a SharedWorker.
type server struct {
	ctx context.Context
	w   *ucp.SharedWorker
}

// listen sets the handler before a client can dial.
func (s *server) listen() (addr string) {
	s.w.Do(func(w *ucp.Worker) {
		w.OnActive(idRequest, s.handle)
		addr = must(w.Listen(s.ctx, "tcp", "127.0.0.1:0", ucp.ListenConfig{})).Addr().String()
	})
	return addr
}

// handle runs inside Progress and must not block. It keeps the message, and a goroutine does
// the rest.
func (s *server) handle(m *ucp.ActiveMessage) {
	if m.Length > maxRequest || len(m.Header) != 8 {
		log.Printf("a request of %d bytes with a header of %d is dropped", m.Length, len(m.Header))
		return
	}
	kept := m.Keep()
	go func() {
		if err := s.reply(kept); err != nil {
			log.Print(err) // the client has disconnected or died; it can dial again
		}
	}()
}

// reply receives the data and sends the reply.
func (s *server) reply(m *ucp.ActiveMessage) error {
	defer s.w.Do(func(*ucp.Worker) { m.Release() })
	data := make([]byte, m.Length)
	err := s.w.Run(s.ctx, func() (*ucp.Request, error) { return m.Recv(data, nil) })
	if err != nil {
		return err
	}
	sum := uint64(0)
	for _, b := range data {
		sum += uint64(b)
	}
	reply := binary.LittleEndian.AppendUint64(slices.Clone(m.Header), sum)
	return s.w.Run(s.ctx, func() (*ucp.Request, error) {
		return m.From.SendActive(idReply, reply, nil, nil)
	})
}
