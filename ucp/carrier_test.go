package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucs"
)

// memCarrier passes messages to the other worker as a stream does: some are delayed, and it reports a break after
// messages were lost.
type memCarrier struct {
	e    *EP
	to   *Worker
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
	c.e.w.schedule(c.e)
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
		c.to.connecting.inbox.Add(msg)
		c.to.engine.Raise()
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
func carried(t *testing.T, edit func(c *memCarrier)) (*pair, *faketp.Fabric) {
	p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	for _, w := range []*Worker{p.a.w, p.b.w} {
		w.carrier = func(e *EP) conn.Carrier {
			c := &memCarrier{e: e, to: p.b.w}
			if e.w == p.b.w {
				c.to = p.a.w
			}
			edit(c)
			return c
		}
	}
	return p.connect(), f
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
			require.NoError(t, p.finish(p.a.ep.Put([]byte{9}, p.a.key.Addr(), p.a.key, nil)))
			require.NoError(t, p.flush())
			assert.Equal(t, byte(9), p.b.mem.Bytes()[0])
			assert.Equal(t, 2, f.EPsOpened, "one at each side, of frc")
			assert.Zero(t, f.Sent, "active messages")
			c, err := p.a.ep.Close(CloseFlush)
			require.NoError(t, p.finish(c, err))
			p.until(func() bool { return p.a.w.eps.Len()+p.b.w.eps.Len() == 0 })
		})
	}
}

// TestCarrier_Dead: an EP whose carrier cannot recover fails.
func TestCarrier_Dead(t *testing.T) {
	p, _ := carried(t, func(c *memCarrier) { c.lose, c.dead = 1, true })
	r, err := p.a.ep.Put([]byte{9}, p.a.key.Addr(), p.a.key, nil)
	require.ErrorIs(t, p.finish(r, err), ucs.ErrIO)
	assert.ErrorContains(t, p.a.ep.Err(), "handshake")
}
