package alive

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// TestPeer_Look has the looks at one connection in order.
func TestPeer_Look(t *testing.T) {
	first := unix.TCPInfo{Unacked: 1, Bytes_acked: 100, Snd_wnd: 9}
	lost := first
	lost.Retransmits = 1
	dropped, noWindow := lost, lost
	dropped.Snd_wnd, noWindow.Snd_wnd = 0, 0
	shut := unix.TCPInfo{Notsent_bytes: 1, Bytes_acked: 100}
	probed, silent := shut, shut
	probed.Probes, silent.Probes = lostProbes-1, lostProbes
	for _, tc := range []struct {
		name   string
		before unix.TCPInfo
		info   unix.TCPInfo
		change func(i *unix.TCPInfo, look int)
		want   State // after as many looks as a silent host is given
	}{
		{"nothing under way", first, unix.TCPInfo{Bytes_acked: 100}, nil, Idle},
		{"just sent", first, first, nil, Waiting},
		{"nothing acknowledged", first, lost, nil, Gone},
		{"a little acknowledged", first, lost, func(i *unix.TCPInfo, look int) { i.Bytes_acked += uint64(look / looks) }, Waiting},
		{"talks, acknowledges nothing", first, lost, func(i *unix.TCPInfo, _ int) { i.Segs_in++ }, Gone},
		{"window closed", first, shut, nil, Waiting},
		{"window closed, few probes not answered", first, probed, nil, Waiting},
		{"window closed, probes not answered", first, silent, nil, Gone},
		{"window closed, data dropped", first, dropped, nil, Waiting},
		{"a kernel that does not tell the window", shut, noWindow, nil, Gone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p Peer
			p.Look(&tc.before)
			for look := 1; look < looks; look++ {
				if tc.change != nil {
					tc.change(&tc.info, look)
				}
				assert.NotEqual(t, Gone, p.Look(&tc.info), "look %d", look)
			}
			if tc.change != nil {
				tc.change(&tc.info, looks)
			}
			assert.Equal(t, tc.want, p.Look(&tc.info))
		})
	}
	assert.Equal(t, time.Second, Every(looks*time.Second))
	assert.Equal(t, shortest/looks, Every(time.Millisecond))
}
