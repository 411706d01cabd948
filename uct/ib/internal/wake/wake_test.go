package wake

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func openContext(t *testing.T) *verbs.Context {
	t.Helper()
	d, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
	require.NoError(t, err)
	ctx, err := d.Open()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ctx.Close()) })
	return ctx
}

func TestWake(t *testing.T) {
	ctx := openContext(t)
	var word atomic.Uint32
	word.Store(5)
	var undo cleanup.Stack
	w, err := Open(ctx, &word, undo.Add)
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(verbs.CQInitAttr{Depth: 4, Channel: w.Channel()})
	require.NoError(t, err)
	require.NoError(t, w.Arm(cq, 0))
	assert.False(t, testenv.Readable(t, w.FD(), 0))

	done := make(chan struct{})
	go func() { w.Raise(); w.Raise(); close(done) }()
	<-done
	assert.True(t, w.Pending())
	assert.True(t, testenv.Readable(t, w.FD(), 0))
	assert.Equal(t, uct.ErrBusy, w.Arm(cq, 0))
	w.Lower()
	w.Lower()
	assert.False(t, w.Pending())
	assert.False(t, testenv.Readable(t, w.FD(), 0))
	assert.EqualValues(t, 5, word.Load(), "the other bits belong to the iface")

	require.NoError(t, w.Arm(cq, time.Microsecond))
	assert.True(t, testenv.Readable(t, w.FD(), testenv.Watchdog), "the timer")
	require.NoError(t, w.Arm(cq, 0))
	assert.False(t, testenv.Readable(t, w.FD(), 0), "no timer")
	require.NoError(t, errors.Join(cq.Close(), undo.Run()))
}

// armed is a completion queue without completions.
type armed struct{}

func (armed) Arm(bool) error { return nil }

// TestWake_RaiseWritesLate: Raise sets its bit before it writes. If Lower runs in between, the next
// Arm reads the eventfd, because otherwise every sleep would end at once.
func TestWake_RaiseWritesLate(t *testing.T) {
	ctx := openContext(t)
	var word atomic.Uint32
	var undo cleanup.Stack
	w, err := Open(ctx, &word, undo.Add)
	require.NoError(t, err)
	defer func() { assert.NoError(t, undo.Run()) }()
	sleeps := func() bool { return w.Arm(armed{}, 0) == nil && !testenv.Readable(t, w.FD(), 0) }

	word.Or(Raised) // the first half of Raise
	w.Lower()
	w.Raise() // Raise of another goroutine
	w.Lower()
	require.True(t, sleeps())
	_, err = unix.Write(w.event, binary.NativeEndian.AppendUint64(nil, 1)) // the second half
	require.NoError(t, err)
	require.True(t, testenv.Readable(t, w.FD(), 0))
	assert.True(t, sleeps())

	w.Raise()
	assert.Equal(t, uct.ErrBusy, w.Arm(armed{}, 0))
	_, err = unix.Read(w.event, make([]byte, 8))
	assert.NoError(t, err, "Lower must read what Raise has written")
	w.Lower()
}
