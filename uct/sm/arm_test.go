package sm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// idlePeers are numbers of peers on both sides of attentionMin.
var idlePeers = []int{1, attentionMin, attentionMin + 1, 100}

// connectIdle connects peers ifaces of one domain to s, which send nothing. Each says
// what it would send when s polls its link already.
func connectIdle(t testing.TB, s *station, peers int) {
	t.Helper()
	other := openStation(t, Config{})
	t.Cleanup(func() { other.close(t) })
	for i := range peers {
		it := other.open(t, nil)
		t.Cleanup(func() { require.NoError(t, it.Close()) })
		ep, err := it.NewEP(uct.EPParams{DeviceAddr: s.iface.DeviceAddr(nil), IfaceAddr: s.iface.IfaceAddr(nil)})
		require.NoError(t, err)
		_ = ep.(*EP).refused() // dials
		testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return len(s.iface.in) == i+1 })
		testenv.ProgressWithin(t, watchdog, func() bool { it.Progress(); return ep.(*EP).state == epUp })
	}
}

// arm arms s once, after Progress has had a few turns.
func arm(it *Iface) error {
	for range 4 {
		it.Progress()
	}
	return it.Arm(uct.EventRecv | uct.EventSendComp)
}

// TestArm_IdlePeers: links that have said what they send, and nothing else, keep
// nobody awake.
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

// TestArm_PeerThatDoesNotMark: what Arm sees, Progress takes.
func TestArm_PeerThatDoesNotMark(t *testing.T) {
	s := openStation(t, Config{})
	defer s.close(t)
	connectIdle(t, s, attentionMin+1)
	require.NoError(t, arm(s.iface))
	for _, l := range s.iface.in {
		l.rx.hdr.ready.Store(1)
		l.rx = newConsumer(l.in.Seg.Bytes()) // as if it had just come
	}
	require.Equal(t, uct.ErrBusy, s.iface.Arm(uct.EventRecv))
	assert.NoError(t, arm(s.iface))
}
