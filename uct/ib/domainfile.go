package ib

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// The file of an XRC domain has one purpose: processes of a user that open it are in the same
// domain, which the kernel identifies by the inode. A process that finds no members makes the
// domain and writes its ID; a process that finds members reads the ID. During this it holds a lock
// (F_OFD_SETLK of fcntl(2)), which the kernel releases when the process dies. So each domain has
// its own ID, also if it uses the file of an earlier domain: the file, of 16 bytes, is never
// removed.

// DomainFile returns the path of the file by which processes find the domain of a device: in dir,
// or if dir is "" in $XDG_RUNTIME_DIR if no other user can access it, else in os.TempDir. The name
// contains the user, the device and the network namespace, because software devices of two network
// namespaces cannot reach each other.
func DomainFile(dir, device string) string {
	if dir == "" {
		dir = runtimeDir()
	}
	ns, _ := os.Readlink("/proc/self/ns/net") // empty after an error
	ns = strings.Trim(strings.TrimPrefix(ns, "net:"), "[]")
	return filepath.Join(dir, fmt.Sprintf("gucx-xrc-%d-%s-%s", os.Geteuid(), strings.ReplaceAll(device, "/", "_"), ns))
}

func runtimeDir() string {
	var st unix.Stat_t
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if filepath.IsAbs(dir) && unix.Stat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && isPrivate(&st) {
		return dir
	}
	return os.TempDir()
}

// groupAndOthers is the mask of the permissions of other users.
const groupAndOthers = 0o077

// isPrivate reports whether this user owns the file and no other user has permissions.
func isPrivate(st *unix.Stat_t) bool {
	return int(st.Uid) == os.Geteuid() && st.Mode&groupAndOthers == 0
}

// openDomainFile opens or makes the file of a domain, which must be a regular file of this user
// alone.
func openDomainFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 1 || !isPrivate(&st)) {
		err = fmt.Errorf("%w: %s is not a file of this user alone (mode 0600, one link)", ucs.ErrRejected, path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// joinTimeout limits the wait for another process that is joining. Joining takes milliseconds,
// unless the process is stopped or waits for stopped members, for which the device waits at most 5
// s.
const joinTimeout = 10 * time.Second

// lockDomainFile locks the file until f is closed.
func lockDomainFile(f *os.File) (err error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	if !timelimit.Await(joinTimeout, func() bool {
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EINTR)
	}) {
		return fmt.Errorf("%w: another process holds the lock of %s", ucs.ErrTimedOut, f.Name())
	}
	return os.NewSyscallError("fcntl F_OFD_SETLK", err)
}

// joinDomain opens the domain of a file.
func joinDomain(ctx *verbs.Context, path string) (_ *verbs.XRCD, id [16]byte, err error) {
	f, err := openDomainFile(path)
	if err != nil {
		return nil, id, err
	}
	defer func() { _ = f.Close() }() // cannot lose data: the ID has been written to the file
	if err := lockDomainFile(f); err != nil {
		return nil, id, err
	}
	for {
		x, err := makeDomain(ctx, f, &id)
		if errors.Is(err, unix.EEXIST) {
			x, err = findDomain(ctx, f, &id)
		}
		if !errors.Is(err, unix.EAGAIN) { // otherwise the last member has closed the domain in the meantime
			return x, id, err
		}
	}
}

// makeDomain makes the domain and its ID. EEXIST if it has members.
func makeDomain(ctx *verbs.Context, f *os.File, id *[16]byte) (*verbs.XRCD, error) {
	x, err := ctx.OpenXRCD(verbs.XRCDInitAttr{FD: int(f.Fd()), Flags: unix.O_CREAT | unix.O_EXCL})
	if err != nil {
		return nil, err
	}
	_, _ = rand.Read(id[:]) // never returns an error
	if _, err := f.WriteAt(id[:], 0); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// findDomain joins a domain that has members. EAGAIN if it has none.
func findDomain(ctx *verbs.Context, f *os.File, id *[16]byte) (*verbs.XRCD, error) {
	x, err := ctx.OpenXRCD(verbs.XRCDInitAttr{FD: int(f.Fd())})
	if err != nil {
		return nil, err
	}
	if _, err := f.ReadAt(id[:], 0); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s has no ID of a domain: %w", ucs.ErrRejected, f.Name(), err), x.Close())
	}
	return x, nil
}
