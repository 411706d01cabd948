package ucp

import (
	"slices"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// aliases are what TLS may call transports besides their own names, as in UCX. A name
// that is here and is also a transport's own, as rc, means all that are listed; see
// Exact. Besides these, the name of a component, as ib, stands for all its transports,
// and the shmAliases for every one over shared memory.
var aliases = []struct {
	name       string
	transports []string
}{
	{"rc", []string{"rc", "rc_mlx5"}},
	{"rc_v", []string{"rc"}},
	{"rc_verbs", []string{"rc"}},
	{"rc_x", []string{"rc_mlx5"}},
	{"ud", []string{"ud", "ud_mlx5"}},
	{"ud_v", []string{"ud"}},
	{"ud_verbs", []string{"ud"}},
	{"ud_x", []string{"ud_mlx5"}},
	{"xrc", []string{"xrc", "xrc_mlx5"}},
	{"xrc_v", []string{"xrc"}},
	{"xrc_verbs", []string{"xrc"}},
	{"xrc_x", []string{"xrc_mlx5"}},
}

var shmAliases = []string{"sm", "shm"}

// exactMark precedes a name that means one transport only, as in UCX.
const exactMark = `\`

// Exact is the name in Config.TLS of that transport and no other, whatever aliases
// there are: `\rc`, where rc stands for rc_mlx5 too.
func Exact(transport string) string { return exactMark + transport }

// namesOf are the names in TLS that select a transport.
func namesOf(r *uct.Resource, component string) []string {
	names := []string{Exact(r.Transport), r.Transport}
	for _, a := range aliases {
		if slices.Contains(a.transports, r.Transport) {
			names = append(names, a.name)
		}
	}
	if r.Explicit {
		return names
	}
	names = append(names, component)
	if r.Kind == uct.DeviceShm {
		names = append(names, shmAliases...)
	}
	return names
}

// selectedBy says which name of the list selected an offer.
func (o *offer) selectedBy(list config.List) string {
	for _, name := range list.Names() {
		if !list.Negated() && slices.Contains(o.names, name) {
			return name
		}
	}
	return list.String()
}
