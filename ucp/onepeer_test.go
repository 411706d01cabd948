package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWindow_OnePeer: the windows of the EPs of one peer worker get at most half of EAGER_BUDGET. Another peer then
// gets its window as before, and what closes returns its part.
func TestWindow_OnePeer(t *testing.T) {
	const extra = 48 << 10 // what a window grows by
	p := newPair(t, fakes("like tcp", likeTCP()), Config{EagerWindow: firstWindow + extra, EagerBudget: 4 * extra})
	w, uuid := p.b.w, p.a.w.addr.UUID()
	send := func(from *Worker) *EP {
		ep, err := from.NewEP(w.Address(), EPConfig{})
		require.NoError(t, err)
		in, err := w.TagRecv(nil, 1, exact, nil, nil)
		require.NoError(t, err)
		out, err := ep.TagSendSync(1, nil, nil)
		require.NoError(t, err)
		p.until(func() bool { from.Progress(); return in.Done() && out.Done() })
		require.NoError(t, in.take())
		require.NoError(t, out.take())
		return ep
	}
	var eps []*EP
	for i := range 6 {
		eps = append(eps, send(p.a.w))
		require.EqualValues(t, min(i+1, 2)*extra, w.names.Granted(uuid))
	}
	c := p.third(p.a.ctx)
	send(c)
	require.EqualValues(t, extra, w.names.Granted(c.addr.UUID()))
	require.EqualValues(t, 3*extra, w.granted)
	for _, ep := range eps {
		require.NoError(t, p.finish(ep.Close(CloseFlush)))
	}
	p.until(func() bool { return w.names.Granted(uuid) == 0 })
	require.EqualValues(t, extra, w.granted)
}
