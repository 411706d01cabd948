package ranks

import "github.com/gucx/gucx/perftest/internal/studies/protocol"

// rendezvous returns a protocol in which all messages use rendezvous, except those that one call
// sends, with a scheme for their data.
func rendezvous(scheme string) protocol.Protocol {
	return protocol.Protocol{Name: scheme, Env: []string{"GUCX_RNDV_THRESH=1k", "GUCX_RNDV_SCHEME=" + scheme}}
}

// Auto is the protocol that ucp selects, by cost.
const Auto = "auto"

// Protocols lists all protocols: the selection of ucp, no rendezvous except without credit, and
// rendezvous by each of its schemes.
func Protocols() protocol.List {
	return protocol.List{
		{Name: Auto},
		{Name: "eager", Env: []string{"GUCX_RNDV_THRESH=inf", "GUCX_EAGER_WINDOW=64m"}},
		rendezvous("get_zcopy"), rendezvous("put_zcopy"), rendezvous("am"),
	}
}
