package averbslayer

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/verbslayer"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// open opens a connection over the software HCA and connects it to itself.
func open(t *testing.T, queues mlx5.Config, tuning rc.Config) *Conn {
	t.Helper()
	list := func(fabric string) ([]*verbs.Device, error) {
		d, err := softhca.NewDevice(softhca.Config{Fabric: softhca.Fabric(fabric), Queues: queues})
		return []*verbs.Device{d}, err
	}
	l := New(verbslayer.New(func(string) rc.Config { return tuning }, list))
	opened, err := l.Open(layer.Config{Transport: "rc_mlx5", Fabric: string(softhca.FabricLoop), MemLen: 1 << 14,
		Context: t.Context(), Loopback: true})
	require.NoError(t, err)
	c := opened.(*Conn)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	address, err := c.Address()
	require.NoError(t, err)
	require.NoError(t, c.Connect(address))
	return c
}

// TestOp_MovesData covers the lengths of each form of work request: one basic block, several, and from
// registered memory; with and without BlueFlame; with more operations than the ring has entries.
func TestOp_MovesData(t *testing.T) {
	for name, queues := range map[string]mlx5.Config{"blueflame": {}, "doorbells": {ShutUpBF: true}} {
		t.Run(name, func(t *testing.T) {
			c := open(t, queues, rc.Config{TxDepth: 16, Moderation: 4})
			for _, n := range []int{1, 8, 28, 29, 64, 98, 128, 129, 1 << 14} {
				for _, kind := range []layer.Kind{layer.Put, layer.Get} {
					from, to := c.Local(), c.Memory()
					if kind == layer.Get {
						from, to = to, from
					}
					op, err := c.Op(layer.Spec{Kind: kind, Size: n, Window: 50})
					require.NoError(t, err)
					for i := range 120 {
						from[0], from[n-1], to[n-1] = byte(i), byte(i), ^byte(i)
						require.NoError(t, op.Post())
						if i%7 == 0 {
							require.NoError(t, op.Flush())
							require.True(t, bytes.Equal(from[:n], to[:n]), "%v of %d bytes", kind, n)
						}
					}
					require.NoError(t, op.Flush())
					assert.Zero(t, c.Outstanding())
				}
			}
		})
	}
}

// TestOp_RemoteError: a flush returns the error of a write that the target rejects.
func TestOp_RemoteError(t *testing.T) {
	c := open(t, mlx5.Config{}, rc.Config{})
	made, err := c.Op(layer.Spec{Kind: layer.Put, Size: 8, Window: 1})
	require.NoError(t, err)
	made.(*op).wr.RKey ^= 1 << 31
	require.NoError(t, made.Post())
	assert.ErrorContains(t, made.Flush(), "work request 1 of qp")
}

func TestOp_Refuses(t *testing.T) {
	c := open(t, mlx5.Config{}, rc.Config{})
	for _, kind := range []layer.Kind{layer.AM, layer.AMPing, layer.Tag} {
		_, err := c.Op(layer.Spec{Kind: kind, Size: 8, Window: 1})
		assert.ErrorIs(t, err, layer.ErrNoSuchOp, kind)
		_, err = c.Part(layer.Spec{Kind: kind, Size: 8, Window: 1})
		assert.ErrorIs(t, err, layer.ErrNoSuchOp, kind)
	}
}

// other is a provider without mlx5 queues.
type other struct{ verbs.Provider }

type otherQP struct{ verbs.QPProvider }

func (o other) CreateQP(qp *verbs.QP, a verbs.QPInitAttr) (verbs.QPProvider, verbs.QPCap, error) {
	p, limits, err := o.Provider.CreateQP(qp, a)
	return otherQP{p}, limits, err
}

func TestOpen_OtherDevice(t *testing.T) {
	soft, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
	require.NoError(t, err)
	dev := verbs.NewDevice("other0", func() (verbs.Provider, error) {
		ctx, err := soft.Open()
		if err != nil {
			return nil, err
		}
		return other{ctx.Provider()}, nil
	})
	list := func(string) ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }
	l := New(verbslayer.New(func(string) rc.Config { return rc.Config{} }, list))
	_, err = l.Open(layer.Config{Transport: "rc", Fabric: "loop", MemLen: 64, Context: t.Context()})
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "no mlx5 queues")
}
