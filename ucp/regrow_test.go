package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
)

// TestWindow_GrowsWhenThereIsBudget: a connection without budget gets its full window when another one has closed. It
// checks the budget as often as it returns credit for half a window.
func TestWindow_GrowsWhenThereIsBudget(t *testing.T) {
	const window = 64 << 10
	p, _ := fakePair(t, Config{EagerWindow: window, EagerBudget: window - firstWindow}, faketp.LikeTCP())
	p.grown()
	late := end{w: p.a.w}
	late.dial(t, &p.b)
	send := func() {
		require.NoError(t, p.finish(late.ep.TagSend(0, make([]byte, 1000), nil)))
		require.NoError(t, p.finish(p.b.w.TagRecv(make([]byte, 1000), 0, exact, nil, nil)))
	}
	for range 100 {
		send()
	}
	require.LessOrEqual(t, late.ep.msgs.Most, int64(firstWindow), "the other one has the budget")
	require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	p.until(func() bool { return p.b.w.eps.Len() == 1 })
	for range 2 * firstWindow / 1000 {
		send()
	}
	p.idle()
	require.Greater(t, late.ep.msgs.Most, int64(firstWindow))
	require.LessOrEqual(t, late.ep.msgs.Most, int64(window))
	require.Equal(t, int64(window-firstWindow), p.b.w.messages.granted)
}
