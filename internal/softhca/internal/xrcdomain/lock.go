package xrcdomain

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
)

// lockTimeout limits the wait for another member that is joining or changing the directory, as it
// may be stopped.
const lockTimeout = 5 * time.Second

// inode identifies a domain.
type inode struct{ dev, ino uint64 }

// reopen opens the file of a descriptor again, with separate locks: a duplicated descriptor, also one
// that a child process has inherited, shares the locks of the original.
func reopen(fd, flags int) (int, error) {
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	for {
		own, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if !errors.Is(err, unix.EINTR) {
			return own, errPath("open", path, err)
		}
	}
}

func errPath(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}

// identify returns the inode of a descriptor, which must be a file or a directory.
func identify(fd int) (inode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return inode{}, os.NewSyscallError("fstat", err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return inode{}, fmt.Errorf("%w: descriptor of mode %#o is no file or directory", ucs.ErrInvalidParam, st.Mode)
	}
	return inode{uint64(st.Dev), st.Ino}, nil
}

// retryLock calls try until it no longer fails because the lock is in use, for at most lockTimeout:
// the kernel has no lock operation with a deadline.
func retryLock(what string, try func() error) (err error) {
	if !timelimit.Await(lockTimeout, func() bool {
		err = try()
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EINTR)
	}) {
		return fmt.Errorf("%w: another process holds the lock (%s)", ucs.ErrTimedOut, what)
	}
	return os.NewSyscallError(what, err)
}

// lockInode acquires the lock for joining; closing fd releases it.
func lockInode(fd int) error {
	return retryLock("flock", func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
}

// locks are the locks of an open file description of the directory.
type locks struct{ fd int }

func (l locks) set(at int64, kind int16) error {
	return unix.FcntlFlock(uintptr(l.fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: at, Len: 1})
}

// lockChanges acquires the lock for changes.
func (l locks) lockChanges() error {
	return retryLock("fcntl F_OFD_SETLK", func() error { return l.set(changeByte, unix.F_WRLCK) })
}

func (l locks) unlockChanges() { _ = l.set(changeByte, unix.F_UNLCK) } // unlocking does not fail

// lockPlace acquires the lock of a place until the description is closed. False if it is in use.
func (l locks) lockPlace(place int) bool { return l.set(lifeByte+int64(place), unix.F_WRLCK) == nil }

// alive reports whether another description holds the lock of a place.
func (l locks) alive(place int) bool {
	q := unix.Flock_t{Type: unix.F_WRLCK, Start: lifeByte + int64(place), Len: 1}
	for {
		err := unix.FcntlFlock(uintptr(l.fd), unix.F_OFD_GETLK, &q)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && q.Type != unix.F_UNLCK
		}
	}
}

// unlockPlace releases the lock of a place.
func (l locks) unlockPlace(place int) { _ = l.set(lifeByte+int64(place), unix.F_UNLCK) }
