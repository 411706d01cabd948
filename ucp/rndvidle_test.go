package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// TestRndv_SenderIdlesWhileLaneIsFull: while the receiver does not make room for fragments, Progress of the sender returns 0, so that
// it may sleep.
func TestRndv_SenderIdlesWhileLaneIsFull(t *testing.T) {
	for _, set := range []tlsets.Set{tlsets.Real("sm", "sm"), tlsets.Real("rc", `\rc`)} {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{RndvScheme: "am"}).Both()
			buf := make([]byte, 4<<20)
			recv, err := p.B.W.TagRecv(buf, 1, ^uint64(0), nil, nil)
			require.NoError(t, err)
			send, err := p.A.EP.TagSend(1, testenv.Pattern(len(buf), 1), nil)
			require.NoError(t, err)
			for !recv.Done() {
				p.B.W.Progress()
				testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return p.A.W.Progress() == 0 })
			}
			require.NoError(t, p.Finish(send, nil))
			require.NoError(t, p.Finish(recv, nil))
			require.Equal(t, testenv.Pattern(len(buf), 1), buf)
		})
	}
}
