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
	Name     string         // tcp with TLS: the first URI, DNS name or IP address in its certificate, or else the common name
	PID      int            // unix: the process, from the kernel; 0 if it is outside of our PID namespace
	UID, GID uint32         // unix: its effective user and group, from the kernel
}

// String names the peer for people.
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

// addrOf is an address of a socket; the zero AddrPort if it has no IP address.
func addrOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// permitted reports whether a peer belongs to this process's effective user, or to one of the
// users. Over tcp the user is unknown and always permitted.
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

// receive reads a message without a proof.
func receive(conn net.Conn) (header, []byte, error) { return (*session)(nil).receive(conn) }

// readFull is io.ReadFull with the end of the stream as an error of this protocol.
func readFull(conn io.Reader, b []byte) error {
	_, err := io.ReadFull(conn, b)
	return atEnd(err)
}

// atEnd is err with the end of the stream as an error of this protocol.
func atEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it hung up in the middle of the handshake: %w", ucs.ErrConnReset)
	}
	return err
}

// arrived is a connection from which bytes that have arrived can be read after the deadline: a
// process that was stopped could not read them earlier.
type arrived struct{ net.Conn }

// Read reads; after the deadline it reads without blocking. os.ErrDeadlineExceeded if there was nothing.
func (c arrived) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if n = readNow(c.Conn, b); n > 0 {
		return n, nil
	}
	return 0, err
}

// readNow reads without blocking; 0 if there is nothing, or no descriptor.
func readNow(conn net.Conn, b []byte) (n int) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // an error means that it is closed
		for {
			var err error
			if n, err = unix.Read(int(fd), b); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	return max(n, 0)
}
