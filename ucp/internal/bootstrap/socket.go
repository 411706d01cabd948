package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/peercred"
	"github.com/gucx/gucx/ucs"
)

// Identity identifies the peer at the other end of a socket.
type Identity struct {
	Network  string         // "tcp" or "unix"
	Addr     netip.AddrPort // tcp: its address
	Name     string         // tcp with TLS: the first URI, DNS name or IP address in its certificate, otherwise the common name
	PID      int            // unix: the process, from the kernel; 0 if it is outside of this process's PID namespace
	UID, GID uint32         // unix: its effective user and group, from the kernel
}

// String returns the identity as text for errors and logs.
func (i Identity) String() string {
	if i.Network == "unix" {
		return fmt.Sprintf("process %d of user %d", i.PID, i.UID)
	}
	if i.Name != "" {
		return i.Name + " at " + i.Addr.String()
	}
	return i.Addr.String()
}

// identify returns the identity of the peer.
func identify(conn net.Conn) (Identity, error) {
	switch c := conn.(type) {
	case *net.UnixConn:
		cred, err := peercred.Of(c)
		return Identity{Network: "unix", PID: cred.PID, UID: cred.UID, GID: cred.GID}, err
	case *net.TCPConn:
		addr, err := netip.ParseAddrPort(c.RemoteAddr().String())
		return Identity{Network: "tcp", Addr: addr}, err
	}
	return Identity{}, fmt.Errorf("socket of type %T: %w", conn, ucs.ErrUnsupported)
}

// addrOf returns the address of a socket; the zero AddrPort if it has no IP address.
func addrOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// permitted reports whether a peer belongs to the effective user of this process, or to one of the
// given users. Over tcp the user is unknown, and every peer is permitted.
func (i Identity) permitted(users []uint32) bool {
	return i.Network != "unix" || i.UID == uint32(os.Geteuid()) || slices.Contains(users, i.UID)
}

// maxUnixLen is the longest address of a unix socket in bytes, abstract or not: sun_path of
// unix(7) less the byte that ends a path.
const maxUnixLen = 107

// checkAddress returns ErrInvalidParam for an unknown network, and
// ErrTooLong for an address for which the kernel's error would be unclear.
func checkAddress(network, address string) error {
	switch {
	case network != "tcp" && network != "unix":
		return fmt.Errorf("network %q, not tcp or unix: %w", network, ucs.ErrInvalidParam)
	case network == "unix" && len(address) > maxUnixLen:
		return fmt.Errorf("%w: %d bytes, where a unix socket has at most %d", ucs.ErrTooLong, len(address), maxUnixLen)
	}
	return nil
}

// past is a deadline that makes blocked reads and writes fail.
var past = time.Unix(1, 0)

// readFull is io.ReadFull with the error of eofError.
func readFull(conn io.Reader, b []byte) error {
	_, err := io.ReadFull(conn, b)
	return eofError(err)
}

// eofError replaces io.EOF and io.ErrUnexpectedEOF by ErrConnReset.
func eofError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it closed the connection during the handshake: %w", ucs.ErrConnReset)
	}
	return err
}

// afterDeadline is a connection whose Read still returns bytes that have arrived when the deadline has passed, because
// a process that was stopped could not read them earlier.
type afterDeadline struct{ net.Conn }

// Read reads; after the deadline it reads without blocking. os.ErrDeadlineExceeded if no bytes have arrived.
func (c afterDeadline) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if n = readNow(c.Conn, b); n > 0 {
		return n, nil
	}
	return 0, err
}

// readNow reads without blocking; 0 if no bytes have arrived, or if conn has no descriptor.
func readNow(conn net.Conn, b []byte) (n int) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // an error means that the connection is closed
		for {
			var err error
			if n, err = unix.Read(int(fd), b); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	return max(n, 0)
}
