package rc_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Endpoints of rc are connected in pairs. Each side makes an endpoint, passes its address to the
// other side, and connects to the address of the other side. Here both are in one process. The
// target does not call Progress, because the devices execute the put.
func Example() {
	devices := func() ([]*verbs.Device, error) {
		d, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
		return []*verbs.Device{d}, err
	}
	c := ib.New(devices, rc.Transport(rc.Config{}))
	md := must(c.OpenMD(must(c.MDs())[0].Name))
	defer md.Close()
	port := must(md.Resources())[0]
	iface := must(md.OpenIface(uct.IfaceParams{Transport: rc.Name, Device: port.Device}))
	defer iface.Close()

	ep, target := must(iface.NewEP(uct.EPParams{})), must(iface.NewEP(uct.EPParams{}))
	defer ep.Close()
	defer target.Close()
	device := iface.Ext().Address.DeviceAddr(nil)
	check(ep.Ops().Connect.Connect(device, target.Ops().Connect.EPAddr(nil)))
	check(target.Ops().Connect.Connect(device, ep.Ops().Connect.EPAddr(nil)))

	mem := must(md.Ext().Alloc.Alloc(4096, uct.AccessAll))
	defer mem.Close()
	key := must(md.Ext().Keys.UnpackRKey(must(mem.PackRKey(nil))))
	defer md.Ext().Keys.ReleaseRKey(key)
	check(ep.Ops().Put.PutShort([]byte("hello"), mem.Addr(), key))
	for must(ep.Flush(nil)) { // while it is pending
		iface.Progress()
	}
	fmt.Printf("%s\n", mem.Bytes()[:5])
	// Output: hello
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
