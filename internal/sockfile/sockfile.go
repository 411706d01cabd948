// Package sockfile tells which socket files were left behind: a process that is killed does
// not remove those that it listened on, and nobody can listen there until somebody does. And
// it sets their mode.
package sockfile

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Abandoned reports whether path is a socket file of this process's effective user that no
// socket is bound to, and that is at least so old: one that is just being made has none
// either for a moment. A listener does not notice the question: it comes from a datagram
// socket, which the kernel refuses to connect to a listener (EPROTOTYPE).
func Abandoned(path string, age time.Duration) bool {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid() {
		return false
	}
	if time.Since(time.Unix(st.Mtim.Unix())) < age {
		return false
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) == unix.ECONNREFUSED
}

// SetMode sets the mode of a socket file, and of nothing else: who may write to the directory can
// put another file, or a link to one, in its place. ENOTSOCK then.
func SetMode(path string, mode os.FileMode) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		err = unix.ENOTSOCK
	}
	if err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}
