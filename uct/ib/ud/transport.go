package ud

import (
	"time"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/udcore"
)

// Name is the name of the transport in uct.Resource.
const Name = "ud"

// postOverhead is the overhead that UCX declares for its ud over verbs.
const postOverhead = 105 * time.Nanosecond

// Config tunes the transport. The zero value is ready to use.
type Config = udcore.Config

// Transport makes the transport for ib.New. Ifaces that are opened without a Config use defaults.
func Transport(defaults Config) ib.Transport { return transport{defaults} }

type transport struct{ defaults Config }

// Name implements ib.Transport.
func (transport) Name() string { return Name }

// OpenIface implements ib.Transport. p.Config is nil, a Config or a *Config.
func (t transport) OpenIface(md *ib.MD, port uint8, p uct.IfaceParams) (uct.Iface, error) {
	it := new(udcore.Iface)
	err := udcore.Open(it, md, udcore.Params{
		Name: Name, Port: port, Config: t.defaults, Overhead: postOverhead, Driver: udcore.Verbs, Self: it,
	}, p)
	if err != nil {
		return nil, err
	}
	return it, nil
}
