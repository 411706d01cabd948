package tcp

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// parting is a pair of ends, the second of which leaves, one way or another.
type closingPair struct {
	a, b *end
	ep   *EP
	key  uct.RKey
}

// partings are plain connections, through TLS, and several.
func forClosingPairs(t *testing.T, f func(t *testing.T, p *closingPair)) {
	secret := trusting(testenv.NewAuthority(t))
	for name, cfg := range map[string]Config{"plain": {}, "TLS": secret, "rails": threeRails} {
		t.Run(name, func(t *testing.T) {
			p := &closingPair{a: newEnd(t, cfg), b: newEnd(t, cfg)}
			p.ep, p.key = p.a.to(p.b), p.a.keyOf(p.b)
			send(t, p.ep, 1, 64, p.a, p.b)
			flush(t, p.ep, p.a, p.b)
			f(t, p)
		})
	}
}

// failsWith waits until the EP of the side that stays has failed, and checks how.
func (p *closingPair) failsWith(t *testing.T, want error) {
	t.Helper()
	until(t, func() bool { return len(p.a.errs) == 1 }, p.a)
	err := p.a.errs[0]
	assert.ErrorIs(t, err, want)
	for _, other := range []error{ucs.ErrPeerClosed, ucs.ErrConnReset, ucs.ErrTimedOut} {
		assert.Equal(t, other == want, errors.Is(err, other), "%v: %v", err, other)
	}
	assert.NotContains(t, err.Error(), "\n")
	assert.Contains(t, err.Error(), "tcp lo: ep to "+p.b.address().String()+": ")
	assert.Equal(t, 1, strings.Count(err.Error(), "endpoint has failed"))
	assert.ErrorIs(t, p.ep.AMShort(msgID, 0, nil), want)
}

// address is where the end listens.
func (e *end) address() netip.AddrPort {
	d := deviceAddr{v4: e.it.dev.v4, v6: e.it.dev.v6}
	return e.it.addr.at(&d)
}

// TestLeave_InOrder: operations to a peer that closes end with StatusPeerClosed, and
// so does the EP, whether it is idle, posts, or has much under way.
func TestPeerClose_Graceful(t *testing.T) {
	forClosingPairs(t, func(t *testing.T, p *closingPair) {
		t.Run("idle", func(t *testing.T) {
			p.b.close()
			p.failsWith(t, ucs.ErrPeerClosed)
		})
	})
	forClosingPairs(t, func(t *testing.T, p *closingPair) {
		t.Run("busy", func(t *testing.T) {
			c := newCounter(1)
			pending, err := p.ep.PutZcopy([]uct.IOV{{Buf: p.a.mem.buf}}, p.b.mem.addr, p.key, &c.Completion)
			require.NoError(t, err)
			require.True(t, pending)
			p.b.close()
			p.failsWith(t, ucs.ErrPeerClosed)
			assert.Equal(t, 1, c.fired)
			assert.Equal(t, ucs.StatusPeerClosed, c.Status)
		})
	})
}

// TestLeave_Cut: a connection that ends without BYE was reset, by whatever the kernel
// says at the end of a process.
func TestPeerClose_WithoutBye(t *testing.T) {
	for _, tc := range []struct {
		name  string
		reset bool
	}{{"end of stream", false}, {"reset", true}} {
		t.Run(tc.name, func(t *testing.T) {
			forClosingPairs(t, func(t *testing.T, p *closingPair) {
				c := newCounter(1)
				_, err := p.ep.PutZcopy([]uct.IOV{{Buf: p.a.mem.buf}}, p.b.mem.addr, p.key, &c.Completion)
				require.NoError(t, err)
				require.NoError(t, killSockets(p.b.it, tc.reset))
				p.failsWith(t, ucs.ErrConnReset)
				assert.Equal(t, 1, c.fired)
				assert.Equal(t, ucs.StatusConnReset, c.Status)
			})
		})
	}
}

// TestLeave_FirstConnection: what an EP posts to an address where nobody is any more
// fails with the kernel's answer, not after a time.
func TestDial_RefusedIsUnreachable(t *testing.T) {
	secret := trusting(testenv.NewAuthority(t))
	for name, cfg := range map[string]Config{"plain": {}, "TLS": secret} {
		t.Run(name, func(t *testing.T) {
			p := &closingPair{a: newEnd(t, cfg), b: newEnd(t, cfg)}
			p.ep = p.a.to(p.b)
			require.NoError(t, killSockets(p.b.it, true))
			require.NoError(t, p.ep.AMShort(msgID, 0, nil))
			p.failsWith(t, ucs.ErrUnreachable)
			assert.ErrorIs(t, p.a.errs[0], unix.ECONNREFUSED)
		})
	}
}
