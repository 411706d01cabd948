package ucp_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// quietPair is a connected pair over a transport that detects a dead peer only by posts and checks.
func quietPair(t *testing.T, every time.Duration, caps uct.Caps) (*ucppair.Pair, *faketp.Fabric) {
	rc, ud := faketp.LikeRC(), faketp.LikeUD()
	rc.Silent, ud.Silent = true, true
	rc.Caps |= caps
	p, f := ucppair.Fake(t, ucp.Config{KeepaliveInterval: every}, rc, ud)
	p.Connect().Warm()
	idle(p)
	return p, f
}

// skipTime advances virtual time without progress, and then makes progress on the live sides.
func skipTime(p *ucppair.Pair, d time.Duration, ends ...*ucppair.End) {
	for range 2 { // after a long pause a worker gives its peers one more interval
		time.Sleep(d)
		synctest.Wait()
		for _, x := range ends {
			spin(x)
		}
		d = engine.AlarmGrace
	}
}

// TestKeepalive: the EP of a dead peer fails at a check, even if its owner posts nothing. The EP of a live peer does
// not fail.
func TestKeepalive(t *testing.T) {
	for name, c := range map[string]struct {
		every, after time.Duration // set; in effect, 0: never
		caps         uct.Caps
	}{
		"devices answer":      {0, ucp.DefaultKeepalive, uct.CapCheckDevice},
		"processes answer":    {0, 0, 0},
		"processes, asked":    {3 * time.Second, 3 * time.Second, 0},
		"never":               {config.Infinite, 0, uct.CapCheckDevice},
		"it tells by itself":  {3 * time.Second, 0, uct.CapErrPeerIdle},
		"devices, other time": {time.Minute, time.Minute, uct.CapCheckDevice},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, f := quietPair(t, c.every, c.caps)
				const rounds = 3
				wait := c.after
				if wait == 0 {
					wait = time.Hour
				}
				for n := range rounds {
					skipTime(p, wait, &p.A, &p.B)
					if c.after > 0 {
						assert.Equal(t, 2*(n+1), f.Checks, "each side checks once in an interval")
					}
				}
				require.NoError(t, p.A.EP.Err(), "the peer lives")
				for _, i := range f.Ifaces[len(f.Ifaces)/2:] {
					i.Kill()
				}
				skipTime(p, wait/2, &p.A)
				assert.NoError(t, p.A.EP.Err(), "no check")
				skipTime(p, wait/2, &p.A)
				if c.after == 0 {
					assert.NoError(t, p.A.EP.Err())
					assert.Zero(t, f.Checks)
					return
				}
				assert.ErrorIs(t, p.A.EP.Err(), ucs.ErrConnReset)
			})
		})
	}
}

// TestKeepalive_OneCheckAtATime: a peer is not checked again before it has replied.
func TestKeepalive_OneCheckAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := quietPair(t, 0, uct.CapCheckDevice)
		for _, i := range f.Ifaces {
			i.Frozen = true
		}
		for range 5 {
			skipTime(p, ucp.DefaultKeepalive, &p.A)
		}
		assert.Equal(t, 1, f.Checks)
		for _, i := range f.Ifaces {
			i.Frozen = false
		}
		skipTime(p, ucp.DefaultKeepalive, &p.A)
		skipTime(p, ucp.DefaultKeepalive, &p.A)
		assert.Greater(t, f.Checks, 1)
		assert.NoError(t, p.A.EP.Err())
	})
}

func TestKeepalive_Config(t *testing.T) {
	assert.ErrorIs(t, (&ucp.Config{KeepaliveInterval: -1}).Validate(), ucs.ErrInvalidParam)
}
