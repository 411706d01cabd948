package dv

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/log"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// blockInDevice runs f on another goroutine until it calls the device, which blocks it until
// release is called. Then ended gets the result of f. hook is the callback of the device.
func blockInDevice[T any](hook *func(), f func() T) (release func(), ended chan T) {
	inside, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan T, 1)
	*hook = func() { close(inside); <-goOn }
	go func() { ended <- f() }()
	<-inside
	*hook = nil
	return func() { close(goOn) }, ended
}

// TestMisuse_ConcurrentPostFails: in builds with the race detector, a post during the post of
// another goroutine in the same thread domain returns ErrConcurrentPost.
func TestMisuse_ConcurrentPostFails(t *testing.T) {
	if !race.Enabled {
		t.Skip("only builds with the race detector check")
	}
	b := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
	e := newRawEP(b)
	wr := []verbs.SendWR{{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendInline, Inline: pattern(8)}}
	release, ended := blockInDevice(&b.hw.onRing, func() error { _, err := e.sq.PostSend(wr); return err })
	_, listed := e.sq.PostSend(wr)
	for name, err := range map[string]error{
		"put":  e.PutShort(pattern(8), 0, 0),
		"am":   e.AMShort(1, 0, pattern(8)),
		"list": listed,
	} {
		assert.ErrorIs(t, err, ucs.ErrBusy, name)
		assert.ErrorContains(t, err, "post send: qp 0x100: another goroutine posts in its thread domain", name)
	}
	assert.Zero(t, e.PI, "nothing was posted")
	release()
	require.NoError(t, <-ended)
	assert.NoError(t, e.PutShort(pattern(8), 0, 0))
}

// TestMisuse_ConcurrentPollIsLogged: a poll during the poll of another goroutine is logged.
func TestMisuse_ConcurrentPollIsLogged(t *testing.T) {
	if !race.Enabled {
		t.Skip("only builds with the race detector check")
	}
	var lines bytes.Buffer
	log.Use(log.NewLineHandler(&lines))
	t.Cleanup(func() { log.Use(log.NewLineHandler(os.Stderr)) })
	for name, poll := range map[string]func(b *bench) func() int{
		"rc": func(b *bench) func() int {
			it, _ := newRawIface(t, b)
			return it.Progress
		},
		"ud": func(b *bench) func() int {
			q := &udQueues{}
			require.NoError(t, q.open(b.cq))
			return func() int { return q.Poll(make([]verbs.WC, 1)) }
		},
	} {
		lines.Reset()
		b := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
		f := poll(b)
		b.hw.attention = 1
		release, ended := blockInDevice(&b.hw.drive, f)
		assert.Zero(t, f(), name)
		assert.Contains(t, lines.String(), "another goroutine polls a single-threaded completion queue", name)
		release()
		<-ended
		lines.Reset()
		b.hw.attention = 0
		f()
		assert.Empty(t, lines.String(), name)
	}
}

// TestMisuse_TooManyIfaces: each iface of the category Dynamic needs a UAR page. If the device has
// none left, the error says so, and the next iface can use a page that was freed.
func TestMisuse_TooManyIfaces(t *testing.T) {
	dev, err := softhca.NewDevice(softhca.Config{Name: "dev", UARPages: 24})
	require.NoError(t, err)
	list := func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }
	dynamic := ib.PathConfig{Endpoints: ib.EndpointsDynamic}
	md, err := ib.New(list, RC(RCConfig{Config: rc.Config{TxDepth: 16, TxCQDepth: 64, RxDepth: 16, TxBuffers: 16, IB: dynamic}})).OpenMD("dev")
	require.NoError(t, err)
	defer func() { require.NoError(t, md.Close()) }()
	open := func() (uct.Iface, error) {
		return md.OpenIface(uct.IfaceParams{Transport: RCName, Device: "dev:1"})
	}
	var ifaces []uct.Iface
	var it uct.Iface
	for it, err = open(); err == nil; it, err = open() {
		ifaces = append(ifaces, it)
		require.Less(t, len(ifaces), 24)
	}
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
	assert.ErrorContains(t, err, "UAR pages of the device are in use")
	require.NoError(t, ifaces[0].Close())
	ifaces[0], err = open()
	require.NoError(t, err)
	for _, it := range ifaces {
		require.NoError(t, it.Close())
	}
}
