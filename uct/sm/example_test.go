package sm_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/sm"
)

// Two domains, usually of two processes: one allocates memory, the other one writes to it by its
// key, and the first has no part in that.
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
		if err != uct.ErrNoResource { // which it is until the peer's answer is there
			log.Fatal(err)
		}
		initiator.Progress()
		target.Progress()
	}
	for must(ep.Flush(nil)) { // at the target when nothing is pending
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
