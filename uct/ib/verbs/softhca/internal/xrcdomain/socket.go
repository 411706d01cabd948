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

// Times of those who take the directory from a member.
const (
	responseTimeout = 5 * time.Second       // all that were asked are stopped
	hedgePause      = 20 * time.Millisecond // before the next is asked besides
)

// socketAddr is the abstract name of a place. "@" stands for the leading zero byte; the
// name goes with the process.
func socketAddr(id inode, place int) *net.UnixAddr {
	return &net.UnixAddr{Name: fmt.Sprintf("@gucx-xrcd/%d/%x-%x/%d", os.Geteuid(), id.dev, id.ino, place), Net: network}
}

// sameUser makes sure that the other end is a process of this user.
func sameUser(conn *net.UnixConn) error {
	cred, err := peercred.Of(conn)
	if err == nil && cred.UID != uint32(os.Geteuid()) {
		err = ucs.ErrRejected
	}
	return err
}

// server gives the directory to those who connect, and calls the member then.
type server struct {
	called   func()
	listener *net.UnixListener
	fd       int // of the directory, and of a description that has no locks: peers keep it for a while
	done     chan struct{}
}

// serve starts a server on the name of a place, for the directory behind fd, which stays
// the caller's.
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

// acceptPause is how long a process that is out of descriptors waits.
const acceptPause = 10 * time.Millisecond

// accept answers connections until the listener is closed. Nothing is read from them, and
// nothing blocks: the message is the first of its socket.
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
			_, _, _ = conn.WriteMsgUnix([]byte{layoutVersion}, unix.UnixRights(s.fd), nil) // it may be gone
		}
		_ = conn.Close()
		s.called()
	}
}

// Call has the members of a domain at some places called, as Join says. It does not wait for
// them: one that is stopped is called when it goes on.
func Call(key Key, places []int) {
	d := dialer{fd: -1}
	defer d.close()
	for _, place := range places {
		if conn, err := d.dial(inode{key.Dev, key.Ino}, place); err == nil {
			_ = conn.Close()
		} // else it is gone, or as many others are waiting to call it
	}
}

// close returns when the server has ended.
func (s *server) close() error {
	err := s.listener.Close()
	<-s.done
	return errors.Join(err, os.NewSyscallError("close", unix.Close(s.fd)))
}
