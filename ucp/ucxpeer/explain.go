package ucxpeer

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/internal/ucxwire"
)

// peerForm is what is known of the UCX release of a peer.
type peerForm struct {
	version  int // of its address; 0 if no address was received
	release  int // minor release modulo 16, or ucxwire.NoRelease
	loopback int // length of its loopback address in bytes; 0 if it has none
	private  resourceForm
}

// resourceForm is whether private data contain the index of the resource.
type resourceForm uint8

const (
	noPrivate resourceForm = iota // the EP was not created from a socket address
	withResource
	withoutResource
)

// formOf returns what an address contains about the release.
func formOf(a *ucxwire.Address) peerForm {
	f := peerForm{version: a.Version, release: a.Release}
	for _, d := range a.Devices {
		if n := len(d.Addr); n == ucxwire.WideLoopbackLen || n == ucxwire.NarrowLoopbackLen {
			f.loopback = n
		}
	}
	return f
}

// formOfPrivate returns what private data contain about the release.
func formOfPrivate(p *ucxwire.Private) peerForm {
	f := formOf(&p.Address)
	f.private = withoutResource
	if p.Resource {
		f.private = withResource
	}
	return f
}

// Explain describes the connection of the EP, and which variant of UCX's protocol the two sides use and why: what the peer's
// address or private data contain, and which settings select the rest. The text is not an interface; it may change.
func (e *EP) Explain() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s", e.w.tcp.Explain())
	line("peer: %s, %s", e.lane.Peer(), e.stateText())
	for _, why := range e.why {
		line("interface not used: %v", why)
	}
	for _, p := range e.untried {
		line("another interface: %s", p.at)
	}
	mode := "without peer error handling (EPConfig.PeerErrors)"
	switch {
	case e.sock != nil:
		mode = "with peer error handling, as each endpoint of a socket"
	case e.errMode == ucxwire.ErrModePeer:
		mode = fmt.Sprintf("with peer error handling, a check each %v (Config.KeepaliveInterval)", e.w.cfg.KeepaliveInterval)
		if e.w.cfg.KeepaliveInterval < 0 {
			mode = "with peer error handling, no checks (Config.KeepaliveInterval)"
		}
	}
	line("endpoint: %s", mode)
	e.form.explain(line)
	line("address of this worker: version %d (Config.AddressVersion)", e.w.cfg.AddressVersion)
	return b.String()
}

func (e *EP) stateText() string {
	switch {
	case e.err != nil:
		return e.err.Error()
	case e.state != epOpen:
		return "closed"
	case e.remote != 0:
		return "connected"
	case e.lane.Opened():
		return "connected, its endpoint is not known"
	}
	return "not connected"
}

func (f *peerForm) explain(line func(format string, args ...any)) {
	if f.version == 0 {
		line("its address: not known")
	} else if r := f.releases(); r != "" {
		line("its address: version %d, of UCX %s, as it says", f.version, r)
	} else {
		line("its address: version %d, without a release", f.version)
	}
	switch f.loopback {
	case ucxwire.WideLoopbackLen:
		line("its loopback address: wide, as its length says")
	case ucxwire.NarrowLoopbackLen:
		line("its loopback address: narrow, as its length says")
	}
	switch f.private {
	case withResource:
		line("private data: of UCX 1.14 or later (DialConfig.Layout), as those of the peer show")
	case withoutResource:
		line("private data: of UCX 1.13 or earlier (DialConfig.Layout), as those of the peer show")
	}
}

// releases returns the UCX releases that may have created the address; empty if the address does not contain a release.
func (f *peerForm) releases() string {
	var all []string
	for _, r := range ucxwire.Releases {
		for minor := r.First; minor <= r.Last; minor++ {
			if f.release != ucxwire.NoRelease && minor%16 == f.release {
				all = append(all, fmt.Sprintf("1.%d", minor))
			}
		}
	}
	return strings.Join(all, " or ")
}
