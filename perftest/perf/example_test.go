package perf_test

import (
	"os"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/perftest/perf"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// reference is a component for this example; examples/transport has a real one.
type reference struct{ world *memtp.World }

func (r reference) Name() string                   { return "mem" }
func (r reference) MDs() ([]uct.MDResource, error) { return []uct.MDResource{{Name: "mem0"}}, nil }
func (r reference) OpenMD(string) (uct.MD, error)  { return r.world.OpenMD() }

// The program adds a transport that package all does not contain.
func ExampleProgram() {
	var cfg struct {
		Depth int `env:"DEPTH" default:"64" doc:"Operations of an endpoint in flight."`
	}
	p := perf.Program{
		Name: "mine",
		Own: gucx.Own{
			Tables:     []config.Table{{Prefix: "MEM", Doc: "The transport of this program.", Config: &cfg}},
			Components: func() []uct.Component { return []uct.Component{reference{memtp.NewWorld()}} },
		},
	}
	// In a program: os.Exit(p.Run(os.Args[1:], os.Stdout, os.Stderr))
	p.Run([]string{"client", "--port", "-1", "-x", "mem"}, os.Stdout, os.Stdout)

	// Output:
	// mine: port -1 is outside 0..65535
	// mine: see mine client --help
}
