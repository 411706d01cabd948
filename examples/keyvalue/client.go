package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucp"
)

// client is a connection to a server. It is one goroutine's.
type client struct {
	w     *ucp.Worker
	ep    *ucp.EP
	table *ucp.RKey

	alive context.Context // ends when the server has gone, for that reason
	gone  context.CancelCauseFunc
	slot  []byte // where reads go to
}

// dialServer connects to the server at addr.
func dialServer(ctx context.Context, c *ucp.Context, addr string) (*client, error) {
	w, err := c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return nil, err
	}
	cl := &client{w: w, slot: make([]byte, slotLen)}
	cl.alive, cl.gone = context.WithCancelCause(context.Background())
	cfg := ucp.EPConfig{OnError: func(_ *ucp.EP, err error) { cl.gone(err) }}
	peer, err := w.Dial(ctx, "tcp", addr, ucp.DialConfig{EP: cfg})
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("%w; is a server running there?", err)
	}
	cl.ep, cl.table = peer.EP, peer.Keys[tableName]
	if cl.table == nil || cl.table.Len() < slotLen {
		w.Close()
		return nil, errors.New("who listens there publishes no table")
	}
	return cl, nil
}

func (c *client) close() {
	c.table.Close()
	c.w.Close()
}

// get reads the value of a key from the memory of the server, which takes no part in it.
func (c *client) get(ctx context.Context, key string) (string, error) {
	slots := c.table.Len() / slotLen
	first := home(key, slots)
	for i := range slots {
		there, value, err := c.read(ctx, (first+i)%slots)
		switch {
		case err != nil:
			return "", err
		case there == key:
			return value, nil
		case there == "":
			return "", errNoKey
		}
	}
	return "", errNoKey
}

// read reads a slot, again if the server was writing it.
func (c *client) read(ctx context.Context, i uint64) (key, value string, err error) {
	for {
		if err := c.ep.GetWait(ctx, c.slot, c.table.Addr()+i*slotLen, c.table, nil); err != nil {
			return "", "", err
		}
		if key, value, err = readSlot(c.slot); err == nil {
			return key, value, nil
		}
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
	}
}

// set has the server write a value. When it returns, every client reads it.
func (c *client) set(ctx context.Context, key, value string) error {
	if !fits(key, value) {
		return errTooLong
	}
	request := binary.LittleEndian.AppendUint16(nil, uint16(len(key)))
	request = append(append(request, key...), value...)
	if err := c.ep.TagSendWait(ctx, tagSet, request, nil); err != nil {
		return err
	}
	reply, err := c.reply(ctx)
	if err == nil && reply != "" {
		err = errors.New(reply)
	}
	return err
}

// reply waits for a message, which could come from any peer: that the server has gone does
// not end the receive, so the context does.
func (c *client) reply(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.alive, cancel)()

	var buf [maxContent]byte
	info, err := c.w.TagRecvWait(ctx, buf[:], tagReply, allBits, nil)
	if c.alive.Err() != nil && err != nil {
		return "", context.Cause(c.alive)
	}
	if err != nil {
		return "", err
	}
	return string(buf[:info.Length]), nil
}
