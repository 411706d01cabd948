package ranks

import (
	"fmt"
	"slices"
)

// Protocol is a way for messages, by the variables of the environment that ask for it.
type Protocol struct {
	Name string
	Env  []string
}

// announced is a scheme for the data of messages, of which all are announced that one call does
// not take.
func announced(scheme string) Protocol {
	return Protocol{scheme, []string{"GUCX_RNDV_THRESH=1k", "GUCX_RNDV_SCHEME=" + scheme}}
}

// Auto is the protocol that ucp chooses, by cost.
const Auto = "auto"

// Protocols are all that there are: what ucp chooses, no rendezvous but for want of room, and
// rendezvous by each of its schemes.
func Protocols() []Protocol {
	return []Protocol{
		{Name: Auto},
		{Name: "eager", Env: []string{"GUCX_RNDV_THRESH=inf", "GUCX_EAGER_WINDOW=64m"}},
		announced("get_zcopy"), announced("put_zcopy"), announced("am"),
	}
}

// ProtocolNames are the names of Protocols.
func ProtocolNames() (names []string) {
	for _, p := range Protocols() {
		names = append(names, p.Name)
	}
	return names
}

// ParseProtocol is the protocol of that name.
func ParseProtocol(name string) (Protocol, error) {
	all := Protocols()
	if i := slices.IndexFunc(all, func(p Protocol) bool { return p.Name == name }); i >= 0 {
		return all[i], nil
	}
	return Protocol{}, fmt.Errorf("protocol %q: there are %q", name, ProtocolNames())
}
