package udcore_test

import (
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/internal/udcore"
	"github.com/gucx/gucx/uct/ib/ud"
)

// The tests of the core run over verbs and over mlx5 queues.
func init() {
	udcore.Posters = []udcore.Poster{
		{Label: "verbs", Transport: ud.Transport(ud.Config{})},
		{Label: "mlx5", Transport: dv.UD(dv.UDConfig{})},
	}
}
