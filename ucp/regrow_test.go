package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// TestWindow_GrowsWhenThereIsBudget: a connection without budget gets its full window when another one has closed. It
// checks the budget as often as it returns credit for half a window.
func TestWindow_GrowsWhenThereIsBudget(t *testing.T) {
	const window = 64 << 10
	p, _ := ucppair.Fake(t, ucp.Config{EagerWindow: window, EagerBudget: window - ucp.FirstWindow}, faketp.LikeTCP())
	growWindow(p)
	late := ucppair.End{W: p.A.W}
	late.Dial(t, &p.B)
	send := func() {
		require.NoError(t, p.Finish(late.EP.TagSend(0, make([]byte, 1000), nil)))
		require.NoError(t, p.Finish(p.B.W.TagRecv(make([]byte, 1000), 0, exact, nil, nil)))
	}
	for range 100 {
		send()
	}
	require.LessOrEqual(t, late.EP.Messages().Most, int64(ucp.FirstWindow), "the other one has the budget")
	require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
	p.Until(func() bool { return p.B.W.EPs().Len() == 1 })
	for range 2 * ucp.FirstWindow / 1000 {
		send()
	}
	idle(p)
	require.Greater(t, late.EP.Messages().Most, int64(ucp.FirstWindow))
	require.LessOrEqual(t, late.EP.Messages().Most, int64(window))
	require.Equal(t, int64(window-ucp.FirstWindow), p.B.W.GrantedCredit())
}
