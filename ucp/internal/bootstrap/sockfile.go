package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/sockfile"
	"github.com/gucx/gucx/ucs"
)

// Modes of a socket file. Connecting requires write permission.
const (
	ownerMode  fs.FileMode = 0o600
	publicMode fs.FileMode = 0o666
)

// reclaimAge is the minimum age of a socket file that may be removed: longer than the time of a process
// from bind to listen.
const reclaimAge = time.Second

// listenFile listens on a socket file. Without public only this user can connect.
func listenFile(ctx context.Context, path string, public bool) (net.Listener, error) {
	l, err := bindFile(ctx, path)
	if errors.Is(err, syscall.EADDRINUSE) && reclaim(path) {
		l, err = bindFile(ctx, path)
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%w: another process listens there, or the file is not the socket of a killed process", err)
	case err != nil || !public:
		return l, err
	}
	if err := sockfile.SetMode(path, publicMode); err != nil {
		return nil, ucs.Join(err, l.Close())
	}
	return l, nil
}

// bindFile makes the socket and its file, which only this user can access from the beginning: fchmod of
// an unbound socket sets the mode that bind uses.
func bindFile(ctx context.Context, path string) (net.Listener, error) {
	cfg := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var modeErr error
		err := raw.Control(func(fd uintptr) { modeErr = unix.Fchmod(int(fd), uint32(ownerMode)) })
		return errors.Join(err, modeErr)
	}}
	return cfg.Listen(ctx, "unix", path)
}

// reclaim removes a socket file of a killed process of this user, and reports
// whether it did. The lock prevents another process in reclaim from removing the file
// that this process creates next.
func reclaim(path string) bool {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return false
	}
	defer dir.Close()
	if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	return sockfile.Abandoned(path, reclaimAge) && os.Remove(path) == nil
}
