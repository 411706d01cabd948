package sm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// TestIfaceClose_FailsPeersGracefully: after the iface of the peer was closed, pending and later operations fail with
// ErrPeerClosed.
func TestIfaceClose_FailsPeersGracefully(t *testing.T) {
	a, b := openStation(t, Config{CMA: config.No}), openStation(t, Config{})
	var failures []error
	a2 := &station{md: a.md, iface: a.open(t, func(_ uct.EP, err error) { failures = append(failures, err) })}
	e, key := a2.connect(t, b.exchangedInfo()), a.key(t, b.exchangedInfo())
	w := &two{t: t, a: a, b: b}
	mem, far := w.register(4096, uct.AccessAll)
	c := newCompletion()
	pending, err := e.GetZcopy([]uct.IOV{{Buf: make([]byte, 64)}}, mem.Addr(), far, &c.Completion)
	require.NoError(t, err)
	require.True(t, pending)
	raddr := b.mem.Addr()
	require.NoError(t, mem.Close())
	b.close(t)

	assert.Equal(t, uct.ErrNoResource, e.PutShort([]byte{1}, raddr, key), "the key has gone with its owner")
	testenv.ProgressWithin(t, watchdog, func() bool { a2.iface.Progress(); return len(failures) > 0 })
	require.Len(t, failures, 1)
	assert.ErrorIs(t, failures[0], ucs.ErrPeerClosed)
	assert.NotErrorIs(t, failures[0], ucs.ErrConnReset)
	assert.Equal(t, 1, c.fired)
	assert.Equal(t, ucs.StatusPeerClosed, c.Status)
	assert.ErrorIs(t, e.PutShort([]byte{1}, raddr, key), ucs.ErrPeerClosed)
	require.NoError(t, a2.iface.Close())
	a.close(t)
}

// TestProcess_ExitAndKill: the errors after a process has closed everything and exited, and after one
// was killed.
func TestProcess_ExitAndKill(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(c *child, t testing.TB)
		want error
	}{
		{"in order", (*child).End, ucs.ErrPeerClosed},
		{"killed", (*child).Kill, ucs.ErrConnReset},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openStation(t, Config{})
			var failures []error
			other := &station{md: s.md, iface: s.open(t, func(_ uct.EP, err error) { failures = append(failures, err) }), mem: s.mem}
			c := start(t, roleEcho, other, "")
			e := other.connect(t, c.exchangedInfo)
			tc.end(c, t)
			testenv.ProgressWithin(t, watchdog, func() bool { other.iface.Progress(); return len(failures) > 0 })
			assert.ErrorIs(t, failures[0], tc.want)
			require.NoError(t, e.Close())
			require.NoError(t, other.iface.Close())
			s.close(t)
		})
	}
}
