package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// TestProgress_ByTwoGoroutines: Progress panics with a text if two goroutines are in it at the same time.
func TestProgress_ByTwoGoroutines(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{Study: ucp.Study{ProgressIdle: true}}, faketp.LikeRC(), faketp.LikeUD())
	in, leave := make(chan struct{}), make(chan struct{})
	f.Ifaces[0].Hook = func() {
		close(in)
		<-leave
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		p.A.W.Progress()
	}()
	<-in
	assert.PanicsWithValue(t, uct.TwoAtOnce, func() { p.A.W.Progress() })
	f.Ifaces[0].Hook = nil
	close(leave)
	<-left
	p.Connect().Warm()
}

// TestProgress_InACallback: so does Progress in a callback.
func TestProgress_InACallback(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	panicked := false
	p.Connect().Warm()
	p.A.EP.SetOnError(func(e *ucp.EP, _ error) {
		panicked = true
		assert.PanicsWithValue(t, uct.TwoAtOnce, func() { e.Worker().Progress() })
	})
	require.NoError(t, p.B.W.Close())
	p.Until(func() bool { return panicked })
}

// TestMem_OfAnotherContext: memory that was registered with another Context is handled as unregistered memory, and
// cannot be published.
func TestMem_OfAnotherContext(t *testing.T) {
	few, many := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}), ucppair.New(t, tlsets.Real("self+tcp", "self", "tcp"), ucp.Config{})
	for _, of := range [][2]*ucppair.Pair{{few, many}, {many, few}} {
		mem, p := of[0].A.Mem, of[1]
		p.Connect().Warm()
		copy(mem.Bytes(), testenv.Pattern(tlsets.MemLen, 1))
		with := &ucp.OpParams{Mem: mem}
		for _, n := range []int{8, 5000, tlsets.MemLen} {
			require.NoError(t, p.Finish(p.A.EP.Put(mem.Bytes()[:n], p.B.Mem.Addr(), p.A.Key, with)))
			require.NoError(t, p.Flush())
			testenv.RequireBytes(t, mem.Bytes()[:n], p.B.Mem.Bytes()[:n])
			require.NoError(t, p.Finish(p.A.EP.Get(mem.Bytes()[:n], p.B.Mem.Addr(), p.A.Key, with)))
			sent, err := p.A.EP.TagSend(1, mem.Bytes()[:n], with)
			require.NoError(t, err)
			require.NoError(t, p.Finish(p.B.W.TagRecv(p.B.Mem.Bytes()[:n], 1, exact, nil, &ucp.OpParams{Mem: p.B.Mem})))
			require.NoError(t, p.Finish(sent, nil))
		}
		_, err := p.A.W.Listen(context.Background(), "unix", "@"+t.Name(), ucp.ListenConfig{Keys: map[string]*ucp.Mem{"of another": mem}})
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
	}
}
