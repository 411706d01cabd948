package ucp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// TestProgress_ByTwoGoroutines: Progress panics with a text if two goroutines are in it at the same time.
func TestProgress_ByTwoGoroutines(t *testing.T) {
	p, f := fakePair(t, Config{Study: Study{ProgressIdle: true}}, faketp.LikeRC(), faketp.LikeUD())
	in, leave := make(chan struct{}), make(chan struct{})
	f.Ifaces[0].Hook = func() {
		close(in)
		<-leave
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		p.a.w.Progress()
	}()
	<-in
	assert.PanicsWithValue(t, uct.TwoAtOnce, func() { p.a.w.Progress() })
	f.Ifaces[0].Hook = nil
	close(leave)
	<-left
	p.connect().warm()
}

// TestProgress_InACallback: so does Progress in a callback.
func TestProgress_InACallback(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	panicked := false
	p.connect().warm()
	p.a.ep.onError = func(e *EP, _ error) {
		panicked = true
		assert.PanicsWithValue(t, uct.TwoAtOnce, func() { e.w.Progress() })
	}
	require.NoError(t, p.b.w.Close())
	p.until(func() bool { return panicked })
}

// TestMem_OfAnotherContext: memory that was registered with another Context is handled as unregistered memory, and
// cannot be published.
func TestMem_OfAnotherContext(t *testing.T) {
	few, many := newPair(t, tlsets.Real("sm", "sm"), Config{}), newPair(t, tlsets.Real("self+tcp", "self", "tcp"), Config{})
	for _, of := range [][2]*pair{{few, many}, {many, few}} {
		mem, p := of[0].a.mem, of[1]
		p.connect().warm()
		copy(mem.Bytes(), pattern(memLen, 1))
		with := &OpParams{Mem: mem}
		for _, n := range []int{8, 5000, memLen} {
			require.NoError(t, p.finish(p.a.ep.Put(mem.Bytes()[:n], p.b.mem.Addr(), p.a.key, with)))
			require.NoError(t, p.flush())
			requireBytes(t, mem.Bytes()[:n], p.b.mem.Bytes()[:n])
			require.NoError(t, p.finish(p.a.ep.Get(mem.Bytes()[:n], p.b.mem.Addr(), p.a.key, with)))
			sent, err := p.a.ep.TagSend(1, mem.Bytes()[:n], with)
			require.NoError(t, err)
			require.NoError(t, p.finish(p.b.w.TagRecv(p.b.mem.Bytes()[:n], 1, exact, nil, &OpParams{Mem: p.b.mem})))
			require.NoError(t, p.finish(sent, nil))
		}
		_, err := p.a.w.Listen(context.Background(), "unix", "@"+t.Name(), ListenConfig{Keys: map[string]*Mem{"of another": mem}})
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
	}
}
