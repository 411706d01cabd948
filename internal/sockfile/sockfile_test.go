package sockfile

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestAbandoned(t *testing.T) {
	for _, network := range []string{"unix", "unixpacket"} {
		t.Run(network, func(t *testing.T) {
			path := filepath.Join(testenv.SocketDir(t), "s")
			assert.False(t, Abandoned(path, 0), "not there")
			l, err := net.Listen(network, path)
			require.NoError(t, err)
			defer l.Close()
			assert.False(t, Abandoned(path, 0), "listened on")
			l.(*net.UnixListener).SetUnlinkOnClose(false) // as if it had been killed
			require.NoError(t, l.Close())
			assert.False(t, Abandoned(path, time.Hour), "young")
			assert.True(t, Abandoned(path, 0))
			require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(-2*time.Hour)))
			assert.True(t, Abandoned(path, time.Hour))
			require.NoError(t, os.Symlink(path, path+"link"))
			assert.False(t, Abandoned(path+"link", 0), "a link")
		})
	}
}

func TestAbandoned_OtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	assert.False(t, Abandoned(path, 0))
	assert.False(t, Abandoned(filepath.Dir(path), 0))
}

// TestSetMode_NoOtherFile: what a link in the place of a socket leads to keeps its mode.
func TestSetMode_NoOtherFile(t *testing.T) {
	dir := testenv.SocketDir(t)
	private, link, socket := filepath.Join(dir, "private"), filepath.Join(dir, "link"), filepath.Join(dir, "socket")
	require.NoError(t, os.WriteFile(private, nil, 0o600))
	require.NoError(t, os.Symlink(private, link))
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	for _, path := range []string{private, link} {
		assert.ErrorIs(t, SetMode(path, 0o666), unix.ENOTSOCK)
	}
	assert.ErrorIs(t, SetMode(filepath.Join(dir, "none"), 0o666), os.ErrNotExist)
	require.NoError(t, SetMode(socket, 0o666))
	for path, want := range map[string]os.FileMode{private: 0o600, socket: 0o666} {
		st, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, want, st.Mode().Perm(), path)
	}
}
