package self_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/self"
)

// printer handles active messages. The data is only valid during the call.
type printer struct{}

func (printer) HandleAM(data []byte, _ uct.Desc) (keep bool) {
	fmt.Printf("message: %s\n", data[8:]) // after the header of AMShort
	return false
}

// The interface of transports, without ucp: an iface sends an active message to
// itself, and puts to memory with a key. Other transports are used in the same way.
func Example() {
	md := must(self.New(self.Config{}).OpenMD("self"))
	defer md.Close()
	iface := must(md.OpenIface(uct.IfaceParams{Transport: self.Name, Device: self.DeviceName}))
	defer iface.Close()
	check(iface.SetAMHandler(1, printer{}))
	addr := iface.Ext().Address
	ep := must(iface.NewEP(uct.EPParams{DeviceAddr: addr.DeviceAddr(nil), IfaceAddr: addr.IfaceAddr(nil)}))
	defer ep.Close()

	check(ep.Ops().AM.AMShort(1, 42, []byte("hello"))) // after ErrNoResource: call Progress and post again
	for iface.Progress() == 0 {
	}

	mem := must(md.Ext().Alloc.Alloc(4096, uct.AccessAll))
	defer mem.Close()
	key := must(md.Ext().Keys.UnpackRKey(must(mem.PackRKey(nil)))) // a program sends the packed key to the peer
	check(ep.Ops().Put.PutShort([]byte("put"), mem.Addr(), key))
	for {
		pending := must(ep.Flush(nil)) // when nothing is pending, the data has arrived at the target
		if !pending {
			break
		}
		iface.Progress()
	}
	md.Ext().Keys.ReleaseRKey(key)
	fmt.Printf("memory: %s\n", mem.Bytes()[:3])
	// Output:
	// message: hello
	// memory: put
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
