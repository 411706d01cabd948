package wrap_test

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/self"
	"github.com/gucx/gucx/uct/wrap"
)

// Two layers around a transport: one refuses the second operation of an EP, the other
// tells what the caller sees. A program passes such a component to ucp.NewContext as any
// other.
func Example() {
	log := func(line string) { fmt.Println(line[strings.Index(line, ": ")+2:]) }
	plan := func(_ uct.EP, _ uct.Variant, n int) wrap.Fault {
		if n == 1 {
			return wrap.Fault{Refuse: uct.ErrNoResource}
		}
		return wrap.Fault{}
	}
	c := wrap.Component(self.New(self.Config{}), wrap.Faults(plan), wrap.Trace(log))

	md, err := c.OpenMD("self")
	if err != nil {
		fmt.Println(err)
		return
	}
	iface, err := md.OpenIface(uct.IfaceParams{Transport: "self", Device: self.DeviceName})
	if err != nil {
		fmt.Println(err)
		return
	}
	addr := iface.Ext().Address
	ep, err := iface.NewEP(uct.EPParams{DeviceAddr: addr.DeviceAddr(nil), IfaceAddr: addr.IfaceAddr(nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	am := ep.Ops().AM
	for range 3 {
		_ = am.AMShort(1, 42, []byte("hello"))
	}
	_, _ = ep.Flush(nil)
	_ = ep.Close()
	_, _ = iface.Close(), md.Close()
	// Output:
	// am_short of 13 bytes: <nil>
	// am_short of 13 bytes: no resources are available to initiate the operation
	// am_short of 13 bytes: <nil>
	// flush: pending false, <nil>
	// close: <nil>
}
