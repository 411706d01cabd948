package sm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// openWithout is openStation; without makes it behave as if membarrier were forbidden.
func openWithout(t testing.TB, without bool) *station {
	s := openStation(t, Config{})
	md := s.md.(*domain)
	if !md.expedited {
		s.close(t)
		t.Skip("the kernel refuses membarrier")
	}
	if without {
		md.expedited = false
		md.table.header().expedited.Store(0)
		s.iface.resetControl()
	}
	return s
}

// TestBarriers_WithoutMembarrier: if one side cannot call membarrier, both sides execute real barriers before they load
// the state of the peer.
func TestBarriers_WithoutMembarrier(t *testing.T) {
	for _, without := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprintf("sender %v, receiver %v", without[0], without[1]), func(t *testing.T) {
			a, b := openWithout(t, without[0]), openWithout(t, without[1])
			defer a.close(t)
			defer b.close(t)
			e := a.connect(t, b.exchangedInfo())
			defer func() { require.NoError(t, e.Close()) }()
			either := without[0] || without[1]
			assert.Equal(t, either, e.tx.fenced)
			assert.Equal(t, either, e.fullBarrier)
			b.iface.Progress() // adds the link
			before := b.iface.fence.Load()
			require.NoError(t, e.AMShort(1, 2, nil))
			testenv.ProgressWithin(t, watchdog, func() bool { return b.iface.Progress() > 0 })
			assert.Equal(t, either, b.iface.fence.Load() > before, "between giving slots back and the look")
		})
	}
}
