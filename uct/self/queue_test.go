package self

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// fill posts until the queue is full, and returns the number of messages.
func (r *rig) fill(t testing.TB) (n int) {
	t.Helper()
	for ; n <= defaultFIFOSize; n++ {
		if err := r.ep.AMShort(1, 1, nil); err != nil {
			require.Equal(t, uct.ErrNoResource, err)
			return n
		}
	}
	return n
}

// TestQueue_Depth: the queue accepts exactly its depth of messages, also after a message of any length has woken its
// owner.
func TestQueue_Depth(t *testing.T) {
	r := openRig(t)
	buf := make([]byte, 20)
	for name, post := range map[string]func() error{
		"short": func() error { return r.ep.AMShort(1, 1, nil) },
		"words": func() error { return r.ep.AMWords(1, 1, 2, buf[:8]) },
		"long":  func() error { return r.ep.AMShort(1, 1, buf) },
		"bcopy": func() error { _, err := r.ep.AMBcopy(1, packer(buf)); return err },
	} {
		require.Equal(t, defaultFIFOSize, r.fill(t), name)
		require.Equal(t, defaultFIFOSize, r.iface.Progress(), name)
		require.NoError(t, r.iface.Arm(uct.EventRecv), name)
		require.NoError(t, r.iface.Arm(uct.EventRecv), "%s: again", name)
		require.Equal(t, uct.ErrBusy, r.ep.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error { return nil }}), name)
		require.Zero(t, r.iface.Progress(), name)
		require.False(t, testenv.Readable(t, r.iface.EventFD(), 0), name)
		require.NoError(t, post(), name)
		require.True(t, testenv.Readable(t, r.iface.EventFD(), 0), name)
		require.Equal(t, defaultFIFOSize-1, r.fill(t), name)
		require.Equal(t, defaultFIFOSize, r.iface.Progress(), name)
	}
}

// TestQueue_SlotOfHandler: the slot of a running handler is in use, earlier slots are free.
func TestQueue_SlotOfHandler(t *testing.T) {
	r := openRig(t)
	var took []int
	require.NoError(t, r.iface.SetAMHandler(2, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		took = append(took, r.fill(t))
		return false
	})))
	require.NoError(t, r.ep.AMShort(2, 1, nil))
	require.NoError(t, r.ep.AMShort(2, 1, nil))
	require.Equal(t, defaultFIFOSize-2, r.fill(t))
	require.Equal(t, defaultFIFOSize, r.iface.Progress())
	assert.Equal(t, []int{0, 1}, took)
	require.Equal(t, 1, r.iface.Progress(), "what a handler posts is for the next one")
}

// TestQueue_EveryHeader: each message arrives with its header, whatever was in its
// slot before, and whether or not it wakes the owner of the queue.
func TestQueue_EveryHeader(t *testing.T) {
	r := openRig(t)
	var got [][]byte
	require.NoError(t, r.iface.SetAMHandler(1, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
		got = append(got, bytes.Clone(data))
		return false
	})))
	payload := []byte{1, 2, 3}
	send := func(i uint64) (want []byte, err error) {
		want = binary.LittleEndian.AppendUint64(nil, i)
		switch i % 4 {
		case 0:
			return want, r.ep.AMShort(1, i, nil)
		case 1:
			return append(want, payload...), r.ep.AMShort(1, i, payload)
		case 2:
			return binary.LittleEndian.AppendUint64(want, ^i), r.ep.AMWords(1, i, ^i, nil)
		}
		want = binary.LittleEndian.AppendUint64(want, ^i)
		return append(want, payload...), r.ep.AMWords(1, i, ^i, payload)
	}
	var want [][]byte
	for i := uint64(1); i <= 4*defaultFIFOSize+3; i++ {
		if i%5 == 0 {
			require.Equal(t, len(want)-len(got), r.iface.Progress())
			require.NoError(t, r.iface.Arm(uct.EventRecv))
		}
		msg, err := send(i)
		require.NoError(t, err)
		want = append(want, msg)
	}
	r.iface.Progress()
	assert.Equal(t, want, got)
}

// TestProgress_InsideCallbacks: Progress detects a call from a pending request too.
func TestProgress_InsideCallbacks(t *testing.T) {
	r := openRig(t)
	r.fill(t)
	var got any
	require.NoError(t, r.ep.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error {
		defer func() { got = recover() }()
		r.iface.Progress()
		return nil
	}}))
	r.iface.Progress()
	assert.Equal(t, uct.TwoAtOnce, got)
	assert.Zero(t, r.iface.Progress(), "nothing is left")
	require.NoError(t, r.ep.AMShort(1, 1, nil))
	assert.Equal(t, 1, r.iface.Progress())
}
