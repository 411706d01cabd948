package ucp_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// gauge is a machine on which either the kernel or fragments take less time.
type gauge struct {
	measured        int
	fragments, call uct.Cost
}

// over returns sm on that machine.
func (g *gauge) over() tlsets.Set {
	sm := tlsets.Real("sm", "sm")
	return tlsets.Set{Name: "sm", TLS: sm.TLS, Open: func(t testing.TB) (a, b []uct.Component) {
		a, b = sm.Open(t)
		hooks := wrap.Hooks{Iface: func(i *wrap.Iface) { i.Has.Measure = measurer{g, i.Attr()} }}
		for _, set := range [][]uct.Component{a, b} {
			for k := range set {
				set[k] = wrap.Component(set[k], hooks)
			}
		}
		return a, b
	}}
}

type measurer struct {
	*gauge
	attr *uct.IfaceAttr
}

// Measure implements uct.Measurer.
func (m measurer) Measure() uct.Measured {
	m.measured++
	out := uct.Measured{Costs: m.attr.Costs, RegReach: m.call}
	out.Costs.Set(m.fragments, uct.AMBcopy)
	return out
}

// TestCosts_Measured: the first message that needs more than one call makes each side measure its costs, and its data
// uses the fastest scheme. Before that, and with declared costs, nothing is measured.
func TestCosts_Measured(t *testing.T) {
	slow, fast := uct.Cost{Send: 1000, Latency: 100, Bandwidth: 2e9}, uct.Cost{Send: 1000, Latency: 100, Bandwidth: 20e9}
	for _, tc := range []struct {
		name                 string
		fragments, call      uct.Cost
		from                 ucp.CostSource
		measured, registered int
	}{
		{"the kernel is fast", slow, fast, ucp.CostsMeasured, 2, 1},
		{"the kernel is slow", fast, slow, ucp.CostsMeasured, 2, 0},
		{"declared", slow, fast, ucp.CostsDeclared, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := &gauge{fragments: tc.fragments, call: tc.call}
			p := ucppair.New(t, g.over(), ucp.Config{Costs: tc.from}).Both().Warm()
			from, to := testenv.Pattern(registerLen, 1), make([]byte, registerLen)
			sendTag(p, from[:8000], to[:8000])
			require.NoError(t, p.Finish(p.A.EP.Put(from[:tlsets.MemLen], p.B.Mem.Addr(), p.A.Key, nil)))
			require.NoError(t, p.Flush())
			assert.Zero(t, g.measured, "no large message was sent")
			for range 2 {
				sendTag(p, from, to)
				testenv.RequireBytes(t, from, to)
			}
			assert.Equal(t, tc.measured, g.measured)
			assert.Equal(t, tc.registered, registrations(&p.A))
		})
	}
}

// TestCosts_Explain: Explain says where the costs are from.
func TestCosts_Explain(t *testing.T) {
	g := &gauge{fragments: uct.Cost{Send: time.Microsecond, Bandwidth: 1e9}, call: uct.Cost{Send: 1, Bandwidth: 9e9}}
	for from, want := range map[ucp.CostSource]string{ucp.CostsMeasured: "measured", ucp.CostsDeclared: "declared"} {
		p := ucppair.New(t, g.over(), ucp.Config{Costs: from}).Connect()
		assert.Contains(t, p.A.EP.Explain(), "costs by which messages go over sm memory: "+want+"\n")
		p.A.W.Ifaces()[0].Costs().Assumed = true
		assert.Equal(t, from == ucp.CostsMeasured, p.A.W.Ifaces()[0].CostsFrom() == "assumed, as they could not be measured")
	}
}

func TestConfig_Costs(t *testing.T) {
	for value, want := range map[string]ucp.CostSource{"measured": ucp.CostsMeasured, "declared": ucp.CostsDeclared} {
		var cfg ucp.Config
		require.NoError(t, config.FromEnv([]string{"GUCX_COSTS=" + value}, cfg.Table()))
		assert.Equal(t, want, cfg.Costs)
		require.NoError(t, cfg.Validate())
	}
	assert.ErrorIs(t, (&ucp.Config{Costs: "guessed"}).Validate(), ucs.ErrInvalidParam)
}
