package attach

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// one is what a write to an eventfd adds to its counter.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// Wake makes a nonblocking eventfd readable. A full counter is fine: it is
// readable already. Allocates nothing when it succeeds.
func Wake(fd int) error {
	for {
		_, err := unix.Write(fd, one)
		switch {
		case err == nil || err == unix.EAGAIN:
			return nil
		case !errors.Is(err, unix.EINTR):
			return os.NewSyscallError("write eventfd", err)
		}
	}
}
