package attach

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// socketAddr is the abstract name of a user's port. Abstract names live in the
// network namespace and vanish with the socket. "@" stands for the leading zero byte.
func socketAddr(service string, uid uint32, gid [16]byte) *net.UnixAddr {
	return &net.UnixAddr{
		Name: fmt.Sprintf("@gucx-%s/%d/%s", service, uid, hex.EncodeToString(gid[:])),
		Net:  "unixpacket", // SOCK_SEQPACKET: a read returns one message
	}
}

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
