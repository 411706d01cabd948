package selection

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv/workeraddr"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

func TestScore_IsTheDocumentedFormula(t *testing.T) {
	x, y := &wireup.Resource{}, &wireup.Resource{}
	workeraddr.Price(x, 1024, 128, 4096<<20)
	workeraddr.Price(y, 2048, 256, 8192<<20)
	for _, tc := range []struct {
		p    wireup.Role
		want float64 // ns
	}{
		{wireup.RMA, 1536 + 192 + 4096e9/(4096<<20)},
		{wireup.RMABW, 1536 + 192 + 1e9/4096},
		{wireup.AMO, 1536 + 192},
		{wireup.AM, 1536 + 384},
		{wireup.AMBW, 1536 + 384 + 1e9/4096},
		{wireup.Aux, 1536 + 384},
	} {
		assert.InEpsilon(t, 1e9/tc.want, score(tc.p, x, y), 1e-6, "%v", tc.p)
		assert.Equal(t, score(tc.p, x, y), score(tc.p, y, x), "%v", tc.p)
	}
	assert.Equal(t, 1e12, score(wireup.AMO, &wireup.Resource{}, &wireup.Resource{}), "a free resource is bounded")
}

func TestRank_Criteria(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    wireup.Role
		edit func(l, r *wireup.Resource)
		want string
	}{
		{"fits", wireup.RMA, func(l, r *wireup.Resource) {}, ""},
		{"aux only", wireup.RMA, func(l, r *wireup.Resource) { r.AuxOnly = true }, "open for handshakes only"},
		{"no get", wireup.RMA, func(l, r *wireup.Resource) { l.Caps &^= uct.CapGetBcopy }, "no get_bcopy"},
		{"no get at the peer", wireup.RMA, func(l, r *wireup.Resource) { r.Caps &^= uct.CapGetBcopy }, "no get_bcopy"},
		{"lossy", wireup.AM, func(l, r *wireup.Resource) { l.Caps |= uct.CapLossy; r.Caps |= uct.CapLossy }, "loses messages"},
		{"no connect", wireup.RMA, func(l, r *wireup.Resource) { l.Caps &^= uct.CapConnectEP }, "both sides must be able to connect"},
		{"aux needs iface", wireup.Aux, func(l, r *wireup.Resource) {}, "no connect_to_iface"},
		{"aux too short", wireup.Aux, func(l, r *wireup.Resource) {
			l.Caps |= uct.CapConnectIface
			r.Caps |= uct.CapConnectIface
			r.AMBcopy = 36 // 96 bytes
		}, "messages too small for a handshake"},
		{"domains", wireup.AMO, func(l, r *wireup.Resource) { r.Domain = uct.AtomicCPU }, "atomic domains differ"},
		{"no cswap", wireup.AMO, func(l, r *wireup.Resource) { l.Fetch64 = uct.AtomicSet(uct.AtomicAdd) }, "no 64-bit compare-and-swap"},
		{"unreachable", wireup.RMA, func(l, r *wireup.Resource) { r.DeviceAddr = []byte("elsewhere") }, "unreachable: other fabric"},
		{"no such transport", wireup.RMA, func(l, r *wireup.Resource) { r.Transport = "ud" }, "the peer does not have this transport"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := workeraddr.Make(t, 1, "rc"), workeraddr.Make(t, 2, "rc")
			tc.edit(&a.Resources[0], &b.Resources[0])
			cands := Rank(tc.p, a, b, workeraddr.Reach(a, b))
			require.Len(t, cands, 1)
			assert.Equal(t, tc.want, cands[0].Why)
			assert.Equal(t, tc.want == "", cands[0].Score > 0)
		})
	}
}

// TestChoose_OmitsSlowPairs: a pair that is much slower than the best one is not chosen.
func TestChoose_OmitsSlowPairs(t *testing.T) {
	a, b := workeraddr.Make(t, 1, "rc", "rc@x", "rc@y"), workeraddr.Make(t, 2, "rc", "rc@x", "rc@y")
	for _, x := range []*wireup.Address{a, b} {
		workeraddr.Price(&x.Resources[1], 600, 50, 5e9)
		workeraddr.Price(&x.Resources[2], 600, 50, 1e9)
	}
	none := func(int, int) bool { return false }
	ranked := Rank(wireup.RMABW, a, b, workeraddr.Reach(a, b))
	require.Len(t, usable(ranked), 3)
	chosen := Choose(wireup.RMABW, a, b, ranked, Rails{RMA: MaxRails}, none)
	require.Len(t, chosen, 2)
	assert.Equal(t, []int{0, 1}, []int{chosen[0].Local, chosen[1].Local})
	assert.Len(t, Choose(wireup.RMABW, a, b, ranked, Rails{}, none), 1)
	assert.Regexp(t, `rma_bw: .*\n\* .*, 70% of the data\n\* .*, 29% of the data\n  rc/y`, explain(a, b, Rails{RMA: 4}))
}

// TestAddsBandwidth_Ratio: a pair is chosen if the best one has at most maxRatio times its bandwidth. The limit is
// exact, and nothing overflows.
func TestAddsBandwidth_Ratio(t *testing.T) {
	a, b := workeraddr.Make(t, 1, "rc", "rc@x"), workeraddr.Make(t, 2, "rc", "rc@x")
	for _, bandwidth := range []uint64{1, 1000, math.MaxUint64/maxRatio - 1} {
		second := Candidate{Local: 1, Remote: 1, Bandwidth: bandwidth}
		first := Candidate{Bandwidth: bandwidth * maxRatio}
		assert.True(t, addsBandwidth(a, b, []Candidate{first}, second), "%d", bandwidth)
		first.Bandwidth++
		assert.False(t, addsBandwidth(a, b, []Candidate{first}, second), "%d", bandwidth)
	}
}

// TestChoose_OneTransport: the lanes of a bandwidth role are over one transport.
func TestChoose_OneTransport(t *testing.T) {
	a, b := workeraddr.Make(t, 1, "rc", "rc@x"), workeraddr.Make(t, 2, "rc", "rc@x")
	for _, x := range []*wireup.Address{a, b} {
		tcp := x.Resources[0]
		workeraddr.Price(&tcp, 9000, 900, 4e9)
		tcp.Transport, tcp.Device, tcp.DeviceAddr, tcp.MD = "tcp", "eth0", []byte("eth0"), 1
		x.MDs, x.Resources = append(x.MDs, wireup.MD{Component: "tcp"}), append(x.Resources, tcp)
	}
	var got []string
	for _, c := range Chosen(wireup.RMABW, a, b, workeraddr.Reach(a, b), Rails{RMA: MaxRails}) {
		got = append(got, a.Resources[c.Local].Transport)
	}
	assert.Equal(t, []string{"rc", "rc"}, got)
}

// TestChoose_OneDeviceTwice: only one of two transports over one device is chosen, also if the device has two
// memory domains.
func TestChoose_OneDeviceTwice(t *testing.T) {
	a, b := workeraddr.Make(t, 1, "rc", "rc"), workeraddr.Make(t, 2, "rc", "rc")
	for _, x := range []*wireup.Address{a, b} {
		x.MDs = append(x.MDs, x.MDs[0])
		x.Resources[1].Transport, x.Resources[1].MD = "rc_mlx5", 1
		for i := range x.Resources {
			x.Resources[i].Caps |= uct.CapInterNode
		}
	}
	assert.Len(t, Chosen(wireup.RMABW, a, b, workeraddr.Reach(a, b), Rails{RMA: MaxRails}), 1)
}

func TestRank_PriorityBreaksTies(t *testing.T) {
	a, b := workeraddr.Make(t, 1, "rc", "rc"), workeraddr.Make(t, 2, "rc")
	a.Resources[1].Priority = 1
	assert.Equal(t, 1, Rank(wireup.RMA, a, b, workeraddr.Reach(a, b))[0].Local)
}

// TestRank_IsSymmetric: both sides order the usable pairs alike.
func TestRank_IsSymmetric(t *testing.T) {
	kinds := []string{"rc", "ud", "sm", "rc@x", "ud@x", "sm@x"}
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfN(rapid.SampledFrom(kinds), 0, 6)
		a := workeraddr.Make(t, rapid.Uint64Range(1, 3).Draw(rt, "uuid a"), names.Draw(rt, "a")...)
		b := workeraddr.Make(t, rapid.Uint64Range(4, 5).Draw(rt, "uuid b"), names.Draw(rt, "b")...)
		if rapid.Bool().Draw(rt, "swap uuids") {
			a.Key, b.Key = b.Key, a.Key
		}
		for _, x := range []*wireup.Address{a, b} {
			for i := range x.Resources {
				r := &x.Resources[i]
				workeraddr.Price(r, 100, 10, rapid.Uint64Range(10e9, 13e9).Draw(rt, "bandwidth"))
				r.Priority = rapid.Int8Range(0, 1).Draw(rt, "priority")
				if rapid.Bool().Draw(rt, "outward") {
					r.Caps |= uct.CapInterNode
				}
			}
		}
		for p := range wireup.Aux + 1 {
			var mirrored []Candidate
			for _, c := range usable(Rank(p, b, a, workeraddr.Reach(b, a))) {
				c.Local, c.Remote = c.Remote, c.Local
				mirrored = append(mirrored, c)
			}
			assert.Equal(rt, usable(Rank(p, a, b, workeraddr.Reach(a, b))), mirrored, "%v", p)

			none, all := func(int, int) bool { return false }, Rails{RMA: MaxRails, AM: MaxRails}
			var there []Candidate
			for _, c := range Choose(p, b, a, Rank(p, b, a, workeraddr.Reach(b, a)), all, none) {
				c.Local, c.Remote = c.Remote, c.Local
				there = append(there, c)
			}
			here := Choose(p, a, b, Rank(p, a, b, workeraddr.Reach(a, b)), all, none)
			assert.Equal(rt, here, there, "%v", p)
			if p != wireup.RMABW && p != wireup.AMBW { // one lane
				continue
			}
			for i, x := range here {
				for _, y := range here[:i] {
					assert.False(rt, shareDevice(a, &a.Resources[x.Local], &a.Resources[y.Local]), "lanes over one device")
				}
			}
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

// explain returns the text of all choices.
func explain(local, remote *wireup.Address, rails Rails) string {
	var b strings.Builder
	for _, c := range Choices(local, remote, workeraddr.Reach(local, remote), rails) {
		b.WriteString(c.String())
	}
	return b.String()
}

func TestChoices_Text(t *testing.T) {
	a, b := workeraddr.Make(t, 1, "rc", "ud", "sm"), workeraddr.Make(t, 2, "rc", "ud")
	want := `rma: score is 1 / (latency + overhead + 4 KiB)
* rc/hca0:1[0]  rc/hca0:1[0]  score 1025862  576 + 52 + 346.8 ns
  sm/memory[2]  -             the peer does not have this transport
  ud/hca0:1[1]  ud/hca0:1[1]  no put_bcopy|get_bcopy
amo: score is 1 / (latency + overhead)
* rc/hca0:1[0]  rc/hca0:1[0]  score 1592357  576 + 52 ns
  sm/memory[2]  -             the peer does not have this transport
  ud/hca0:1[1]  ud/hca0:1[1]  no atomic64
am: score is 1 / (latency + overhead)
* rc/hca0:1[0]  rc/hca0:1[0]  score 1470588  576 + 104 ns
  ud/hca0:1[1]  ud/hca0:1[1]  score 1157407  704 + 160 ns
  sm/memory[2]  -             the peer does not have this transport
rma_bw: score is 1 / (latency + overhead + 1024 KiB)
* rc/hca0:1[0]  rc/hca0:1[0]  score 11185  576 + 52 + 88778.4 ns
  sm/memory[2]  -             the peer does not have this transport
  ud/hca0:1[1]  ud/hca0:1[1]  no put_zcopy|get_zcopy
am_bw: score is 1 / (latency + overhead + 1024 KiB)
* rc/hca0:1[0]  rc/hca0:1[0]  score 11178  576 + 104 + 88778.4 ns
  ud/hca0:1[1]  ud/hca0:1[1]  score 9143   704 + 160 + 108506.9 ns
  sm/memory[2]  -             the peer does not have this transport
aux: score is 1 / (latency + overhead)
* ud/hca0:1[1]  ud/hca0:1[1]  score 1157407  704 + 160 ns
  rc/hca0:1[0]  rc/hca0:1[0]  no connect_to_iface
  sm/memory[2]  -             the peer does not have this transport
`
	assert.Equal(t, want, explain(a, b, Rails{}))
	none := &wireup.Address{Key: workeraddr.Key(3)}
	assert.Contains(t, explain(none, b, Rails{}), "no transport is open")
	one := workeraddr.Make(t, 4, "rc")
	assert.NotContains(t, explain(one, b, Rails{}), "no transport is open")
}

// TestShareDevice: two resources share a device if their device addresses are equal, and if their memory domains are
// the same, or are of one component and used by two transports.
func TestShareDevice(t *testing.T) {
	a := &wireup.Address{MDs: []wireup.MD{{Component: "ib"}, {Component: "ib"}, {Component: "tcp"}}}
	x := wireup.Resource{Transport: "rc", MD: 0, DeviceAddr: []byte("d")}
	for _, tt := range []struct {
		transport string
		md        uint8
		device    string
		want      bool
	}{
		{"rc", 0, "d", true},
		{"rc", 0, "e", false},
		{"rc", 1, "d", false}, // two domains of one transport are two devices
		{"rc", 2, "d", false},
		{"ud", 0, "d", true},
		{"ud", 1, "d", true},
		{"ud", 1, "e", false},
		{"ud", 2, "d", false},
	} {
		y := wireup.Resource{Transport: tt.transport, MD: tt.md, DeviceAddr: []byte(tt.device)}
		assert.Equal(t, tt.want, shareDevice(a, &x, &y), "%+v", tt)
		assert.Equal(t, tt.want, shareDevice(a, &y, &x), "%+v", tt)
	}
}

// TestRank_Ties: pairs with equal scores are sorted by the resource indices of the worker with the smaller
// UUID, then by those of the other.
func TestRank_Ties(t *testing.T) {
	for _, uuids := range [][2]uint64{{1, 2}, {2, 1}} {
		a, b := workeraddr.Make(t, uuids[0], "rc", "rc"), workeraddr.Make(t, uuids[1], "rc", "rc")
		var got [][2]int
		for _, c := range Rank(wireup.RMA, a, b, workeraddr.Reach(a, b)) {
			got = append(got, [2]int{c.Local, c.Remote})
		}
		want := [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}}
		if uuids[0] > uuids[1] {
			want[1], want[2] = want[2], want[1]
		}
		assert.Equal(t, want, got)
	}
}
