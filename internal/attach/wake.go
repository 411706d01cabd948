package attach

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Waker is a pipe through which peers and other goroutines wake the owner of a port.
//
// Whether a descriptor blocks is a flag of the open file that it refers to, and a descriptor that is
// passed to a peer refers to the same open file as the original. So a peer could make the other side
// block. A pipe can be opened anew, unlike an eventfd: the read end and the write end of the owner are
// open files that no peer has, and each peer writes to an open file of its own.
type Waker struct {
	r, w, peers int // -1: closed
}

// NewWaker makes a pipe.
func NewWaker() (_ *Waker, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	k := &Waker{r: ends[0], w: -1, peers: ends[1]}
	if err = unix.Fchmod(k.peers, 0o666); err == nil { // users in AllowUIDs open it too
		k.w, err = reopen(k.peers)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a pipe anew: %w", err), k.Close())
	}
	return k, nil
}

// FD is readable after Wake, until Drain. The Waker owns it.
func (k *Waker) FD() int { return k.r }

// File returns the read end as a file, which the caller owns. The caller must not use FD and Drain afterwards.
func (k *Waker) File(name string) *os.File {
	f := os.NewFile(uintptr(k.r), name)
	k.r = -1
	return f
}

// WakeFD is the owner's descriptor for [Wake].
func (k *Waker) WakeFD() int { return k.w }

// PeerFD is the descriptor for Config.WakeFD. The owner must not write to it.
func (k *Waker) PeerFD() int { return k.peers }

// drainLen is the maximum number of wake-ups that one Drain drops. A sleeping owner gets one from each peer.
const drainLen = 256

// Drain makes FD not readable if there were at most 256 wake-ups. After more it leaves FD readable, so that the
// next sleep of the owner ends at once: a peer that writes without end cannot keep the owner here. Drain
// does not block.
func (k *Waker) Drain() {
	var b [drainLen]byte
	for {
		if _, err := unix.Read(k.r, b[:]); err != unix.EINTR {
			return // also after EAGAIN: no peer has written
		}
	}
}

// Close closes the pipe. Idempotent.
func (k *Waker) Close() error {
	var errs []error
	for _, fd := range []*int{&k.r, &k.w, &k.peers} {
		if *fd >= 0 {
			errs = append(errs, os.NewSyscallError("close pipe", unix.Close(*fd)))
			*fd = -1
		}
	}
	return errors.Join(errs...)
}

var one = []byte{1}

// Wake makes the read end of a pipe readable, by a descriptor of a [Link] or of [Waker.WakeFD]. It does
// not block: a full pipe is readable already. It allocates nothing when it succeeds.
func Wake(fd int) error {
	for {
		_, err := unix.Write(fd, one)
		switch {
		case err == nil || err == unix.EAGAIN:
			return nil
		case !errors.Is(err, unix.EINTR):
			return os.NewSyscallError("write pipe", err)
		}
	}
}

func pathOf(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// reopen opens the write end of a pipe anew, so that no other process has the open file.
func reopen(fd int) (int, error) {
	if err := checkPipe(fd); err != nil {
		return -1, err
	}
	for {
		own, err := unix.Open(pathOf(fd), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return own, os.NewSyscallError("open pipe", err)
		}
	}
}

// checkPipe returns an error unless fd is a pipe without a name.
func checkPipe(fd int) error {
	target, err := os.Readlink(pathOf(fd))
	if err == nil && !strings.HasPrefix(target, "pipe:[") {
		err = fmt.Errorf("descriptor is %s, not a pipe", target)
	}
	return err
}
