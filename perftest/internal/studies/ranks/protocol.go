package ranks

import "github.com/gucx/gucx/perftest/internal/studies/protocol"

// announced is a scheme for the data of messages, of which all are announced that one call does
// not take.
func announced(scheme string) protocol.Protocol {
	return protocol.Protocol{Name: scheme, Env: []string{"GUCX_RNDV_THRESH=1k", "GUCX_RNDV_SCHEME=" + scheme}}
}

// Auto is the protocol that ucp chooses, by cost.
const Auto = "auto"

// Protocols are all that there are: what ucp chooses, no rendezvous but for want of room, and
// rendezvous by each of its schemes.
func Protocols() protocol.List {
	return protocol.List{
		{Name: Auto},
		{Name: "eager", Env: []string{"GUCX_RNDV_THRESH=inf", "GUCX_EAGER_WINDOW=64m"}},
		announced("get_zcopy"), announced("put_zcopy"), announced("am"),
	}
}
