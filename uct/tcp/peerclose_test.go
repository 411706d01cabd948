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

// closingPair is a connected pair of which b closes or is killed.
type closingPair struct {
	a, b *end
	ep   *endpoint
	key  uct.RKey
}

// forClosingPairs runs f for connections without TLS, with TLS and with rails.
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

// failsWith waits until the EP of a has failed, and checks the error.
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

// address returns the address at which the end listens.
func (e *end) address() netip.AddrPort {
	d := deviceAddr{v4: e.it.dev.v4, v6: e.it.dev.v6}
	return e.it.addr.at(&d)
}

// TestPeerClose_Graceful: if the peer closes, operations and the EP fail with StatusPeerClosed,
// whether the EP is idle or has operations in flight.
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

// TestPeerClose_WithoutBye: a connection that the kernel closes or resets without BYE fails with
// ErrConnReset.
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

// TestDial_RefusedIsUnreachable: operations to an address without listener fail at once with the
// error of the kernel.
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
