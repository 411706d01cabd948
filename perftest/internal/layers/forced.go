package layers

import (
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/ucplayer"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
)

// protocol is a layer that sends all messages by one protocol of ucp.
type protocol struct {
	name  string
	force func(*ucp.Config)
}

var forced = []protocol{
	{"eager", func(c *ucp.Config) { c.RndvThresh, c.EagerWindow = config.MemInf, eagerWindow }},
	rendezvous("get_zcopy"), rendezvous("put_zcopy"), rendezvous("am"),
}

// eagerWindow is the credit window of the layer "eager" in bytes. A message without credit is not sent eagerly.
const eagerWindow = 64 << 20

// rendezvous is the layer that sends all messages by rendezvous.
func rendezvous(scheme string) protocol {
	return protocol{scheme, func(c *ucp.Config) { c.RndvThresh, c.RndvScheme = config.MemZero, scheme }}
}

// Forced lists the layers that are the layer ucp with one protocol for messages of any length. If a scheme of
// rendezvous is not possible, ucp uses one that is. Set opens these layers; Names does not contain them.
func Forced() (names []string) {
	for _, f := range forced {
		names = append(names, f.name)
	}
	return names
}

// openForced adds the openers of Forced.
func (c Config) openForced(openers map[string]layer.Opener) {
	for _, f := range forced {
		cfg := c.UCP
		f.force(&cfg)
		openers[f.name] = ucplayer.New(cfg, c.Components).Open
	}
}
