package provider

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/log"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// A goroutine that posts while another is in the middle of a post to the same
// thread domain is told so, in builds that look for races.
func TestPostSend_TwoGoroutinesInADomain(t *testing.T) {
	if !race.Enabled {
		t.Skip("only builds with the race detector look")
	}
	r := newRig(t, mlx5.Config{})
	td, err := r.ctx.AllocTD(verbs.TDInitAttr{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, td.Close()) })
	cq := r.cq(verbs.CQInitAttr{})
	first, second := r.qp(verbs.QPInitAttr{TD: td, SendCQ: cq}), r.qp(verbs.QPInitAttr{TD: td, SendCQ: cq})
	free := r.qp(verbs.QPInitAttr{SendCQ: cq})

	inside, goOn := make(chan struct{}), make(chan struct{})
	entered := false
	r.hw.fail = func(*prm.WQE) prm.Syndrome {
		if !entered {
			entered = true
			close(inside)
			<-goOn
		}
		return prm.SyndromeOK
	}
	done := make(chan error)
	go func() {
		_, err := first.PostSend([]verbs.SendWR{inlineWrite(1, 8)})
		done <- err
	}()
	<-inside
	for name, qp := range map[string]*verbs.QP{"the same QP": first, "another QP of the domain": second} {
		n, err := qp.PostSend([]verbs.SendWR{inlineWrite(2, 8)})
		assert.Zero(t, n, name)
		assert.ErrorIs(t, err, ucs.ErrBusy, name)
		assert.ErrorIs(t, err, mlx5.ErrConcurrentPost, name)
		assert.ErrorContains(t, err, "another goroutine posts in its thread domain", name)
	}
	post(t, free, inlineWrite(3, 8))
	close(goOn)
	require.NoError(t, <-done)
	post(t, second, inlineWrite(4, 8))
}

// A goroutine that polls while another is in the middle of a poll of a queue without
// lock takes nothing, and the log says why.
func TestPoll_TwoGoroutines(t *testing.T) {
	if !race.Enabled {
		t.Skip("only builds with the race detector look")
	}
	var lines bytes.Buffer
	log.Use(log.NewLineHandler(&lines))
	t.Cleanup(func() { log.Use(log.NewLineHandler(os.Stderr)) })
	r := newRig(t, mlx5.Config{})
	alone, locked := r.cq(verbs.CQInitAttr{SingleThreaded: true}), r.cq(verbs.CQInitAttr{})
	qp := r.qp(verbs.QPInitAttr{SendCQ: alone})
	post(t, qp, inlineWrite(1, 8))

	inside, goOn := make(chan struct{}), make(chan struct{})
	r.hw.driving = func() { close(inside); <-goOn }
	r.hw.attention.Store(1)
	done := make(chan int)
	go func() {
		var wc [1]verbs.WC
		done <- alone.Poll(wc[:])
	}()
	<-inside
	assert.Empty(t, poll(t, alone, 1))
	assert.Contains(t, lines.String(), "mlx5: another goroutine polls a single-threaded completion queue")
	lines.Reset()
	assert.Empty(t, poll(t, locked, 1))
	close(goOn)
	assert.Equal(t, 1, <-done)
	post(t, qp, inlineWrite(2, 8))
	assert.Len(t, poll(t, alone, 1), 1)
	assert.Empty(t, lines.String())
}

// Registers and locks of QPs in and outside of thread domains.
func TestRegister(t *testing.T) {
	r := newRig(t, mlx5.Config{TotalUUARs: 4, LowLatUUARs: 2})
	td, err := r.ctx.AllocTD(verbs.TDInitAttr{Sharing: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, td.Close()) })
	cq := r.cq(verbs.CQInitAttr{})
	var got []verbs.Register
	for _, attr := range []verbs.QPInitAttr{{}, {}, {}, {TD: td}, {TD: td}} {
		attr.SendCQ = cq
		reg, ok := r.qp(attr).Register()
		require.True(t, ok)
		got = append(got, reg)
	}
	assert.Equal(t, []verbs.Register{
		{UARPage: 2, UUAR: 0, BlueFlame: true, QueueLock: true}, // low latency
		{UARPage: 2, UUAR: 1, BlueFlame: true, QueueLock: true},
		{UARPage: 1, UUAR: 1, BlueFlame: true, QueueLock: true, RegisterLock: true}, // medium
		{UARPage: 3, UUAR: 0, BlueFlame: true},
		{UARPage: 3, UUAR: 0, BlueFlame: true},
	}, got)
}

func TestSendCounts(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	qp := r.qp(verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 8, MaxInline: 300}})
	post(t, qp, inlineWrite(1, 8))
	post(t, qp, inlineWrite(2, 8), inlineWrite(3, 8), inlineWrite(4, 8))
	post(t, qp, inlineWrite(5, 300)) // too long for the register
	n, err := qp.PostSend([]verbs.SendWR{inlineWrite(6, 8), inlineWrite(7, 2000)})
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, ucs.ErrTooLong)
	assert.ErrorContains(t, err, "inline 2000 bytes, limit")
	got, ok := qp.SendCounts()
	require.True(t, ok)
	assert.Equal(t, verbs.SendCounts{WQEs: 6, Doorbells: 4, BlueFlames: 2}, got)
}
