package machine

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWaited(t *testing.T) {
	file := filepath.Join(t.TempDir(), "schedstat")
	require.NoError(t, os.WriteFile(file, []byte("165918 1637370 4\n"), 0o600))
	got, err := waited(file)
	require.NoError(t, err)
	assert.Equal(t, 1637370*time.Nanosecond, got)
	require.NoError(t, os.WriteFile(file, []byte("none\n"), 0o600))
	_, err = waited(file)
	assert.ErrorContains(t, err, file)
	_, err = waited(filepath.Join(t.TempDir(), "absent"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestLoadWatch(t *testing.T) {
	if _, err := os.Stat("/proc/thread-self/schedstat"); err != nil {
		t.Skip(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w := WatchLoad(os.Getpid())
	load := w.Load()
	require.NotNil(t, load)
	assert.GreaterOrEqual(t, load.Initiator, 0.0)
	w.initiator, w.target, w.started = w.initiator-time.Hour, w.target-2*time.Hour, time.Now().Add(-10*time.Hour)
	load = w.Load()
	assert.InDelta(t, 0.1, load.Initiator, 0.01)
	assert.InDelta(t, 0.2, load.Target, 0.01)
	assert.Nil(t, (&LoadWatch{}).Load(), "without statistics at the start")
}
