package sm_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/sm"
)

// Two domains, usually of two processes: one allocates memory, the other one writes to it with its
// key, without CPU time of the first.
func Example() {
	near, far := must(sm.New(sm.Config{}).OpenMD("sm")), must(sm.New(sm.Config{}).OpenMD("sm"))
	defer near.Close()
	defer far.Close()
	open := func(md uct.MD) uct.Iface {
		return must(md.OpenIface(uct.IfaceParams{Transport: sm.Name, Device: sm.DeviceName}))
	}
	target, initiator := open(far), open(near)
	defer target.Close()
	defer initiator.Close()
	mem := must(far.Ext().Alloc.Alloc(4096, uct.AccessAll))
	defer mem.Close()

	addr := target.Ext().Address // its bytes, and those of the key, reach the peer by other means
	ep := must(initiator.NewEP(uct.EPParams{DeviceAddr: addr.DeviceAddr(nil), IfaceAddr: addr.IfaceAddr(nil)}))
	defer ep.Close()
	key := must(near.Ext().Keys.UnpackRKey(must(mem.PackRKey(nil))))
	defer near.Ext().Keys.ReleaseRKey(key)
	for {
		err := ep.Ops().Put.PutShort([]byte("hello"), mem.Addr(), key)
		if err == nil {
			break
		}
		if err != uct.ErrNoResource { // until the EP is connected
			log.Fatal(err)
		}
		initiator.Progress()
		target.Progress()
	}
	for must(ep.Flush(nil)) { // when nothing is pending, the data has arrived at the target
		initiator.Progress()
	}
	fmt.Printf("%s\n", mem.Bytes()[:5])
	// Output: hello
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
