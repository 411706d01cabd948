package instr

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPackageOf(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"function", "github.com/gucx/gucx/ucp.NewContext", "github.com/gucx/gucx/ucp"},
		{"method", "github.com/gucx/gucx/uct/ib/rc.(*EP).PutShort", "github.com/gucx/gucx/uct/ib/rc"},
		{"closure", "github.com/gucx/gucx/ucp.(*EP).Put.func1", "github.com/gucx/gucx/ucp"},
		{"generic", "github.com/gucx/gucx/internal/seq.(*Window[go.shape.struct { a/b.c int }]).Get", "github.com/gucx/gucx/internal/seq"},
		{"standard library", "encoding/binary.bigEndian.PutUint32", "encoding/binary"},
		{"runtime", "runtime.memmove", "runtime"},
		{"dotted directory", "gopkg.in/x.Do", "gopkg.in/x"},
		{"no package", "gogo", "gogo"},
		{"unknown", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, packageOf(tc.in)) })
	}
}

func TestPartOf(t *testing.T) {
	for pkg, want := range map[string]Part{
		"github.com/gucx/gucx/ucp":                            UCP,
		"github.com/gucx/gucx/ucp/internal/handshake":         UCP,
		"github.com/gucx/gucx/wireup":                         UCP,
		"github.com/gucx/gucx/uct":                            UCT,
		"github.com/gucx/gucx/uct/base":                       UCT,
		"github.com/gucx/gucx/uct/ib":                         UCT,
		"github.com/gucx/gucx/uct/ib/rc":                      UCT,
		"github.com/gucx/gucx/uct/ib/ud":                      UCT,
		"github.com/gucx/gucx/uct/ib/verbs":                   Verbs,
		"github.com/gucx/gucx/uct/ib/verbs/mlx5":              Verbs,
		"github.com/gucx/gucx/internal/mlx5/provider":         Verbs,
		"github.com/gucx/gucx/internal/mlx5/adapter":          Verbs,
		"github.com/gucx/gucx/internal/uverbs":                Verbs,
		"github.com/gucx/gucx/uct/ib/verbs/softhca":           Device,
		"github.com/gucx/gucx/internal/softhca":               Device,
		"github.com/gucx/gucx/internal/softhca/internal/ring": Device,
		"github.com/gucx/gucx/perftest/internal/probes/instr": harness,
		"github.com/gucx/gucx/perftest":                       harness,
		module + "perftest/internal/layers/averbslayer":       harness,
		module + "perftest/internal/layers/averbslayer/queue": AVerbs,
		"github.com/gucx/gucx/internal/seq":                   services,
		"github.com/gucx/gucx/internal/mmio":                  services,
		"github.com/gucx/gucx/ucpx":                           services,
		"encoding/binary":                                     services,
		"runtime":                                             services,
		"":                                                    services,
	} {
		assert.Equal(t, want, partOf(pkg), pkg)
	}
}

func TestPart_String(t *testing.T) {
	assert.Equal(t, "ucp", UCP.String())
	assert.Equal(t, "services", services.String())
}
