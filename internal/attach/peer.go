package attach

import (
	"net"

	"github.com/gucx/gucx/internal/peercred"
)

// peer is what the kernel says about the process at the other end: for an accepted
// connection who connected, for a dialed one who listened.
type peer struct {
	pid int
	uid uint32
}

func peerOf(conn *net.UnixConn) (peer, error) {
	cred, err := peercred.Of(conn)
	return peer{pid: cred.PID, uid: cred.UID}, err
}
