package sm

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// TestMDClose_PeerGoesAtThatMoment: the goroutine of a link may be on its way to say that the
// peer has gone while the domain closes. What was in quarantine is the peer's alone by then.
func TestMDClose_PeerGoesAtThatMoment(t *testing.T) {
	a, b := openStation(t, Config{}), openStation(t, Config{})
	e := a.connect(t, b.exchangedInfo())
	md := b.md.(*domain)
	victim, err := md.Alloc(4096, uct.AccessAll)
	require.NoError(t, err)
	e.enter(handle(victim))
	require.NoError(t, b.iface.Close())
	require.NoError(t, victim.Close())
	require.NoError(t, b.mem.Close())
	require.EqualValues(t, 1, md.owner.Quarantined.Load())
	links := slices.Collect(maps.Keys(md.links))
	require.Len(t, links, 1)

	require.NoError(t, md.Close())
	md.peerGone(links[0])
	e.endVisit()
	require.NoError(t, e.Close())
	a.close(t)
}

// TestMDClose_NothingAfter: a domain that is closed gives no memory, and touches none.
func TestMDClose_NothingAfter(t *testing.T) {
	s := openStation(t, Config{})
	s.close(t)
	_, err := s.md.Ext().Alloc.Alloc(4096, uct.AccessAll)
	assert.ErrorIs(t, err, uct.ErrClosed)
	_, err = s.md.Ext().Reg.Reg(make([]byte, 4096), uct.AccessAll)
	assert.ErrorIs(t, err, uct.ErrClosed)
	_, err = s.md.OpenIface(uct.IfaceParams{Transport: Name, Device: DeviceName})
	assert.ErrorIs(t, err, uct.ErrClosed)
	assert.NoError(t, s.md.Close(), "once more")
}
