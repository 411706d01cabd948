package ucp

import (
	"slices"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// aliases are additional names of transports in TLS, as in UCX. If an alias
// is also the name of a transport, such as rc, it selects all listed transports; see
// Exact. The name of a component, such as ib, selects all its transports,
// and each of shmAliases selects all transports over shared memory.
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

// exactMark precedes a name that selects one transport only, as in UCX.
const exactMark = `\`

// Exact returns the name in Config.TLS that selects only this transport, whatever aliases
// there are: `\rc`, because rc also selects rc_mlx5.
func Exact(transport string) string { return exactMark + transport }

// namesOf returns the names in TLS that select a transport.
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

// selectedBy returns the name of the list that has selected an offer.
func (o *offer) selectedBy(list config.List) string {
	for _, name := range list.Names() {
		if !list.Negated() && slices.Contains(o.names, name) {
			return name
		}
	}
	return list.String()
}
