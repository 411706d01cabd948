package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucs"
)

// memCarrier passes messages to the other worker as a stream does: some are delayed, and it reports a break after
// messages were lost.
type memCarrier struct {
	e    *ucp.EP
	to   *ucp.Worker
	wait [][]byte
	hold int // messages to delay
	lose int // messages to lose, after which it breaks
	err  error
	dead bool // it cannot recover
	sent int
}

func (c *memCarrier) Send(msg []byte, repeat bool) {
	if repeat && len(c.wait) > 0 {
		return
	}
	c.wait = append(c.wait, msg)
	c.e.Schedule()
}

func (c *memCarrier) Advance(bool) bool {
	for len(c.wait) > 0 && c.err == nil {
		if c.hold > 0 {
			c.hold--
			return false
		}
		msg := c.wait[0]
		c.wait = c.wait[1:]
		c.sent++
		if c.lose > 0 {
			c.lose--
			c.err = ucs.ErrIO
			return false
		}
		c.to.DeliverHandshake(msg)
	}
	return true
}

func (c *memCarrier) Err() error { return c.err }

func (c *memCarrier) Recover(bool) (bool, error) {
	why := c.err
	c.err = nil
	return !c.dead, why
}

func (c *memCarrier) Posted() bool { return len(c.wait) == 0 }
func (c *memCarrier) Idle() bool   { return len(c.wait) == 0 }
func (c *memCarrier) Close()       { c.wait, c.err = nil, nil }

// carried is a pair over frc whose handshakes do not use fud.
func carried(t *testing.T, edit func(c *memCarrier)) (*ucppair.Pair, *faketp.Fabric) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	for _, w := range []*ucp.Worker{p.A.W, p.B.W} {
		w.UseCarrier(func(e *ucp.EP) conn.Carrier {
			c := &memCarrier{e: e, to: p.B.W}
			if e.Worker() == p.B.W {
				c.to = p.A.W
			}
			edit(c)
			return c
		})
	}
	return p.Connect(), f
}

// TestCarrier_NotActiveMessages: an EP connects and disconnects over a carrier other than active messages, also if the carrier
// is slow and breaks.
func TestCarrier_NotActiveMessages(t *testing.T) {
	for name, edit := range map[string]func(c *memCarrier){
		"fast":   func(*memCarrier) {},
		"slow":   func(c *memCarrier) { c.hold = 100 },
		"breaks": func(c *memCarrier) { c.lose = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			p, f := carried(t, edit)
			require.NoError(t, p.Finish(p.A.EP.Put([]byte{9}, p.A.Key.Addr(), p.A.Key, nil)))
			require.NoError(t, p.Flush())
			assert.Equal(t, byte(9), p.B.Mem.Bytes()[0])
			assert.Equal(t, 2, f.EPsOpened, "one at each side, of frc")
			assert.Zero(t, f.Sent, "active messages")
			c, err := p.A.EP.Close(ucp.CloseFlush)
			require.NoError(t, p.Finish(c, err))
			p.Until(func() bool { return p.A.W.EPs().Len()+p.B.W.EPs().Len() == 0 })
		})
	}
}

// TestCarrier_Dead: an EP whose carrier cannot recover fails.
func TestCarrier_Dead(t *testing.T) {
	p, _ := carried(t, func(c *memCarrier) { c.lose, c.dead = 1, true })
	r, err := p.A.EP.Put([]byte{9}, p.A.Key.Addr(), p.A.Key, nil)
	require.ErrorIs(t, p.Finish(r, err), ucs.ErrIO)
	assert.ErrorContains(t, p.A.EP.Err(), "handshake")
}
