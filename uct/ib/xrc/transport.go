package xrc

import (
	"time"

	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/xrccore"
)

// Name is the name of the transport in uct.Resource.
const Name = "xrc"

// postOverhead is a little above that of rc, which does the same with fewer QPs, so that
// who has no use for queues takes rc.
const postOverhead = 80 * time.Nanosecond

// Config tunes the transport. The zero value is ready to use.
type Config = xrccore.Config

// Values of Config.ShareDomain.
const (
	ShareNothing = xrccore.ShareNothing
	ShareProcess = xrccore.ShareProcess
	ShareHost    = xrccore.ShareHost
)

// Transport makes the transport for ib.New. defaults are used by ifaces that are
// opened without a Config.
func Transport(defaults Config) ib.Transport {
	return xrccore.OverVerbs(Name, postOverhead, defaults)
}
