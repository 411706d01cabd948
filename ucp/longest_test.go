package ucp_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// TestLongest: operations and messages of 2 GiB and more, which no transport moves in one operation.
func TestLongest(t *testing.T) {
	testenv.SkipShort(t, "moves gigabytes")
	sets, lens := []tlsets.Set{tlsets.Real("sm", "sm")}, []int{1 << 31} // sm is the fastest by far
	if testenv.Sweep() {
		sets = append(sets, tlsets.Real("rc", `\rc`), tlsets.Real("rc_mlx5", "rc_mlx5"), tlsets.Real("xrc", `\xrc`), tlsets.Real("xrc_mlx5", "xrc_mlx5"), tlsets.Real("tcp", "tcp"))
		lens = []int{1<<31 - 1, 1 << 31, 1<<31 + 1, 4<<30 + 5}
	}
	most := slices.Max(lens)
	src, dst := testenv.RepeatedMemory(t, most), testenv.RepeatedMemory(t, most)
	for _, set := range sets {
		for _, n := range lens {
			t.Run(fmt.Sprintf("%s/2GiB%+d", set.Name, n-1<<31), func(t *testing.T) {
				x := newLongest(t, ucppair.New(t, set, ucp.Config{}).Both(), src[:n], dst[:n])
				t.Run("tag", x.tag)
				if testenv.Sweep() {
					t.Run("put", x.put)
					t.Run("get", x.get)
				}
			})
		}
	}
}

// longest transfers all bytes of from to to. Their memory repeats a few bytes.
type longest struct {
	p        *ucppair.Pair
	from, to []byte
	fromMem  *ucp.Mem  // of end a
	key      *ucp.RKey // of to, for end a
}

func newLongest(t *testing.T, p *ucppair.Pair, from, to []byte) *longest {
	x := &longest{p: p, from: from, to: to}
	var err error
	x.fromMem, err = p.A.Ctx.MemMap(from)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.fromMem.Close()) })
	mem, err := p.B.Ctx.MemMap(to)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	x.key, err = p.A.EP.Unpack(mem.Pack())
	require.NoError(t, err)
	t.Cleanup(x.key.Close)
	return x
}

// complete waits for the requests and compares the memory.
func (x *longest) complete(t *testing.T, reqs ...*ucp.Request) {
	for _, r := range reqs {
		if r != nil {
			x.p.Until(r.Done)
			_, err := r.Test()
			require.NoError(t, err)
		}
	}
	assert.True(t, bytes.Equal(x.from[:testenv.RepeatLen], x.to[:testenv.RepeatLen]), "wrong bytes")
}

func (x *longest) prepare(seed byte) {
	for i := range x.from[:testenv.RepeatLen] {
		x.from[i] = byte(i) ^ byte(i>>9) ^ seed
	}
	clear(x.to[:testenv.RepeatLen])
}

func (x *longest) tag(t *testing.T) {
	x.prepare(1)
	recv, err := x.p.B.W.TagRecv(x.to, 1, ^uint64(0), nil, nil)
	require.NoError(t, err)
	send, err := x.p.A.EP.TagSend(1, x.from, nil)
	require.NoError(t, err)
	x.complete(t, send, recv)
}

func (x *longest) put(t *testing.T) {
	x.prepare(2)
	put, err := x.p.A.EP.Put(x.from, x.key.Addr(), x.key, &ucp.OpParams{Mem: x.fromMem})
	require.NoError(t, err)
	flush, err := x.p.A.EP.Flush()
	require.NoError(t, err)
	x.complete(t, put, flush)
}

// get reads the bytes that put has written into the other memory.
func (x *longest) get(t *testing.T) {
	x.prepare(3)
	x.from, x.to = x.to, x.from
	defer func() { x.from, x.to = x.to, x.from }()
	copy(x.from, x.to[:testenv.RepeatLen])
	clear(x.to[:testenv.RepeatLen])
	get, err := x.p.A.EP.Get(x.to, x.key.Addr(), x.key, &ucp.OpParams{Mem: x.fromMem})
	require.NoError(t, err)
	x.complete(t, get)
}
