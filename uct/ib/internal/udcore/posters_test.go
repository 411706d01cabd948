package udcore_test

import (
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/internal/udcore"
	"github.com/gucx/gucx/uct/ib/ud"
)

// The tests of the core run with verbs, with mlx5 queues, and with lists on mlx5 queues that are
// longer than most posts of the tests.
func init() {
	udcore.Posters = []ibtest.Poster{
		{Label: "verbs", Transport: ud.Transport(ud.Config{})},
		{Label: "mlx5", Transport: dv.UD(dv.UDConfig{})},
		{Label: "mlx5 lists", Transport: dv.UD(dv.UDConfig{TxPostlist: 32})},
	}
}
