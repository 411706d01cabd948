package xrcdomain

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
)

// fetch gets the descriptor of the directory from a member; -1 if there is none.
//
// Errors: ucs.ErrTimedOut (there are members, but none replies), system calls. unix.EMFILE also if a
// member has replied and this process could not receive the descriptor.
func fetch(id inode) (int, error) {
	for limit := timelimit.New(responseTimeout); ; time.Sleep(hedgePause) {
		fd, busy, err := requestFD(id)
		if fd >= 0 || err != nil || busy == 0 {
			return fd, err
		}
		if limit.Over() {
			return -1, fmt.Errorf("%w: more processes wait for %d members than they accept", ucs.ErrTimedOut, busy)
		}
	}
}

// requestFD requests a descriptor from all members; it returns -1 if none has replied.
func requestFD(id inode) (fd, busy int, err error) {
	r := requests{responses: make(chan response, maxMembers)}
	defer r.abandon()
	d := dialer{fd: -1}
	defer d.close()
	for place := range maxMembers {
		conn, err := d.dial(id, place)
		switch {
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EPROTOTYPE):
			continue // no process listens, or another program does
		case errors.Is(err, unix.EAGAIN):
			busy++
			continue
		case err != nil:
			return -1, busy, err
		}
		r.add(conn)
		if fd := r.wait(hedgePause); fd >= 0 {
			return fd, busy, nil
		}
	}
	if fd := r.waitLast(timelimit.New(responseTimeout)); fd >= 0 {
		return fd, busy, nil
	}
	if r.failed != nil {
		return -1, busy, r.failed
	}
	if r.pending > 0 {
		return -1, busy, fmt.Errorf("%w: %d members, none replies", ucs.ErrTimedOut, r.pending)
	}
	return -1, busy, nil // they have left, or belong to other users
}

// dialer tries one address after another with the same socket until one accepts, as most places have
// no member.
type dialer struct{ fd int } // -1: none

// dial connects to the member at a place. It does not block.
func (d *dialer) dial(id inode, place int) (*net.UnixConn, error) {
	if d.fd < 0 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return nil, os.NewSyscallError("socket", err)
		}
		d.fd = fd
	}
	if err := unix.Connect(d.fd, &unix.SockaddrUnix{Name: socketAddr(id, place).Name}); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	f := os.NewFile(uintptr(d.fd), network)
	d.fd = -1
	defer func() { _ = f.Close() }()
	conn, err := net.FileConn(f) // of a duplicate
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

func (d *dialer) close() {
	if d.fd >= 0 {
		_ = unix.Close(d.fd)
	}
}

// response is the reply of a member: a descriptor, or -1. err is set if the member sent one that
// this process could not receive.
type response struct {
	fd  int
	err error
}

// requests contains the outstanding requests to members.
type requests struct {
	conns     []*net.UnixConn
	pending   int
	failed    error         // of a response
	responses chan response // has room for all, so that no send blocks
}

func (r *requests) add(conn *net.UnixConn) {
	r.conns = append(r.conns, conn)
	r.pending++
	go func() { r.responses <- receive(conn) }()
}

// wait returns the first descriptor that arrives; -1 if all members have replied without one, or after
// d. It also returns a descriptor that has arrived when d expires: a process that was stopped finds
// both at the same time.
func (r *requests) wait(d time.Duration) int {
	limit := time.NewTimer(d)
	defer limit.Stop()
	for r.pending > 0 {
		select {
		case a := <-r.responses:
			if r.accept(a) {
				return a.fd
			}
		case <-limit.C:
			return r.received()
		}
	}
	return -1
}

// waitLast is wait until limit, which New began for responseTimeout.
func (r *requests) waitLast(limit timelimit.Limit) int {
	for {
		fd := r.wait(responseTimeout / timelimit.Looks)
		if fd >= 0 || r.pending == 0 || limit.Over() {
			return fd
		}
	}
}

// received is wait for responses that have already arrived.
func (r *requests) received() int {
	for {
		select {
		case a := <-r.responses:
			if r.accept(a) {
				return a.fd
			}
		default:
			return -1
		}
	}
}

// accept records a response, and reports whether it contains a descriptor.
func (r *requests) accept(a response) bool {
	r.pending--
	r.failed = cmp.Or(r.failed, a.err)
	return a.fd >= 0
}

// abandon cancels the requests without response, and waits for their goroutines.
func (r *requests) abandon() {
	for _, conn := range r.conns {
		_ = conn.SetDeadline(time.Unix(1, 0))
	}
	for ; r.pending > 0; r.pending-- {
		if late := <-r.responses; late.fd >= 0 {
			_ = unix.Close(late.fd)
		}
	}
}

// receive reads the response of a member and closes conn.
func receive(conn *net.UnixConn) response {
	defer func() { _ = conn.Close() }()
	if sameUser(conn) != nil {
		return response{fd: -1}
	}
	buf, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, oobLen, flags, _, err := conn.ReadMsgUnix(buf, oob)
	fds := descriptors(oob[:max(oobLen, 0)]) // descriptors may also arrive with an error
	if err == nil && n == 1 && buf[0] == layoutVersion && flags&unix.MSG_TRUNC == 0 {
		cut := flags&unix.MSG_CTRUNC != 0
		switch {
		case len(fds) == 1 && !cut:
			return response{fd: fds[0]}
		case len(fds) == 0 && cut: // the kernel could not install the descriptor
			return response{-1, os.NewSyscallError("recvmsg", unix.EMFILE)}
		}
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	return response{fd: -1}
}

// descriptors returns all descriptors in control data.
func descriptors(oob []byte) (all []int) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if len(msgs[i].Data)%4 != 0 { // ParseUnixRights would read past the end
			continue
		}
		fds, _ := unix.ParseUnixRights(&msgs[i])
		all = append(all, fds...)
	}
	return all
}

// mapDirectory opens the file of the directory again, for separate locks, and maps it. It always
// closes fd.
func mapDirectory(fd int, id inode, access memfd.Access) (directory, locks, error) {
	defer func() { _ = unix.Close(fd) }()
	own, err := reopen(fd, unix.O_RDWR)
	if err != nil {
		return directory{}, locks{}, err
	}
	dir, err := adopt(own, id, access)
	if err != nil {
		_ = unix.Close(own)
	}
	return dir, locks{own}, err
}

// adopt maps the directory of fd. The caller still owns fd.
func adopt(fd int, id inode, access memfd.Access) (directory, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return directory{}, err
	}
	seg, err := memfd.Adopt(dup, access, layoutLen, layoutLen)
	if err != nil {
		return directory{}, err
	}
	dir := viewOf(seg)
	if err := dir.check(id); err != nil {
		_ = seg.Close()
		return directory{}, fmt.Errorf("%w: no directory of inode %x:%x", err, id.dev, id.ino)
	}
	return dir, nil
}

// create creates a directory, and returns it with its locks.
func create(id inode) (directory, locks, error) {
	seg, err := memfd.Create("gucx-xrcd", layoutLen, memfd.PeersWrite)
	if err != nil {
		return directory{}, locks{}, err
	}
	dir := viewOf(seg)
	dir.format(id)
	own, err := reopen(seg.FD(), unix.O_RDWR)
	if err != nil {
		_ = seg.Close()
		return directory{}, locks{}, err
	}
	return dir, locks{own}, seg.DropFD()
}
