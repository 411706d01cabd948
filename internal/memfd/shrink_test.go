package memfd

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

// TestInspect_ShrinksMeanwhile: a peer may cut its file short at any time before it seals it. The
// length that counts is the one that the seals have fixed.
func TestInspect_ShrinksMeanwhile(t *testing.T) {
	size := int64(os.Getpagesize())
	var file, turn atomic.Int64
	peer := make(chan struct{})
	go func() {
		defer close(peer)
		for n := int64(1); ; n++ {
			for turn.Load() < n {
				runtime.Gosched()
			}
			fd := int(file.Load())
			if fd < 0 {
				return
			}
			for i := range n % 512 { // at any moment of the look
				runtime.KeepAlive(i)
			}
			_ = unix.Ftruncate(fd, 0)
			_ = addSeals(fd, fixedLen)
			file.Store(-1)
		}
	}()
	for range testenv.Rounds(5_000, 200_000) {
		fd, err := newFile("shrinks", 0)
		require.NoError(t, err)
		require.NoError(t, unix.Ftruncate(fd, size))
		file.Store(int64(fd))
		turn.Add(1)
		f, err := inspect(fd)
		for file.Load() >= 0 {
			runtime.Gosched()
		}
		require.NoError(t, unix.Close(fd))
		if err == nil {
			require.Zero(t, f.size, "longer than the file")
		}
	}
	file.Store(-1)
	turn.Add(1)
	<-peer
}
