package uverbs

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Write passes the same bytes and returns the same errors with and without brief.
func TestDeviceFile_Write(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	f := &deviceFile{fd: int(w.Fd())}
	for _, brief := range []bool{false, true} {
		require.NoError(t, f.Write([]byte("command"), brief))
		got := make([]byte, len("command"))
		_, err := io.ReadFull(r, got)
		require.NoError(t, err)
		assert.Equal(t, "command", string(got))
		assert.Equal(t, unix.EBADF, (&deviceFile{fd: int(r.Fd())}).Write([]byte("command"), brief), "the end of the pipe to read from")
	}
	require.NoError(t, w.Close())
	require.NoError(t, r.Close())
}
