package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/internal/engine"
)

// TestProgress_ByTwoGoroutines is found while both are in it, and said in words.
func TestProgress_ByTwoGoroutines(t *testing.T) {
	p, f := fakePair(t, Config{ProgressIdle: true}, likeRC(), likeUD())
	in, leave := make(chan struct{}), make(chan struct{})
	f.ifaces[0].hook = func() {
		close(in)
		<-leave
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		p.a.w.Progress()
	}()
	<-in
	assert.PanicsWithValue(t, engine.TwoAtOnce, func() { p.a.w.Progress() })
	f.ifaces[0].hook = nil
	close(leave)
	<-left
	p.connect().warm()
}

// TestProgress_InACallback is the same.
func TestProgress_InACallback(t *testing.T) {
	p, _ := fakePair(t, Config{}, likeRC(), likeUD())
	told := false
	p.connect().warm()
	p.a.ep.onError = func(e *EP, _ error) {
		told = true
		assert.PanicsWithValue(t, engine.TwoAtOnce, func() { e.w.Progress() })
	}
	require.NoError(t, p.b.w.Close())
	p.until(func() bool { return told })
}
