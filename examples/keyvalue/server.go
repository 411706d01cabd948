package main

import (
	"context"
	"encoding/binary"
	"errors"
	"log"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Tags. A request is the length of the key (u16), the key and the value; the reply to it an
// error in words, or empty.
const (
	tagSet   = 1
	tagReply = 2
	allBits  = ^uint64(0)
)

// maxRequest is the longest request in bytes.
const maxRequest = 2 + maxContent

// tableName is what the memory is published as.
const tableName = "table"

// server holds the table. It belongs to the goroutine that calls serve.
type server struct {
	w    *ucp.Worker
	mem  *ucp.Mem
	addr string
}

// newServer makes a table that clients may read, and listens at addr.
func newServer(ctx context.Context, c *ucp.Context, addr string) (*server, error) {
	mem, err := c.MemAllocAccess(slots*slotLen, uct.AccessRemoteRead)
	if err != nil {
		return nil, err
	}
	s := &server{mem: mem}
	if s.w, err = c.NewWorker(ucp.WorkerConfig{}); err != nil {
		s.close()
		return nil, err
	}
	l, err := s.w.Listen(ctx, "tcp", addr, ucp.ListenConfig{Keys: map[string]*ucp.Mem{tableName: mem}})
	if err != nil {
		s.close()
		return nil, err
	}
	s.addr = l.Addr().String()
	return s, nil
}

// close closes the worker first: clients that still read then see that the server has left.
func (s *server) close() {
	if s.w != nil {
		s.w.Close()
	}
	s.mem.Close()
}

// serve answers requests until ctx ends, and returns its error. What it waits in makes
// progress too, so that clients can connect, and those that no transport lets read by
// themselves have their reads done.
func (s *server) serve(ctx context.Context) error {
	request := make([]byte, maxRequest)
	for {
		info, err := s.w.TagRecvWait(ctx, request, tagSet, allBits, nil)
		switch {
		case ctx.Err() != nil || errors.Is(err, ucs.ErrClosed):
			return err
		case errors.Is(err, ucs.ErrTruncated):
			s.reply(info.From, errTooLong)
		case err != nil:
			log.Print(err) // its client has gone; the others go on
		default:
			s.reply(info.From, s.set(request[:info.Length]))
		}
	}
}

// reply does not wait: a client that does not read holds up nobody else.
func (s *server) reply(to *ucp.EP, failure error) {
	var text []byte
	if failure != nil {
		text = []byte(failure.Error())
	}
	r, err := to.TagSend(tagReply, text, nil)
	if err != nil {
		log.Print(err)
	}
	r.Release() // text is gucx's until it has gone
}

// set executes a request, which may be anything.
func (s *server) set(request []byte) error {
	if len(request) < 2 {
		return errTooLong
	}
	n, content := int(binary.LittleEndian.Uint16(request)), request[2:]
	if n > len(content) || !fits(string(content[:n]), string(content[n:])) {
		return errTooLong
	}
	key, value := string(content[:n]), string(content[n:])
	first := home(key, slots)
	for i := range uint64(slots) {
		at := (first + i) % slots * slotLen
		slot := s.mem.Bytes()[at : at+slotLen]
		if there, _, err := readSlot(slot); err == nil && (there == "" || there == key) {
			writeSlot(slot, key, value)
			return nil
		}
	}
	return errFull
}
