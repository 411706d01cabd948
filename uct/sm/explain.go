package sm

import (
	"fmt"
	"os"

	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/ucs/config"
)

// Reasons not to use cross-memory attach that are known without a system call.
var (
	errCMAOff = fmt.Errorf("%w by configuration", cma.ErrForbidden)
	errCMAPid = fmt.Errorf("%w: the peer is in another pid namespace", cma.ErrForbidden)
)

// probe sets cmaErr: it tries whether this process can access the peer's memory by cross-memory
// attach.
func (l *outLink) probe() {
	switch h := l.table.header(); {
	case l.it.cfg.CMA == config.No:
		l.cmaErr = errCMAOff
	case l.pid == 0:
		l.cmaErr = errCMAPid
	default:
		l.cmaErr = l.vec.Probe(l.pid, h.cookieAddr.Load(), h.cookie.Load())
	}
}

// Explain implements uct.Explainer: the type of the sockets, the pages of allocated memory, and
// the method of access to registered memory, as far as it does not depend on the peer.
func (it *iface) Explain() string {
	method := "cross-memory attach where the peer can be attached to"
	if err := it.md.attachable(it.cfg.CMA); err != nil {
		method = "the peer helps in its progress: " + err.Error()
	}
	return fmt.Sprintf("sockets: %s; allocated memory: %s; registered memory: %s", it.socketPlace(), it.md.pages, method)
}

// socketPlace describes where the sockets are.
func (it *iface) socketPlace() string {
	if it.cfg.SocketDir != "" {
		return "files in " + it.cfg.SocketDir
	}
	return "abstract, in the network namespace"
}

// attachable returns an error if cross-memory attach is off or forbidden for all peers: it tries to attach to this
// process.
func (md *domain) attachable(wanted config.Ternary) error {
	if wanted == config.No {
		return errCMAOff
	}
	var vec cma.Vec
	return vec.Probe(os.Getpid(), addrOf(md.cookie), *md.cookie)
}

// Explain implements uct.Explainer: the method of access to registered memory of the peer.
func (e *endpoint) Explain() string {
	switch {
	case e.state != epUp:
		return "not connected"
	case e.cmaErr != nil:
		return fmt.Sprintf("registered memory: the peer helps in its progress: %v", e.cmaErr)
	}
	return "registered memory: cross-memory attach"
}
