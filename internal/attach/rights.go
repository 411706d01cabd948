package attach

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// frameFDs is the number of descriptors of a hello and of a welcome.
const frameFDs = 3

// rights are descriptors that arrived with a message. Their owner must close them by close, except those that it has
// removed.
type rights []int

// remove removes descriptor i and returns it. The caller must close it.
func (r rights) remove(i int) int {
	fd := r[i]
	r[i] = -1
	return fd
}

// close closes the descriptors that were not removed.
func (r rights) close() {
	for i := range r {
		_ = unix.Close(r.remove(i)) // EBADF for -1, which remove leaves
	}
}

// send writes one message with copies of descriptors, which the caller still owns.
func send(conn *net.UnixConn, f *frame, fds ...int) error {
	_, _, err := conn.WriteMsgUnix(f.encode(), unix.UnixRights(fds...), nil)
	return err
}

// receive reads one message. A hello and a welcome have exactly frameFDs
// descriptors, a refuse has none. Otherwise receive closes all descriptors and returns an error.
// Errors: io errors, errMalformed, errVersion, errDescriptors.
func receive(conn *net.UnixConn) (frame, rights, error) {
	buf := make([]byte, frameLen)
	oob := make([]byte, unix.CmsgSpace(frameFDs*4))
	n, oobn, flags, err := readMessage(conn, buf, oob)
	got, oobErr := parseRights(oob[:oobn]) // also with an error or an empty message, descriptors may arrive
	f, err := checkMessage(buf[:max(n, 0)], flags, errors.Join(err, oobErr))
	if flags&unix.MSG_CTRUNC != 0 && len(got) < frameFDs { // the buffer has room for more
		err = errDescriptors
	}
	if err == nil && len(got) != f.wantFDs() {
		err = fmt.Errorf("%w: %d descriptors", errMalformed, len(got))
	}
	if err != nil {
		got.close()
		return frame{}, nil, err
	}
	return f, got, nil
}

// readMessage is ReadMsgUnix, but after the deadline it reads once more without waiting. ReadMsgUnix reads nothing after
// the deadline, and a process that was stopped may not have read before it.
func readMessage(conn *net.UnixConn, buf, oob []byte) (n, oobn, flags int, err error) {
	n, oobn, flags, _, err = conn.ReadMsgUnix(buf, oob)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, oobn, flags, err
	}
	raw, _ := conn.SyscallConn() // fails only for a nil connection
	none := err
	_ = raw.Control(func(fd uintptr) { // an error means that conn is closed
		const now = unix.MSG_DONTWAIT | unix.MSG_CMSG_CLOEXEC
		for {
			n, oobn, flags, _, err = unix.Recvmsg(int(fd), buf, oob, now)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if errors.Is(err, unix.EAGAIN) {
		err = none
	}
	return n, oobn, flags, err
}

func checkMessage(b []byte, flags int, err error) (frame, error) {
	if err != nil {
		return frame{}, err
	}
	if len(b) == 0 {
		return frame{}, io.EOF
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return frame{}, fmt.Errorf("%w: truncated, flags %#x", errMalformed, flags)
	}
	return decodeFrame(b)
}

func (f *frame) wantFDs() int {
	if f.kind == kindRefuse {
		return 0
	}
	return frameFDs
}

// parseRights returns all descriptors in control data from the kernel, also if
// it returns an error.
func parseRights(oob []byte) (rights, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control data: %w", errMalformed, err)
	}
	var all rights
	for i := range msgs {
		if len(msgs[i].Data)%4 != 0 { // ParseUnixRights would read past the end
			err = fmt.Errorf("%w: %d bytes of descriptors", errMalformed, len(msgs[i].Data))
			continue
		}
		fds, parseErr := unix.ParseUnixRights(&msgs[i])
		if parseErr != nil {
			err = fmt.Errorf("%w: control message of type %d", errMalformed, msgs[i].Header.Type)
			continue
		}
		all = append(all, fds...)
	}
	return all, err
}
