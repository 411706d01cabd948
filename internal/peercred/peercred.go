// Package peercred identifies the process at the other end of a unix socket.
package peercred

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Cred identifies a process, as the kernel reports it: for an accepted connection the process that
// connected, for a dialed one the process that listened, with its ids at that time.
type Cred struct {
	PID      int
	UID, GID uint32 // effective
}

// Of returns the process at the other end of conn (SO_PEERCRED of unix(7)).
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
