package self

import (
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// harness opens both sides on one domain and in one group, because one goroutine of the suite
// drives both.
func harness() ucttest.Harness {
	group := new(Group)
	return ucttest.Harness{
		OpenMD:       func() (uct.MD, error) { return New(Config{}).OpenMD(Name) },
		SharedMD:     true,
		OneGoroutine: true,
		Transport:    Name,
		Config: func(o ucttest.Options) any {
			return &Config{FIFOSize: max(o.TxDepth, minFIFOSize), SegSize: config.MemSize(8 << 10), Group: group}
		},
	}
}

func TestConformance(t *testing.T) { ucttest.Test(t, harness()) }
