package tcp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// TestOpenWithin: this side connects no longer than both the configuration and the caller say, and waits for the
// peer no less than either.
func TestOpenWithin(t *testing.T) {
	known := path{remote: netip.AddrPortFrom(usualV4, 7)}
	for _, tc := range []struct {
		name         string
		path         path
		within, want time.Duration
	}{
		{"connects", known, 0, time.Second}, {"connects", known, time.Minute, time.Second},
		{"connects", known, time.Millisecond, time.Millisecond},
		{"waits", path{}, 0, time.Second}, {"waits", path{}, time.Minute, time.Minute},
		{"waits", path{}, time.Millisecond, time.Second},
	} {
		c := &conn{it: &Iface{cfg: Config{ConnTimeout: time.Second}}, path: tc.path, within: tc.within}
		assert.Equal(t, tc.want, c.openWithin(), "%s within %v", tc.name, tc.within)
	}
}

// TestDial_Within: a peer that accepts no connection is given up after EPParams.Within, not after CONN_TIMEOUT.
func TestDial_Within(t *testing.T) {
	a, b := newEnd(t, Config{ConnTimeout: time.Hour}), newEnd(t, Config{})
	ep, err := a.it.NewEP(uct.EPParams{DeviceAddr: b.it.DeviceAddr(nil), IfaceAddr: b.it.IfaceAddr(nil), Dial: uct.DialNow, Within: time.Millisecond})
	require.NoError(t, err)
	a.eps = append(a.eps, ep.(*EP))
	until(t, func() bool { return len(a.errs) == 1 }, a) // b makes no progress
	assert.ErrorIs(t, a.errs[0], ucs.ErrTimedOut)
}
