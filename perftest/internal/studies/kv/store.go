package kv

import (
	"context"
	"errors"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/examples/kv/kvstore"
	"github.com/gucx/gucx/ucp"
)

// Names of stores.
const (
	storeOne        = "kv"
	storeReplicated = "kv-replicated"
	storeRedis      = "redis"
)

// Stores lists the measurable stores: examples/kv with one server, examples/kv with a backup that stores each update
// before it is acknowledged, and Redis.
func Stores() []string { return []string{storeOne, storeReplicated, storeRedis} }

// maxValue is the maximum length of a value in bytes.
const maxValue = kvstore.MaxValue

// connection is a client of a store. One goroutine uses it.
type connection interface {
	// get returns a value: in buf, if that has room for more than the value.
	get(key string, buf []byte) ([]byte, error)
	put(key string, value []byte) error
	close() error
}

// dial connects to a store.
func dial(ctx context.Context, store string, addresses []string) (connection, error) {
	if store == storeRedis {
		return dialRedis(addresses[0])
	}
	c, err := gucx.Open()
	if err != nil {
		return nil, err
	}
	cl, err := kvstore.Dial(ctx, c, kvstore.ClientConfig{Network: "unix", Addresses: addresses})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &ours{ctx: ctx, c: c, cl: cl}, nil
}

// ours is a client of examples/kv.
type ours struct {
	ctx context.Context
	c   *ucp.Context
	cl  *kvstore.Client
}

func (o *ours) get(key string, buf []byte) ([]byte, error) {
	if n := o.cl.SlotLen(); cap(buf) < n {
		buf = make([]byte, n)
	}
	return o.cl.Get(o.ctx, key, buf)
}

func (o *ours) put(key string, value []byte) error { return o.cl.Put(o.ctx, key, value) }

func (o *ours) close() error { return errors.Join(o.cl.Close(), o.c.Close()) }
