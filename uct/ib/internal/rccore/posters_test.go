package rccore_test

import (
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/rc"
)

// The tests run over verbs, over mlx5 queues, and over mlx5 queues with SGE lists longer than most
// of those in the tests.
func init() {
	rccore.Posters = []ibtest.Poster{
		{Label: "verbs", Transport: rc.Transport(rc.Config{})},
		{Label: "mlx5", Transport: dv.RC(dv.RCConfig{})},
		{Label: "mlx5 lists", Transport: dv.RC(dv.RCConfig{TxPostlist: 32})},
	}
}
