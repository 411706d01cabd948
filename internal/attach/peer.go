package attach

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// peer is what the kernel says about the process at the other end: for an accepted
// connection who connected, for a dialed one who listened.
type peer struct {
	pid int
	uid uint32
}

func peerOf(conn *net.UnixConn) (peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return peer{}, err
	}
	if credErr != nil {
		return peer{}, os.NewSyscallError("getsockopt SO_PEERCRED", credErr)
	}
	return peer{pid: int(cred.Pid), uid: cred.Uid}, nil
}
