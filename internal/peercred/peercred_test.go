package peercred

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestOf: both ends of a connection within this process are this process.
func TestOf(t *testing.T) {
	name := filepath.Join(testenv.SocketDir(t), "s")
	l, err := net.Listen("unix", name)
	require.NoError(t, err)
	defer l.Close()
	dialed, err := net.Dial("unix", name)
	require.NoError(t, err)
	defer dialed.Close()
	accepted, err := l.Accept()
	require.NoError(t, err)
	defer accepted.Close()
	for _, conn := range []net.Conn{dialed, accepted} {
		cred, err := Of(conn.(*net.UnixConn))
		require.NoError(t, err)
		assert.Equal(t, Cred{os.Getpid(), uint32(os.Geteuid()), uint32(os.Getegid())}, cred)
	}
}

func TestOf_ClosedSocket(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(testenv.SocketDir(t), "s"))
	require.NoError(t, err)
	defer l.Close()
	conn, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	_, err = Of(conn.(*net.UnixConn))
	assert.ErrorIs(t, err, net.ErrClosed)
}
