package overlap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gucx/gucx"
)

// Protocol is a way for messages, by the variables of the environment that choose it.
type Protocol struct {
	Name string
	Env  []string
}

// EagerLimit is the length from which messages are no longer eager, as in the paper, section 8.3:
// "8KB is the threshold where the rendezvous protocol is used".
const EagerLimit = 8 << 10

// rendezvous is a protocol with eager messages below EagerLimit.
func rendezvous(name, scheme string) Protocol {
	return Protocol{name, []string{`GUCX_TLS=\rc`, "GUCX_RNDV_THRESH=8k", "GUCX_RNDV_SCHEME=" + scheme}}
}

// tupleQ is a protocol over receive queues, with rendezvous where there is none. A message
// whose receive is not posted is tried again after the shortest time that a QP can ask for
// (IBTA volume 1, table 45).
func tupleQ(name, proto string) Protocol {
	return Protocol{name, []string{`GUCX_TLS=\xrc`, "GUCX_XRC_RNR_TIMEOUT=10us", "GUCX_RNDV_THRESH=8k", "GUCX_TAG_PROTO=" + proto}}
}

// Protocols are those of the paper, section 8.2.
func Protocols() []Protocol {
	return []Protocol{
		rendezvous("rput", "put_zcopy"),
		rendezvous("rget", "get_zcopy"),
		tupleQ("tupleq", "tupleq"),
		tupleQ("tupleq_copy", "tupleq_copy"),
	}
}

// ProtocolNames are the names of Protocols.
func ProtocolNames() (names []string) {
	for _, p := range Protocols() {
		names = append(names, p.Name)
	}
	return names
}

// ParseProtocol finds a protocol by name.
func ParseProtocol(name string) (Protocol, error) {
	all := Protocols()
	if i := slices.IndexFunc(all, func(p Protocol) bool { return p.Name == name }); i >= 0 {
		return all[i], nil
	}
	return Protocol{}, fmt.Errorf("protocol %q: there are %s", name, strings.Join(ProtocolNames(), ", "))
}

// Config is what the variables of the protocol come to; the error says what this build of
// gucx does not have.
func (p Protocol) Config() (gucx.Config, error) { return gucx.FromEnv(p.Env, gucx.Own{}) }
