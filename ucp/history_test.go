package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
)

// histLen is the length of the memory of histories: small, so that operations overlap.
const histLen = 4096

// reference is the expected memory. Operations take effect in order, because each history has fences between them.
type reference struct{ mem [histLen]byte }

// act is one operation of a history.
type act struct {
	kind     string
	off, n   int
	seed     int
	op       uct.AtomicOp
	size     int
	a, b     uint64
	useMem   bool
	complete bool // wait for the request at once
}

func drawAct(t *rapid.T) act {
	a := act{
		kind:     rapid.SampledFrom([]string{"put", "put", "get", "post", "fetch", "cswap", "flush"}).Draw(t, "kind"),
		n:        rapid.SampledFrom([]int{0, 1, 8, 32, 33, 256, 300, 1000, 2500}).Draw(t, "n"),
		seed:     rapid.IntRange(0, 255).Draw(t, "seed"),
		op:       rapid.SampledFrom([]uct.AtomicOp{uct.AtomicAdd, uct.AtomicAnd, uct.AtomicOr, uct.AtomicXor, uct.AtomicSwap}).Draw(t, "op"),
		size:     rapid.SampledFrom([]int{4, 8}).Draw(t, "size"),
		a:        rapid.Uint64().Draw(t, "a"),
		b:        rapid.Uint64().Draw(t, "b"),
		useMem:   rapid.Bool().Draw(t, "mem"),
		complete: rapid.Bool().Draw(t, "complete"),
	}
	a.off = rapid.IntRange(0, histLen-max(a.n, 8)).Draw(t, "off")
	if a.kind == "post" || a.kind == "fetch" || a.kind == "cswap" {
		a.off -= a.off % a.size
	}
	return a
}

func (ref *reference) word(a act) uint64 {
	var v uint64
	for i := range a.size {
		v |= uint64(ref.mem[a.off+i]) << (8 * i)
	}
	return v
}

// apply executes the operation and returns the values that it reads.
func (ref *reference) apply(a act) (read []byte, old uint64) {
	switch a.kind {
	case "put":
		copy(ref.mem[a.off:], testenv.Pattern(a.n, a.seed))
	case "get":
		return append([]byte(nil), ref.mem[a.off:a.off+a.n]...), 0
	case "post", "fetch", "cswap":
		old = ref.word(a)
		op := a.op
		if a.kind == "cswap" {
			op = uct.AtomicCSwap
		}
		v := op.Apply(a.size, old, a.a, a.b)
		for i := range a.size {
			ref.mem[a.off+i] = byte(v >> (8 * i))
		}
	}
	return nil, old
}

// player executes a history on an EP.
type player struct {
	p       *ucppair.Pair
	results []func(t *rapid.T) // checks for completed operations
	reqs    []*ucp.Request
	slot    int
}

func (x *player) play(t *rapid.T, a act, ref *reference) {
	ep, key, raddr := x.p.A.EP, x.p.A.Key, x.p.B.Mem.Addr()+uint64(a.off)
	local := make([]byte, a.n)
	var params *ucp.OpParams
	if a.useMem && x.slot+a.n <= tlsets.MemLen {
		local, params = x.p.A.Mem.Bytes()[x.slot:x.slot+a.n], &ucp.OpParams{Mem: x.p.A.Mem}
		x.slot += a.n
	}
	var r *ucp.Request
	var err error
	result := new(uint64)
	if a.kind == "cswap" && a.a%2 == 0 {
		a.a = ref.word(a) // half of them exchange the value
	}
	read, old := ref.apply(a)
	switch a.kind {
	case "put":
		copy(local, testenv.Pattern(a.n, a.seed))
		r, err = ep.Put(local, raddr, key, params)
	case "get":
		r, err = ep.Get(local, raddr, key, params)
		x.results = append(x.results, func(t *rapid.T) { assert.Equal(t, read, append([]byte(nil), local...)) })
	case "post":
		err = ep.AtomicPost(a.op, a.size, a.b, raddr, key)
	case "fetch":
		r, err = ep.AtomicFetch(a.op, a.size, a.b, result, raddr, key)
		x.results = append(x.results, func(t *rapid.T) { assert.Equal(t, old, *result) })
	case "cswap":
		r, err = ep.AtomicCSwap(a.size, a.a, a.b, result, raddr, key)
		x.results = append(x.results, func(t *rapid.T) { assert.Equal(t, old, *result) })
	case "flush":
		r, err = ep.Flush()
	}
	require.NoError(t, err)
	if a.complete {
		require.NoError(t, x.p.Finish(r, nil))
	} else if r != nil {
		x.reqs = append(x.reqs, r)
	}
	require.NoError(t, ep.Fence())
}

// TestHistories: a random history has the same visible result over all sets of transports, which is that of the
// reference.
func TestHistories(t *testing.T) {
	for _, set := range memorySets() {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{}).Connect()
			rapid.Check(t, func(rt *rapid.T) {
				var ref reference
				clear(p.B.Mem.Bytes()[:histLen])
				x := &player{p: p}
				for range rapid.IntRange(1, 30).Draw(rt, "length") {
					x.play(rt, drawAct(rt), &ref)
				}
				require.NoError(rt, p.Flush())
				for _, r := range x.reqs {
					require.NoError(rt, p.Finish(r, nil))
				}
				for _, check := range x.results {
					check(rt)
				}
				testenv.RequireBytes(t, ref.mem[:], p.B.Mem.Bytes()[:histLen])
			})
		})
	}
}
