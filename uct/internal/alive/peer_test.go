package alive

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// TestPeer_Check makes checks of one connection.
func TestPeer_Check(t *testing.T) {
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
		change func(i *unix.TCPInfo, check int)
		want   State // after maxSilent checks
	}{
		{"all acknowledged", first, unix.TCPInfo{Bytes_acked: 100}, nil, Idle},
		{"just sent", first, first, nil, Waiting},
		{"nothing acknowledged", first, lost, nil, Gone},
		{"a little acknowledged", first, lost, func(i *unix.TCPInfo, check int) { i.Bytes_acked += uint64(check / maxSilent) }, Waiting},
		{"sends, acknowledges nothing", first, lost, func(i *unix.TCPInfo, _ int) { i.Segs_in++ }, Gone},
		{"window closed", first, shut, nil, Waiting},
		{"window closed, few probes not answered", first, probed, nil, Waiting},
		{"window closed, probes not answered", first, silent, nil, Gone},
		{"window closed, data dropped", first, dropped, nil, Waiting},
		{"a kernel that does not report the window", shut, noWindow, nil, Gone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p Peer
			p.Check(&tc.before)
			for check := 1; check < maxSilent; check++ {
				if tc.change != nil {
					tc.change(&tc.info, check)
				}
				assert.NotEqual(t, Gone, p.Check(&tc.info), "check %d", check)
			}
			if tc.change != nil {
				tc.change(&tc.info, maxSilent)
			}
			assert.Equal(t, tc.want, p.Check(&tc.info))
		})
	}
	assert.Equal(t, time.Second, CheckInterval(maxSilent*time.Second))
	assert.Equal(t, minTimeout/maxSilent, CheckInterval(time.Millisecond))
}
