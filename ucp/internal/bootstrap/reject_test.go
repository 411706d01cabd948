package bootstrap

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stopped is a connection of a process that is stopped whenever it has set a deadline.
type stopped struct{ net.Conn }

func (c stopped) SetWriteDeadline(at time.Time) error {
	err := c.Conn.SetWriteDeadline(at)
	time.Sleep(time.Hour)
	return err
}

// TestReject_ProcessStopped: a process that is stopped before it has sent a REJECT sends it when it continues.
func TestReject_ProcessStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialer, conn := net.Pipe()
		defer dialer.Close()
		go func() {
			reject(stopped{conn}, CodeForeignUser)
			_ = conn.Close()
		}()
		said, err := io.ReadAll(dialer)
		require.NoError(t, err)
		assert.Equal(t, rejection(CodeForeignUser, nil), said)
	})
}
