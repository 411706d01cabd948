package sm

import (
	"fmt"
	"os"

	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/ucs/config"
)

// Reasons not to use cross-memory attach that come before asking the kernel.
var (
	errCMAOff = fmt.Errorf("%w by configuration", cma.ErrForbidden)
	errCMAPid = fmt.Errorf("%w: the peer is in another pid namespace", cma.ErrForbidden)
)

// probe finds out, by doing it, whether this process may reach the peer's private
// memory.
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

// Explain implements uct.Explainer: how peers meet, of what allocated memory is, and
// how registered memory is reached as far as that does not depend on the peer.
func (it *Iface) Explain() string {
	way := "cross-memory attach where the peer can be attached to"
	if err := it.md.attachable(it.cfg.CMA); err != nil {
		way = "the peer helps in its progress: " + err.Error()
	}
	return fmt.Sprintf("sockets: %s; allocated memory: %s; registered memory: %s", it.place(), it.md.pages, way)
}

// place is where the socket is.
func (it *Iface) place() string {
	if it.cfg.SocketDir != "" {
		return "files in " + it.cfg.SocketDir
	}
	return "abstract, in the network namespace"
}

// attachable reports why this process may not even attach to itself, if so.
func (md *MD) attachable(wanted config.Ternary) error {
	if wanted == config.No {
		return errCMAOff
	}
	var vec cma.Vec
	return vec.Probe(os.Getpid(), addrOf(md.cookie), *md.cookie)
}

// Explain implements uct.Explainer: how memory of the peer that is registered, not
// allocated, is reached.
func (e *EP) Explain() string {
	switch {
	case e.state != epUp:
		return "not connected"
	case e.cmaErr != nil:
		return fmt.Sprintf("registered memory: the peer helps in its progress: %v", e.cmaErr)
	}
	return "registered memory: cross-memory attach"
}
