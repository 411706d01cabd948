package attach

import (
	"net"

	"github.com/gucx/gucx/internal/peercred"
)

// peer identifies the process at the other end of a connection, as the kernel reports it: the process that connected or,
// for a dialed connection, the process that listened. Both sides of a connection have the same three values, each from
// its point of view, unless a PID is not visible.
type peer struct {
	pid int // 0: not visible here
	uid uint32
	own uint32 // effective user of this process when it dialed or listened, which is what the peer has as uid
}

// peerOf returns the peer without own.
func peerOf(conn *net.UnixConn) (peer, error) {
	cred, err := peercred.Of(conn)
	return peer{pid: cred.PID, uid: cred.UID}, err
}
