package overlap

import (
	"github.com/gucx/gucx"
	"github.com/gucx/gucx/perftest/internal/studies/protocol"
)

// EagerLimit is the length from which messages are no longer eager, as in the paper, section 8.3:
// "8KB is the threshold where the rendezvous protocol is used".
const EagerLimit = 8 << 10

// rendezvous is a protocol with eager messages below EagerLimit.
func rendezvous(name, scheme string) protocol.Protocol {
	return protocol.Protocol{Name: name, Env: []string{`GUCX_TLS=\rc`, "GUCX_RNDV_THRESH=8k", "GUCX_RNDV_SCHEME=" + scheme}}
}

// tupleQ is a protocol over receive queues, with rendezvous if there is no queue. A message whose
// receive is not posted is sent again after the shortest time of a QP (IBTA volume 1, table 45).
func tupleQ(name, proto string) protocol.Protocol {
	return protocol.Protocol{Name: name, Env: []string{`GUCX_TLS=\xrc`, "GUCX_XRC_RNR_TIMEOUT=10us", "GUCX_RNDV_THRESH=8k", "GUCX_TAG_PROTO=" + proto}}
}

// Protocols are the protocols of the paper, section 8.2.
func Protocols() protocol.List {
	return protocol.List{
		rendezvous("rput", "put_zcopy"),
		rendezvous("rget", "get_zcopy"),
		tupleQ("tupleq", "tupleq"),
		tupleQ("tupleq_copy", "tupleq_copy"),
	}
}

// Config returns the configuration from the variables of a protocol; an error if this build of gucx
// does not support them.
func Config(p protocol.Protocol) (gucx.Config, error) { return gucx.FromEnv(p.Env, gucx.Own{}) }
