package attach

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/sockfile"
	"github.com/gucx/gucx/ucs"
)

// network is SOCK_SEQPACKET: a read returns one message.
const network = "unixpacket"

// socketAddr returns the abstract name of a user's port or, if dir is not empty, its file.
// Abstract names belong to a network namespace and exist as long as the
// socket. "@" is the leading zero byte.
func socketAddr(dir, service string, uid uint32, gid [16]byte) *net.UnixAddr {
	if dir != "" {
		return &net.UnixAddr{Name: filepath.Join(dir, filePrefix(service)+hex.EncodeToString(gid[:])), Net: network}
	}
	return &net.UnixAddr{Name: fmt.Sprintf("@gucx-%s/%d/%s", service, uid, hex.EncodeToString(gid[:])), Net: network}
}

func filePrefix(service string) string { return "gucx-" + service + "-" }

// maxPath is the maximum length of the path of a socket: sun_path of the uapi header
// linux/un.h without its zero byte.
const maxPath = 107

func checkSocketDir(dir, service string) error {
	if dir == "" {
		return nil
	}
	if n := len(socketAddr(dir, service, 0, [16]byte{}).Name); n > maxPath {
		return fmt.Errorf("socket directory %q: the path of a socket has %d bytes, at most %d are possible", dir, n, maxPath)
	}
	st, err := os.Stat(dir)
	if err == nil && !st.IsDir() {
		err = unix.ENOTDIR
	}
	if err != nil {
		return fmt.Errorf("socket directory: %w", err)
	}
	return nil
}

// listen opens the port's socket. A file is never accessible to other users without AllowUIDs: fchmod of
// a socket without a name sets the mode that bind uses. With AllowUIDs other users
// can connect, and dispatch checks their UIDs.
func (c *Config) listen() (*net.UnixListener, error) {
	addr := socketAddr(c.SocketDir, c.Service, c.AllowUIDs[0], c.GID)
	if c.SocketDir == "" {
		return net.ListenUnix(network, addr)
	}
	reclaim(c.SocketDir, c.Service)
	cfg := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var modeErr error
		err := raw.Control(func(fd uintptr) { modeErr = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, modeErr)
	}}
	l, err := cfg.Listen(context.Background(), network, addr.Name)
	if err != nil {
		return nil, err
	}
	if len(c.AllowUIDs) > 1 {
		if err := sockfile.SetMode(addr.Name, 0o666); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l.(*net.UnixListener), nil
}

// reclaimAge is the minimum age of a socket file that reclaim removes. For a moment, a new file has no listening
// socket yet.
const reclaimAge = 10 * time.Second

// reclaim removes the files that killed processes of this user have left in dir. It ignores errors, because an
// abandoned file does no harm.
func reclaim(dir, service string) {
	entries, _ := os.ReadDir(dir) // after an error, the entries that were read before it
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), filePrefix(service)) && e.Type() == os.ModeSocket && sockfile.Abandoned(path, reclaimAge) {
			_ = os.Remove(path)
		}
	}
}

// connectAny tries the names of the port for all allowed users.
func (p *Port) connectAny(ctx context.Context, gid [16]byte, slot *dialSlot) (*net.UnixConn, error) {
	for _, uid := range p.cfg.AllowUIDs { // a file has the same name for each user
		conn, err := connectOne(ctx, socketAddr(p.cfg.SocketDir, p.cfg.Service, uid, gid), slot)
		if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
			return conn, err
		}
	}
	return nil, fmt.Errorf("%w: no process listens", ucs.ErrUnreachable)
}
