package alive

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// TestPeer_Look has the looks at one connection in order.
func TestPeer_Look(t *testing.T) {
	lost := unix.TCPInfo{Unacked: 1, Bytes_acked: 100, Segs_in: 5, Snd_wnd: 9}
	talks := lost // data comes from the host, and nothing is acknowledged
	shut := unix.TCPInfo{Notsent_bytes: 1, Bytes_acked: 100, Segs_in: 5}
	probed, dropped := shut, lost // a probe is under way; data was dropped behind a closed window
	probed.Probes, dropped.Snd_wnd = 1, 0
	for _, tc := range []struct {
		name   string
		info   unix.TCPInfo
		change func(i *unix.TCPInfo, look int)
		want   State // after as many looks as a silent host is given, and one
	}{
		{"nothing under way", unix.TCPInfo{Bytes_acked: 100}, nil, Idle},
		{"nothing acknowledged", lost, nil, Gone},
		{"a little acknowledged", lost, func(i *unix.TCPInfo, look int) { i.Bytes_acked += uint64(look / looks) }, Waiting},
		{"talks, acknowledges nothing", talks, func(i *unix.TCPInfo, _ int) { i.Segs_in++ }, Gone},
		{"window closed, no probe now", shut, nil, Waiting},
		{"window closed, probes answered", probed, func(i *unix.TCPInfo, _ int) { i.Segs_in++ }, Waiting},
		{"window closed, probes not answered", probed, nil, Gone},
		{"window closed over data", dropped, func(i *unix.TCPInfo, _ int) { i.Segs_in++ }, Waiting},
		{"window closed over data, no answers", dropped, nil, Gone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Peer{acked: tc.info.Bytes_acked, segs: tc.info.Segs_in}
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
