package xrc_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ib/xrc"
)

// A receive queue has a number. Who knows it sends to that queue, and the device puts the message
// into the buffer that was posted there: no copy, and no matching by the processor.
func Example() {
	c := ib.New(func() ([]*verbs.Device, error) {
		d, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
		return []*verbs.Device{d}, err
	}, xrc.Transport(xrc.Config{}))
	md := must(c.OpenMD(must(c.MDs())[0].Name))
	defer md.Close()
	iface := must(md.OpenIface(uct.IfaceParams{Transport: xrc.Name, Device: must(md.Resources())[0].Device}))
	defer iface.Close()
	ep, peer := must(iface.NewEP(uct.EPParams{})), must(iface.NewEP(uct.EPParams{}))
	device := iface.Ext().Address.DeviceAddr(nil)
	check(ep.Ops().Connect.Connect(device, peer.Ops().Connect.EPAddr(nil)))
	check(peer.Ops().Connect.Connect(device, ep.Ops().Connect.EPAddr(nil)))

	mem := must(md.Ext().Alloc.Alloc(4096, uct.AccessAll))
	defer mem.Close()
	in, out := mem.Bytes()[:64], mem.Bytes()[64:128]
	queue := must(peer.Ops().Queues.NewQueue(1))
	got := &uct.QueueRecv{Func: func(r *uct.QueueRecv) { fmt.Printf("%s: %s\n", r.Status, in[:r.Len]) }}
	check(queue.Post(got, []uct.IOV{{Buf: in, Mem: mem}}))

	conn := must(ep.Ops().Queues.Attach(queue.Number()))
	n := copy(out, "for this queue")
	sent := false
	done := &uct.Completion{Count: 1, Func: func(*uct.Completion) { sent = true }}
	must(conn.SendZcopy([]uct.IOV{{Buf: out[:n], Mem: mem}}, done))
	for !sent || got.Len == 0 {
		iface.Progress()
	}
	// Output: ok: for this queue
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
