package ucttest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
)

// memHarness opens memtp in a new world. change may be nil.
func memHarness(change func(*memtp.Config)) ucttest.Harness {
	world := memtp.NewWorld()
	h := ucttest.Harness{
		OpenMD:    world.OpenMD,
		Transport: memtp.Transport,
		Config: func(o ucttest.Options) any {
			c := &memtp.Config{TxDepth: o.TxDepth, RxDepth: o.RxDepth, Queues: 16}
			if change != nil {
				change(c)
			}
			return c
		},
		OneSided: true,
	}
	h.StartPeer = ucttest.LocalPeer(h, func(md uct.MD, _ uct.Iface) error {
		world.Kill(md)
		return nil
	})
	return h
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReference(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*memtp.Config)
	}{
		{"iface", nil},
		{"ep", func(c *memtp.Config) { c.ConnectEP = true }},
		{"am only", func(c *memtp.Config) { c.AMOnly = true }},
		{"am only, ep", func(c *memtp.Config) { c.AMOnly, c.ConnectEP = true, true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name != "iface" && tc.name != "am only, ep" {
				testenv.SkipShort(t, "what it has is in one of the other two")
			}
			ucttest.Test(t, memHarness(tc.change))
		})
	}
}
