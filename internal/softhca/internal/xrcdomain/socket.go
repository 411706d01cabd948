package xrcdomain

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/peercred"
	"github.com/gucx/gucx/ucs"
)

// network is SOCK_SEQPACKET: a read returns one message.
const network = "unixpacket"

// Times of a request for the directory.
const (
	responseTimeout = 5 * time.Second       // all members may be stopped
	hedgePause      = 20 * time.Millisecond // before a request to one more member
)

// socketAddr returns the abstract address of a place. "@" is the leading zero byte. The kernel
// removes the address with the process.
func socketAddr(id inode, place int) *net.UnixAddr {
	return &net.UnixAddr{Name: fmt.Sprintf("@gucx-xrcd/%d/%x-%x/%d", os.Geteuid(), id.dev, id.ino, place), Net: network}
}

// sameUser returns an error unless the other side is a process of this user.
func sameUser(conn *net.UnixConn) error {
	cred, err := peercred.Of(conn)
	if err == nil && cred.UID != uint32(os.Geteuid()) {
		err = ucs.ErrRejected
	}
	return err
}

// server sends the directory to each process that connects, and then calls called.
type server struct {
	called   func()
	listener *net.UnixListener
	fd       int // of the directory, with a description without locks, as peers have it open for a while
	done     chan struct{}
}

// serve starts a server at the address of a place, for the directory of fd. The caller still owns fd.
func serve(id inode, place, fd int, called func()) (*server, error) {
	l, err := net.ListenUnix(network, socketAddr(id, place))
	if err != nil {
		return nil, err
	}
	if fd, err = reopen(fd, unix.O_RDWR); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &server{called: called, listener: l, fd: fd, done: make(chan struct{})}
	go s.accept()
	return s, nil
}

// acceptPause is the pause of a process that is out of descriptors.
const acceptPause = 10 * time.Millisecond

// accept replies to connections until the listener is closed. It reads nothing from them, and the
// write does not block, as it is the first message of the socket.
func (s *server) accept() {
	defer close(s.done)
	for {
		conn, err := s.listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(acceptPause)
			continue
		}
		if sameUser(conn) == nil {
			_, _, _ = conn.WriteMsgUnix([]byte{layoutVersion}, unix.UnixRights(s.fd), nil) // the peer may be gone
		}
		_ = conn.Close()
		s.called()
	}
}

// Call makes the members of a domain at the given places run called, see Join. It does not wait for
// them: a stopped member runs it when it continues.
func Call(key Key, places []int) {
	d := dialer{fd: -1}
	defer d.close()
	for _, place := range places {
		if conn, err := d.dial(inode{key.Dev, key.Ino}, place); err == nil {
			_ = conn.Close()
		} // else the member is gone, or its queue of calls is full
	}
}

// close stops the server and waits for it.
func (s *server) close() error {
	err := s.listener.Close()
	<-s.done
	return errors.Join(err, os.NewSyscallError("close", unix.Close(s.fd)))
}
