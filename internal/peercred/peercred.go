// Package peercred tells which process is at the other end of a unix socket.
package peercred

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Cred is what the kernel says about a process: for an accepted connection the one that
// connected, for a dialed one the one that listened, each as it was then.
type Cred struct {
	PID      int
	UID, GID uint32 // effective
}

// Of asks the kernel (SO_PEERCRED of unix(7)).
func Of(conn *net.UnixConn) (Cred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Cred{}, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return Cred{}, err
	}
	if credErr != nil {
		return Cred{}, os.NewSyscallError("getsockopt SO_PEERCRED", credErr)
	}
	return Cred{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid}, nil
}
