package ucp_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/wireup"
)

// TestSelection_RealTransports: GUCX_TLS and the device lists, in the syntax of users.
func TestSelection_RealTransports(t *testing.T) {
	for _, tc := range []struct{ env, want string }{
		{"TLS=all", "sm rc ud rc_mlx5 ud_mlx5 self tcp"},
		{"TLS=ib", "rc ud rc_mlx5 ud_mlx5"},
		{"TLS=xrc", "xrc xrc_mlx5 ud:aux"},
		{"TLS=xrc_v", "xrc ud:aux"},
		{"TLS=xrc_verbs", "xrc ud:aux"},
		{`TLS=\xrc`, "xrc ud:aux"},
		{"TLS=xrc_x", "xrc_mlx5 ud:aux"},
		{"TLS=xrc_mlx5", "xrc_mlx5 ud:aux"},
		{"TLS=^xrc", "sm rc ud rc_mlx5 ud_mlx5 self tcp"},
		{"TLS=rc", "rc rc_mlx5 ud:aux"},
		{"TLS=rc_v", "rc ud:aux"},
		{"TLS=rc_verbs", "rc ud:aux"},
		{`TLS=\rc`, "rc ud:aux"},
		{"TLS=rc_x", "rc_mlx5 ud:aux"},
		{"TLS=rc_mlx5", "rc_mlx5 ud:aux"},
		{`TLS=\rc_mlx5`, "rc_mlx5 ud:aux"},
		{`TLS=\rc,\sm`, "sm rc ud:aux"},
		{"TLS=rc,sm", "sm rc rc_mlx5 ud:aux"},
		{"TLS=rc_x,self", "rc_mlx5 self ud:aux"},
		{`TLS=\rc,tcp`, "rc tcp"},
		{"TLS=ud", "ud ud_mlx5"},
		{"TLS=ud_v", "ud"},
		{"TLS=ud_x", "ud_mlx5"},
		{`TLS=rc_x,\ud`, "ud rc_mlx5"},
		{"TLS=^rc", "sm ud ud_mlx5 self tcp"},
		{"TLS=^rc_v,ud_v", "sm rc_mlx5 ud_mlx5 self tcp"},
		{`TLS=^\rc`, "sm ud rc_mlx5 ud_mlx5 self tcp"},
		{"TLS=shm", "sm"},
		{"TLS=sm", "sm"},
		{"TLS=sm,self", "sm self"},
		{"TLS=tcp", "tcp"},
		{"TLS=^tcp", "sm rc ud rc_mlx5 ud_mlx5 self"},
		{"TLS=^ib,shm", "self tcp"},
		{"NET_DEVICES=lo", "sm self tcp"},
		{"NET_DEVICES=^lo", "sm rc ud rc_mlx5 ud_mlx5 self"},
		{"SHM_DEVICES=^memory", "rc ud rc_mlx5 ud_mlx5 self tcp"},
	} {
		t.Run(tc.env, func(t *testing.T) {
			assert.Equal(t, strings.Fields(tc.want), opened(t, tc.env))
		})
	}
	for _, tc := range []struct{ env, want string }{
		{"TLS=dc", "transport dc not found (available: rc, rc_mlx5, self, sm, tcp, ud, ud_mlx5, xrc, xrc_mlx5)"},
		{"TLS=sm,dc_mlx5", "transport dc_mlx5 not found"},
		{`TLS=\ib`, `transport \ib not found`},
		{`TLS=\rc_x`, `transport \rc_x not found`},
		{"NET_DEVICES=eth7", "net device eth7 not found (available: lo, softhca0:1)"},
	} {
		t.Run(tc.env, func(t *testing.T) {
			_, err := ucp.NewContext(ucppair.FromEnv(t, tc.env), all.Components()...)
			assert.ErrorIs(t, err, ucs.ErrUnreachable)
			assert.ErrorContains(t, err, tc.want)
		})
	}
}

// opened returns the transports that a worker opens with the given line in the environment.
func opened(t *testing.T, line string) (names []string) {
	t.Helper()
	c, err := ucp.NewContext(ucppair.FromEnv(t, line), all.Components()...)
	require.NoError(t, err)
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	for _, r := range w.AddressInfo().Resources {
		name := r.Transport
		if r.AuxOnly {
			name += ":aux"
		}
		names = append(names, name)
	}
	require.NoError(t, errors.Join(w.Close(), c.Close()))
	return names
}

// TestSelection_Lanes: the transports of operations, to the own worker and to another one of this host. Explain has
// them with the reason.
func TestSelection_Lanes(t *testing.T) {
	roles := []wireup.Role{wireup.RMA, wireup.AMO, wireup.AM, wireup.Aux}
	for _, tc := range []struct {
		tls         string
		self, other string // by role
	}{
		{"all", "self self self self", "sm sm sm sm"},
		{"^self", "sm sm sm sm", "sm sm sm sm"},
		{"ib,tcp", "rc_mlx5 rc_mlx5 rc_mlx5 ud_mlx5", "rc_mlx5 rc_mlx5 rc_mlx5 ud_mlx5"},
		{"rc,tcp", "rc_mlx5 rc_mlx5 rc_mlx5 tcp", "rc_mlx5 rc_mlx5 rc_mlx5 tcp"},
		{`\rc,tcp`, "rc rc rc tcp", "rc rc rc tcp"},
		{"rc_v,tcp", "rc rc rc tcp", "rc rc rc tcp"},
		{"self,tcp", "self self self self", "tcp tcp tcp tcp"},
	} {
		t.Run(tc.tls, func(t *testing.T) {
			p := ucppair.New(t, tlsets.Real("all"), ucppair.FromEnv(t, "TLS="+tc.tls))
			for _, to := range []*ucppair.End{&p.A, &p.B} {
				want := tc.self
				if to == &p.B {
					want = tc.other
				}
				p.A.Dial(t, to)
				why := strings.Split(p.A.EP.Explain(), "\n")
				for k, transport := range strings.Fields(want) {
					best := p.A.EP.Peer().Best[roles[k]]
					assert.Equal(t, transport, kindOf(p.A.W.Ifaces()[best.Local]), "%v", roles[k])
					at := slices.IndexFunc(why, func(s string) bool { return strings.HasPrefix(s, roles[k].String()+":") })
					assert.Regexp(t, `^\* `+transport+`/.* score \d+ `, why[at+1])
				}
			}
		})
	}
}

// TestExplain_Selection: Explain has the name of the list that selects a transport, and the reasons why others are not
// used.
func TestExplain_Selection(t *testing.T) {
	for _, tc := range []struct {
		env  string
		want []string
	}{
		{"TLS=rc", []string{
			"sm/memory TLS=rc excludes it",
			"rc/softhca0:1 TLS=rc",
			"ud/softhca0:1 TLS=rc excludes it, open for handshakes only",
			"rc_mlx5/softhca0:1 TLS=rc",
			"ud_mlx5/softhca0:1 TLS=rc excludes it",
		}},
		{"TLS=sm,rc_x", []string{"sm/memory TLS=sm", "rc/softhca0:1 TLS=sm,rc_x excludes it", "rc_mlx5/softhca0:1 TLS=rc_x"}},
		{"TLS=^tcp", []string{"rc/softhca0:1 TLS=^tcp", "tcp/lo TLS=^tcp excludes it"}},
		{"NET_DEVICES=lo", []string{"rc/softhca0:1 NET_DEVICES=lo excludes softhca0:1", "tcp/lo TLS=all"}},
	} {
		t.Run(tc.env, func(t *testing.T) {
			p := ucppair.New(t, tlsets.Real("all"), ucppair.FromEnv(t, tc.env))
			why, err := p.A.W.Explain(p.B.W.Address())
			require.NoError(t, err)
			var lines []string
			for line := range strings.Lines(why) {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
			for _, want := range tc.want {
				assert.Contains(t, lines, want)
			}
		})
	}
}

// TestPollIdleTx: Progress does not poll a transport without outstanding operations and receives, unless it has an idle
// queue that must be polled.
func TestPollIdleTx(t *testing.T) {
	for _, tls := range []string{`\rc`, "rc_mlx5"} {
		for _, always := range []bool{false, true} {
			set := tlsets.Real(tls, tls)
			set.Open = func(testing.TB) (a, b []uct.Component) {
				c := all.Config{IB: ib.Config{PollIdleTx: always}}
				return c.Components(), c.Components()
			}
			p := ucppair.New(t, set, ucp.Config{}).Connect().Warm()
			require.NoError(t, p.Flush())
			idle(p)
			require.Equal(t, 1, p.A.W.Engine().Polled(), tls)
			quiet := func() bool {
				return !slices.ContainsFunc(p.A.W.Ifaces(), func(i *ucp.Iface) bool {
					watch := i.Ext().Watch // ud has none
					return i.Polled() && (watch == nil || !watch.Watch().Idle())
				})
			}
			if always {
				assert.False(t, quiet(), tls)
			} else { // the device may still send its last ACK
				p.Until(quiet)
			}
			require.NoError(t, p.Finish(p.A.EP.Put(testenv.Pattern(5000, 1), p.B.Mem.Addr(), p.A.Key, nil)))
			require.NoError(t, p.Flush())
			testenv.RequireBytes(t, testenv.Pattern(5000, 1), p.B.Mem.Bytes()[:5000])
		}
	}
}

// TestAux_OtherHost: sm carries no handshakes to a peer on another host, here one with sockets in another folder, so that
// ud carries them for rc.
func TestAux_OtherHost(t *testing.T) {
	set := tlsets.Set{Name: "rc+sm", TLS: config.Allow(`\rc`, `\sm`), Open: func(t testing.TB) (a, b []uct.Component) {
		var cfg all.Config
		cfg.SM.SocketDir = testenv.SocketDir(t)
		return tlsets.Components(cfg), tlsets.Components(all.Config{})
	}}
	p := ucppair.New(t, set, ucp.Config{}).Connect().Warm()
	assert.Equal(t, "rc", kindOf(p.A.EP.Lane(wireup.RMA).Iface))
}

// TestProgress_OnlyWhatIsConnected: transports without lanes are not polled, on either side.
func TestProgress_OnlyWhatIsConnected(t *testing.T) {
	for _, set := range tlsets.RealSets() {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{}).Connect().Warm()
			ifaces := slices.Concat(p.A.W.Ifaces(), p.B.W.Ifaces())
			p.Until(func() bool { // the last message of a handshake may arrive late
				return !slices.ContainsFunc(ifaces, func(i *ucp.Transport) bool { return i.Polled() != (i.Users() > 0) })
			})
			assert.NotZero(t, p.A.W.Engine().Polled())
		})
	}
}
