// Package sockfile tells which socket files were left behind: a process that is killed does
// not remove those that it listened on, and nobody can listen there until somebody does.
package sockfile

import (
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
