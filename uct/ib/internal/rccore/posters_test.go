package rccore_test

import (
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/rc"
)

// The tests of the core run over verbs, over mlx5 queues, and over those with lists
// that are longer than most of what the tests post.
func init() {
	rccore.Posters = []ibtest.Poster{
		{Label: "verbs", Transport: rc.Transport(rc.Config{})},
		{Label: "mlx5", Transport: dv.RC(dv.RCConfig{})},
		{Label: "mlx5 lists", Transport: dv.RC(dv.RCConfig{TxPostlist: 32})},
	}
}
