package tcp

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/ucs"
)

const testToken = "0123456789abcdef"

// TestToken_BothSidesMustMatch: ifaces connect only if both have the same token or both have none,
// also if their addresses were modified. Otherwise the accepting side receives no frame.
func TestToken_BothSidesMustMatch(t *testing.T) {
	for _, tc := range []struct {
		dials, listens string
		ok             bool
		refused        error // at the accepting side
	}{
		{testToken, testToken, true, nil},
		{"", "", true, nil},
		{testToken + "x", testToken, false, errNoToken},
		{"", testToken, false, errNoToken},
		{testToken, "", false, errUnproven},
	} {
		a, b := openEnd(t, "lo", tc.dials, Config{}), openEnd(t, "lo", tc.listens, Config{})
		ok, why := a.it.Reachable(b.it.DeviceAddr(nil), b.it.IfaceAddr(nil))
		assert.Equal(t, (tc.dials == "") == (tc.listens == ""), ok)
		if !ok {
			assert.Contains(t, why, "AUTH_TOKEN")
			b.it.addr.token = a.it.addr.token // so that the addresses do not prevent the connection
		}
		ep := a.to(b)
		require.NoError(t, ep.AMShort(msgID, 1, []byte("frame")))
		until(t, func() bool { return len(b.got)+len(a.errs) > 0 }, a, b)
		if tc.ok {
			assert.Len(t, b.got, 1)
			flush(t, ep, a, b)
			send(t, b.to(a), 2, 64, a, b)
			until(t, func() bool { return len(a.got) == 1 }, a, b)
			continue
		}
		assert.Empty(t, b.got)
		assert.ErrorIs(t, a.errs[0], ucs.ErrRejected)
		assert.ErrorIs(t, b.it.refused.last, tc.refused)
		assert.NotZero(t, b.it.limits.refused.Load())
		assert.Empty(t, b.it.table)
	}
}

// exchange sends b on a new connection to e. It returns the answer, or the bytes that e sends
// before it closes the connection.
func exchange(t *testing.T, e *end, b []byte) (got []byte, conn net.Conn) {
	t.Helper()
	conn = client(t, e)
	_, err := conn.Write(b)
	require.NoError(t, err)
	answer := make(chan []byte, 1)
	go func() {
		got := make([]byte, helloLen)
		n, _ := io.ReadFull(conn, got)
		answer <- got[:n]
	}()
	until(t, func() bool {
		select {
		case got = <-answer:
			return true
		default:
			return false
		}
	}, e)
	return got, conn
}

// TestToken_RejectsReplay: a process that replays a recorded HELLO of a peer with the token gets no
// answer, from the same iface or another one, during and after the connection of the peer.
func TestToken_RejectsReplay(t *testing.T) {
	e, other := openEnd(t, "lo", testToken, Config{}), openEnd(t, "lo", testToken, Config{})
	p := newRawPeer(t)
	p.token = testToken
	h := p.good(e)
	h.number = 3
	recorded := p.proven(t, &e.it.addr.key, h)
	got, conn := exchange(t, e, recorded)
	require.Len(t, got, helloLen)
	for range 2 {
		again, _ := exchange(t, e, recorded)
		assert.Empty(t, again)
		assert.ErrorIs(t, e.it.refused.last, errReplay)
		_ = conn.Close() // the second time it is closed
		until(t, func() bool { return len(e.it.table) == 0 }, e)
	}
	got, _ = exchange(t, other, recorded)
	assert.Empty(t, got)
	assert.ErrorIs(t, other.it.refused.last, errWrongIface)
	h.number = 2
	got, _ = exchange(t, e, p.proven(t, &e.it.addr.key, h))
	assert.Empty(t, got, "an earlier one")
	h.number = 4
	got, _ = exchange(t, e, p.proven(t, &e.it.addr.key, h))
	assert.Len(t, got, helloLen, "a later one of the peer itself")
	h.rail = 1
	got, _ = exchange(t, e, p.proven(t, &e.it.addr.key, h))
	assert.Equal(t, byte(codeRefused), got[offCode], "rails count for themselves")
}

// TestToken_AuthenticatesEachByte: the proof covers each byte of a HELLO.
func TestToken_AuthenticatesEachByte(t *testing.T) {
	e, p := openEnd(t, "lo", testToken, Config{}), newRawPeer(t)
	p.token = testToken
	h := p.good(e)
	h.number = 1
	good := p.proven(t, &e.it.addr.key, h)
	for at := offFrom; at < helloLen; at++ {
		bad := bytes.Clone(good)
		bad[at] ^= 1
		got, _ := exchange(t, e, bad)
		assert.Empty(t, got, at)
	}
	assert.Empty(t, e.it.table)
	assert.Empty(t, e.it.hellos.recent, "what is not proven is not noted")
}

// TestToken_Rails: ifaces with a token can connect to themselves, and can have rails, whose HELLOs
// have separate numbers.
func TestToken_Rails(t *testing.T) {
	cfg := Config{ConnsPerPeer: 4, StripeThresh: 128, SendvThresh: 64}
	a, b := openEnd(t, "lo", testToken, cfg), openEnd(t, "lo", testToken, cfg)
	ep, key := a.to(b), a.keyOf(b)
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	putLarge(t, a, b, ep, key, make([]byte, 4<<10))
	until(t, func() bool { return len(a.it.opening) == 0 }, a, b)
	assert.Len(t, ep.conn.openRails(), 3)
	self := a.to(a)
	send(t, self, 2, 64, a)
	flush(t, self, a)
	assert.Zero(t, b.it.limits.refused.Load())
	assert.Empty(t, append(a.errs, b.errs...))
}

func TestHelloNumbers_RejectReplays(t *testing.T) {
	var n helloNumbers
	key := func(i int) (k keypair.PublicKey) { k[0], k[1], k[2] = byte(i), byte(i>>8), byte(i>>16); return k }
	require.False(t, n.accept(key(1), 0, 0), "0 is no number")
	for i := range 3 * maxHelloSources {
		require.True(t, n.accept(key(i), 0, 7))
		require.False(t, n.accept(key(i), 0, 7))
		require.True(t, n.accept(key(i), 1, 1))
		require.LessOrEqual(t, len(n.recent)+len(n.older), 2*maxHelloSources+2)
	}
	require.True(t, n.accept(key(0), maxPerPeer, 1))
	require.True(t, n.accept(key(0), maxPerPeer, 1), "no iface has such a rail")
}
