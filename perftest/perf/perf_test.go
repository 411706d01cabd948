package perf

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// settings are the settings of the transport of these tests.
type settings struct {
	Depth int `env:"DEPTH" default:"7" doc:"Length of a queue."`
}

// component is the component of the reference transport.
type component struct{ world *memtp.World }

func (c component) Name() string                   { return "mem" }
func (c component) MDs() ([]uct.MDResource, error) { return []uct.MDResource{{Name: "mem0"}}, nil }
func (c component) OpenMD(string) (uct.MD, error)  { return c.world.OpenMD() }

// run runs a program with this component.
func run(args ...string) (code int, seen settings, stdout, stderr string) {
	p := Program{
		Name: "mine",
		Own: gucx.Own{
			Tables:     []config.Table{{Prefix: "MEM", Doc: "Memory.", Config: &seen}},
			Components: func() []uct.Component { return []uct.Component{component{memtp.NewWorld()}} },
		},
	}
	var out, errs bytes.Buffer
	code = p.Run(args, &out, &errs)
	return code, seen, out.String(), errs.String()
}

func TestRun_ListsAddedTransport(t *testing.T) {
	code, _, out, errs := run("info", "-d")
	require.Zero(t, code, errs)
	assert.Contains(t, out, "# Memory domain: mem0")
	assert.Contains(t, out, "#   Transport: mem")
	assert.Contains(t, out, "#   Transport: rc_mlx5")
}

func TestRun_ReadsItsTables(t *testing.T) {
	t.Setenv("GUCX_MEM_DEPTH", "9")
	code, seen, out, errs := run("info", "-c")
	require.Zero(t, code, errs)
	assert.Equal(t, 9, seen.Depth)
	assert.Contains(t, out, "GUCX_MEM_DEPTH=9")

	t.Setenv("GUCX_MEM_DEEP", "9")
	code, _, _, errs = run("info", "-c")
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, "mine: ")
	assert.Contains(t, errs, "GUCX_MEM_DEEP")
}

func TestRun_Name(t *testing.T) {
	code, _, out, errs := run("--help")
	require.Zero(t, code, errs)
	assert.Contains(t, out, "mine help TOPIC")
	assert.NotRegexp(t, `\bperftest( |$)`, out)
	code, _, out, errs = run("help", "method")
	require.Zero(t, code, errs)
	assert.Contains(t, out, "mine info -d")
	assert.Contains(t, out, "ucx_perftest", "the name of the program of UCX does not change")
	assert.NotRegexp(t, `\bperftest( |$)`, out)
	assert.Contains(t, out, "docs/perftest.md")
	code, _, _, errs = run("-x", "nothing")
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, "mine: see mine --help")
}

// The zero value of Program is perftest.
func TestRun_Zero(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, Program{}.Run([]string{"info", "-d", "-t", "self"}, &out, &errs), errs.String())
	assert.Contains(t, out.String(), "#   Transport: self")
}
