package sm

import (
	"os"
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
)

// small limits the address space of tests.
const testArena = config.MemSize(64 << 20)

func openTestMD() (uct.MD, error) { return New(Config{ArenaSize: testArena}).OpenMD(Name) }

// tiny is the configuration of the suite: queues of a few messages.
func tiny(o ucttest.Options) any {
	return &Config{FIFOSize: max(o.TxDepth, minFIFOSize), Segs: max(o.TxDepth/2, 1), SegSize: 8 << 10}
}

func harness() ucttest.Harness {
	return ucttest.Harness{
		OpenMD:    openTestMD,
		Transport: Name,
		Config:    tiny,
		StartPeer: ucttest.ExecPeer(Name),
		OneSided:  true,
	}
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		runChild(role)
		return
	}
	ucttest.PeerMain(map[string]ucttest.Harness{Name: harness()})
	testenv.Main(m)
}

func TestConformance(t *testing.T) { ucttest.Test(t, harness()) }

// registeredMD is the domain without its allocator: the suite then uses heap
// memory, which peers cannot map.
type registeredMD struct{ uct.MD }

func (m registeredMD) Ext() *uct.MDExt {
	ext := *m.MD.Ext()
	ext.Alloc = nil
	return &ext
}

// TestConformance_Registered runs the suite on registered memory.
func TestConformance_Registered(t *testing.T) {
	for _, tc := range []struct {
		name string
		cma  config.Ternary
	}{{"attached", config.Auto}, {"attached, short gets", config.Yes}, {"by the target", config.No}} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.cma != config.No {
				needCMA(t)
			}
			if tc.cma != config.Auto {
				testenv.SkipShort(t, "a suite for each way to memory")
			}
			if tc.cma == config.Yes {
				testenv.SkipSweep(t, "a suite for each way to memory; the other two go all of them but short gets")
			}
			h := harness()
			h.OneSided, h.StartPeer = tc.cma != config.No, nil
			if !testenv.Sweep() { // no memory is in it, or only the transport's
				h.Except = []string{"addr", "am", "attr", "cost", "desc", "order", "pending", "wake"}
			}
			h.OpenMD = func() (uct.MD, error) {
				md, err := openTestMD()
				if err != nil {
					return nil, err
				}
				return registeredMD{md}, nil
			}
			h.Config = func(o ucttest.Options) any {
				cfg := tiny(o).(*Config)
				cfg.CMA = tc.cma
				return cfg
			}
			ucttest.Test(t, h)
		})
	}
}
