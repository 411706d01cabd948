package sm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// idlePeers are numbers of peers below and above attentionMin.
var idlePeers = []int{1, attentionMin, attentionMin + 1, 100}

// connectIdle connects several ifaces of one domain to s, which send no messages. Their links are initialized when s
// polls them already.
func connectIdle(t testing.TB, s *station, peers int) {
	t.Helper()
	other := openStation(t, Config{})
	t.Cleanup(func() { other.close(t) })
	for i := range peers {
		it := other.open(t, nil)
		t.Cleanup(func() { require.NoError(t, it.Close()) })
		ep, err := it.NewEP(uct.EPParams{DeviceAddr: s.iface.DeviceAddr(nil), IfaceAddr: s.iface.IfaceAddr(nil)})
		require.NoError(t, err)
		_ = ep.(*endpoint).postError() // dials
		testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return len(s.iface.in) == i+1 })
		testenv.ProgressWithin(t, watchdog, func() bool { it.Progress(); return ep.(*endpoint).state == epUp })
	}
}

// arm arms s once, after a few calls of Progress.
func arm(it *iface) error {
	for range 4 {
		it.Progress()
	}
	return it.Arm(uct.EventRecv | uct.EventSendComp)
}

// TestArm_IdlePeers: initialized links without messages do not prevent a sleep.
func TestArm_IdlePeers(t *testing.T) {
	for _, peers := range idlePeers {
		t.Run(fmt.Sprint(peers), func(t *testing.T) {
			testenv.NeedDescriptors(t, uint64(100+10*peers))
			s := openStation(t, Config{})
			defer s.close(t)
			connectIdle(t, s, peers)
			assert.NoError(t, arm(s.iface))
		})
	}
}

// TestArm_PeerWithoutAttentionWord: Progress delivers a message for which Arm has returned ErrBusy.
func TestArm_PeerWithoutAttentionWord(t *testing.T) {
	s := openStation(t, Config{})
	defer s.close(t)
	connectIdle(t, s, attentionMin+1)
	require.NoError(t, arm(s.iface))
	for _, l := range s.iface.in {
		l.rx.hdr.ready.Store(1)
		l.rx = newConsumer(l.in.Seg.Bytes()) // as a new link
	}
	require.Equal(t, uct.ErrBusy, s.iface.Arm(uct.EventRecv))
	assert.NoError(t, arm(s.iface))
}
