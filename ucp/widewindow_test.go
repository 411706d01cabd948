package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// TestWindow_Wide: a peer that sends much gets the wide window if its messages are received as they arrive, and the budgets and
// the configuration permit it.
func TestWindow_Wide(t *testing.T) {
	const usual, tagOfOthers = ucp.DefaultEagerWindow, 7
	const beyond = ucp.WideWindow - ucp.FirstWindow
	for _, tc := range []struct {
		name       string
		cfg        ucp.Config
		unreceived int // bytes
		want       int64
	}{
		{name: "received as they arrive", want: ucp.WideWindow},
		{name: "a fifth of the window unreceived", unreceived: usual / 5, want: ucp.WideWindow},
		{name: "a third unreceived", unreceived: usual / 3, want: usual},
		{name: "configured", cfg: ucp.Config{EagerWindow: usual}, want: usual},
		{name: "a quarter of EagerBudget", cfg: ucp.Config{EagerBudget: 4 * beyond}, want: ucp.WideWindow},
		{name: "more than a quarter", cfg: ucp.Config{EagerBudget: 4*beyond - 4}, want: usual},
		{name: "half of the peer's share", cfg: ucp.Config{PeerBudget: 9 << 20, MaxEPsPerPeer: 1}, want: ucp.WideWindow},
		{name: "more than half of it", cfg: ucp.Config{PeerBudget: 8 << 20, MaxEPsPerPeer: 1}, want: usual},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, _ := ucppair.Fake(t, tc.cfg, faketp.LikeTCP())
			growWindow(p)
			buf := make([]byte, 4000)
			for sent := 0; sent < tc.unreceived; sent += len(buf) {
				require.NoError(t, p.Finish(p.A.EP.TagSend(tagOfOthers, buf, nil)))
			}
			for sent := 0; sent < (ucp.WideAfter+2)*usual/2; sent += len(buf) {
				require.NoError(t, p.Finish(p.A.EP.TagSend(1, buf, nil)))
				require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 1, exact, nil, nil)))
			}
			idle(p)
			assert.LessOrEqual(t, p.A.EP.Messages().Most, tc.want)
			assert.Equal(t, tc.want == ucp.WideWindow, p.A.EP.Messages().Most > usual, "credit of the sender")
			assert.Equal(t, tc.want-ucp.FirstWindow, p.B.W.GrantedCredit())
			require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseForce)))
			p.Until(func() bool { return p.B.W.GrantedCredit() == 0 })
		})
	}
}
