package sockfile

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
