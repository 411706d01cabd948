package dv_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// One device offers rc, which uses verbs, and rc_mlx5, which writes the same queues directly. Each
// fetches and increments a counter in the memory of its peer. The code is the same, and rc_mlx5
// needs fewer instructions: perftest instructions shows how many.
func Example() {
	c := ib.New(func() ([]*verbs.Device, error) {
		d, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
		return []*verbs.Device{d}, err
	}, rc.Transport(rc.Config{}), dv.RC(dv.RCConfig{}))
	md := must(c.OpenMD(must(c.MDs())[0].Name))
	defer md.Close()
	mem := must(md.Ext().Alloc.Alloc(4096, uct.AccessAll))
	defer mem.Close()
	key := must(md.Ext().Keys.UnpackRKey(must(mem.PackRKey(nil))))
	defer md.Ext().Keys.ReleaseRKey(key)

	for _, r := range must(md.Resources()) {
		iface := must(md.OpenIface(uct.IfaceParams{Transport: r.Transport, Device: r.Device}))
		ep, peer := must(iface.NewEP(uct.EPParams{})), must(iface.NewEP(uct.EPParams{}))
		device := iface.Ext().Address.DeviceAddr(nil)
		check(ep.Ops().Connect.Connect(device, peer.Ops().Connect.EPAddr(nil)))
		check(peer.Ops().Connect.Connect(device, ep.Ops().Connect.EPAddr(nil)))

		old := new(uint64) // not on the stack, because the device writes it later
		c := &uct.Completion{Count: 1, Func: func(*uct.Completion) {}}
		if must(ep.Ops().Atomics.AtomicFetch(uct.AtomicAdd, 8, 1, old, mem.Addr(), key, c)) {
			for c.Count > 0 {
				iface.Progress()
			}
		}
		fmt.Println(r.Transport, "fetched", *old)
		check(iface.Close())
	}
	// Output:
	// rc fetched 0
	// rc_mlx5 fetched 1
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
