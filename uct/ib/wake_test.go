package ib

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// armed is a completion queue without completions.
type armed struct{}

func (armed) Arm(bool) error { return nil }

// TestWake_RaiseWritesLate: Raise sets its bit before it writes. If Lower runs in between, the next
// Arm reads the eventfd, because otherwise every sleep would end at once.
func TestWake_RaiseWritesLate(t *testing.T) {
	md := domainMD(t)
	var word atomic.Uint32
	var undo cleanup.Stack
	w, err := md.OpenWake(&word, undo.Add)
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
