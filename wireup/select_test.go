package wireup

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct"
)

func TestScore_IsTheDocumentedFormula(t *testing.T) {
	l := &Resource{Latency: 1000, Overhead: 100, Bandwidth: 4_096_000_000}
	r := &Resource{Latency: 2000, Overhead: 300, Bandwidth: 8_192_000_000}
	for _, tc := range []struct {
		p    Purpose
		want float64 // ns
	}{
		{RMA, 1500 + 200 + 1000},
		{AMO, 1500 + 200},
		{AM, 1500 + 400},
		{Aux, 1500 + 400},
	} {
		assert.InEpsilon(t, 1e9/tc.want, Score(tc.p, l, r), 1e-12, "%v", tc.p)
		assert.Equal(t, Score(tc.p, l, r), Score(tc.p, r, l), "%v", tc.p)
	}
	assert.Equal(t, 1e12, Score(AMO, &Resource{}, &Resource{}), "a free resource is bounded")
}

func TestRank_Criteria(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    Purpose
		edit func(l, r *Resource)
		want string
	}{
		{"fits", RMA, func(l, r *Resource) {}, ""},
		{"aux only", RMA, func(l, r *Resource) { r.AuxOnly = true }, "open for handshakes only"},
		{"no get", RMA, func(l, r *Resource) { l.Caps &^= uct.CapGetBcopy }, "no get_bcopy"},
		{"no get at the peer", RMA, func(l, r *Resource) { r.Caps &^= uct.CapGetBcopy }, "no get_bcopy"},
		{"lossy", AM, func(l, r *Resource) { l.Caps |= uct.CapLossy; r.Caps |= uct.CapLossy }, "loses messages"},
		{"no connect", RMA, func(l, r *Resource) { l.Caps &^= uct.CapConnectEP }, "no way to connect"},
		{"aux needs iface", Aux, func(l, r *Resource) {}, "no connect_to_iface"},
		{"aux too short", Aux, func(l, r *Resource) {
			l.Caps |= uct.CapConnectIface
			r.Caps |= uct.CapConnectIface
			r.AMBcopy = 100
		}, "messages too short for a handshake"},
		{"domains", AMO, func(l, r *Resource) { r.Atomic.Domain = uct.AtomicCPU }, "atomic domains differ"},
		{"no cswap", AMO, func(l, r *Resource) { l.Atomic.Fetch64 = uct.Ops(uct.AtomicAdd) }, "no 64-bit compare-and-swap"},
		{"unreachable", RMA, func(l, r *Resource) { r.DeviceAddr = []byte("elsewhere") }, "unreachable: other fabric"},
		{"no such transport", RMA, func(l, r *Resource) { r.Transport = "ud" }, "the peer does not have this transport"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := address(t, 1, "rc"), address(t, 2, "rc")
			tc.edit(&a.Resources[0], &b.Resources[0])
			cands := Rank(tc.p, a, b, reach(a, b))
			require.Len(t, cands, 1)
			assert.Equal(t, tc.want, cands[0].Why)
			assert.Equal(t, tc.want == "", cands[0].Score > 0)
		})
	}
}

func TestRank_PriorityBreaksTies(t *testing.T) {
	a, b := address(t, 1, "rc", "rc"), address(t, 2, "rc")
	a.Resources[1].Priority = 1
	assert.Equal(t, 1, Rank(RMA, a, b, reach(a, b))[0].Local)
}

// TestRank_IsSymmetric: both sides order the usable pairs alike.
func TestRank_IsSymmetric(t *testing.T) {
	kinds := []string{"rc", "ud", "sm", "rc@x", "ud@x", "sm@x"}
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfN(rapid.SampledFrom(kinds), 0, 6)
		a := address(t, rapid.Uint64Range(1, 3).Draw(rt, "uuid a"), names.Draw(rt, "a")...)
		b := address(t, rapid.Uint64Range(4, 5).Draw(rt, "uuid b"), names.Draw(rt, "b")...)
		if rapid.Bool().Draw(rt, "swap uuids") {
			a.UUID, b.UUID = b.UUID, a.UUID
		}
		for _, x := range []*Address{a, b} {
			for i := range x.Resources {
				x.Resources[i].Latency = rapid.Uint32Range(100, 102).Draw(rt, "latency")
				x.Resources[i].Priority = rapid.Int16Range(0, 1).Draw(rt, "priority")
			}
		}
		for p := range purposeEnd {
			var mirrored []Candidate
			for _, c := range usable(Rank(p, b, a, reach(b, a))) {
				c.Local, c.Remote = c.Remote, c.Local
				mirrored = append(mirrored, c)
			}
			assert.Equal(rt, usable(Rank(p, a, b, reach(a, b))), mirrored, "%v", p)
		}
	})
}

func usable(cands []Candidate) (out []Candidate) {
	for _, c := range cands {
		if c.Why == "" {
			out = append(out, c)
		}
	}
	return out
}

func TestExplain(t *testing.T) {
	a, b := address(t, 1, "rc", "ud", "sm"), address(t, 2, "rc", "ud")
	want := `worker 0x1 to worker 0x2
rma:
* rc/hca0:1[0]  rc/hca0:1[0]  score 1008743  latency 600 ns + overhead 50 ns + 4096 bytes 341.333 ns
  sm/memory[2]  -             the peer does not have this transport
  ud/hca0:1[1]  ud/hca0:1[1]  no put_bcopy|get_bcopy
amo:
* rc/hca0:1[0]  rc/hca0:1[0]  score 1538462  latency 600 ns + overhead 50 ns
  sm/memory[2]  -             the peer does not have this transport
  ud/hca0:1[1]  ud/hca0:1[1]  no atomic64
am:
* rc/hca0:1[0]  rc/hca0:1[0]  score 1428571  latency 600 ns + overhead 100 ns
  ud/hca0:1[1]  ud/hca0:1[1]  score 1162791  latency 700 ns + overhead 160 ns
  sm/memory[2]  -             the peer does not have this transport
aux:
* ud/hca0:1[1]  ud/hca0:1[1]  score 1162791  latency 700 ns + overhead 160 ns
  rc/hca0:1[0]  rc/hca0:1[0]  no connect_to_iface
  sm/memory[2]  -             the peer does not have this transport
`
	assert.Equal(t, want, Explain(a, b, reach(a, b)))
	none := &Address{UUID: 3}
	assert.Contains(t, Explain(none, b, reach(none, b)), "no transport is open")
}
