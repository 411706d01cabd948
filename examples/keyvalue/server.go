package main

import (
	"context"
	"encoding/binary"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucprpc"
)

// tableName is the name under which the server publishes the memory.
const tableName = "table"

// methodSet writes a value. The request is the length of the key (u16), the key and the value.
var methodSet = ucprpc.Method{Name: "set", Idempotent: true}

// table is memory that only the handler of methodSet writes.
type table []byte

// newServer serves a table of slots*slotLen bytes, which clients may read.
func newServer(ctx context.Context, c *ucp.Context, addr string, mem *ucp.Mem) (*ucprpc.Server, error) {
	var cfg ucprpc.ServerConfig
	t := table(mem.Bytes())
	cfg.Handlers.Handle(methodSet, ucprpc.HandlerConfig{Inline: true}, func(c *ucprpc.Call) error { return t.set(c.Data) })
	s, err := ucprpc.Listen(ctx, c, "tcp", addr, cfg)
	if err != nil {
		return nil, err
	}
	return s, s.Publish(tableName, mem)
}

// set executes a request, which is untrusted.
func (t table) set(request []byte) error {
	n := len(request) // length of the key; too long if the request does not contain it
	if n >= 2 {
		n = int(binary.LittleEndian.Uint16(request))
	}
	if n > len(request)-2 || !fits(string(request[2:2+n]), string(request[2+n:])) {
		return errTooLong
	}
	key, value := string(request[2:2+n]), string(request[2+n:])
	for i := range uint64(slots) {
		at := (home(key, slots) + i) % slots * slotLen
		if found, _, err := readSlot(t[at : at+slotLen]); err == nil && (found == "" || found == key) {
			writeSlot(t[at:at+slotLen], key, value)
			return nil
		}
	}
	return errFull
}
