package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucprpc"
)

// client calls a server, and connects again if the server was restarted. Any goroutine may use it.
type client struct {
	calls *ucprpc.Client
	table *ucprpc.Memory
}

// dialServer connects to the server at addr.
func dialServer(ctx context.Context, c *ucp.Context, addr string) (*client, error) {
	calls, err := ucprpc.Dial(ctx, c, "tcp", addr, ucprpc.ClientConfig{})
	if err != nil {
		return nil, fmt.Errorf("%w; is a server running there?", err)
	}
	table, err := calls.Open(ctx, tableName)
	if err != nil {
		calls.Close()
		return nil, err
	}
	return &client{calls, table}, nil
}

// get reads the value of a key from the memory of the server. The server executes no code for that.
func (c *client) get(ctx context.Context, key string) (string, error) {
	slot, slots := make([]byte, slotLen), c.table.Len()/slotLen
	for i := uint64(0); i < slots; i++ {
		if err := c.table.Get(ctx, slot, (home(key, slots)+i)%slots*slotLen); err != nil {
			return "", err
		}
		found, value, err := readSlot(slot)
		switch {
		case err != nil:
			i-- // the server was writing it: read it again
		case found == key:
			return value, nil
		case found == "":
			return "", errNoKey
		}
	}
	return "", errNoKey
}

// set requests the server to write a value. When it returns, every client reads the new value.
func (c *client) set(ctx context.Context, key, value string) error {
	if !fits(key, value) {
		return errTooLong
	}
	request := binary.LittleEndian.AppendUint16(nil, uint16(len(key)))
	_, err := c.calls.Call(ctx, methodSet, append(append(request, key...), value...), nil)
	return err
}
