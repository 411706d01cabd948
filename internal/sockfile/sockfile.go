// Package sockfile finds socket files of killed processes, and sets the mode of socket files. A process
// that is killed does not remove its socket files, and no process can listen at such a path before
// the file is removed.
package sockfile

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Abandoned reports whether path is a socket file of this process's effective user to which no
// socket is bound, and whose age is at least age: a new file has no listening socket for a
// moment. The check has no effect on a listener: it uses a datagram
// socket, which the kernel does not connect to a listener (EPROTOTYPE).
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

// SetMode sets the mode of a socket file. If path is another file or a link, it returns ENOTSOCK: a process
// that may write to the directory can replace the socket file.
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
