package tcp_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/tcp"
)

// greeter replies to each message over an EP to its sender.
type greeter struct{ back uct.EP }

func (g *greeter) HandleAM(data []byte, _ uct.Desc) (keep bool) {
	fmt.Printf("request: %s\n", data[8:])
	check(g.back.Ops().AM.AMShort(1, 0, []byte("here")))
	return false
}

// client waits for the reply.
type client struct{ answered bool }

func (c *client) HandleAM(data []byte, _ uct.Desc) (keep bool) {
	fmt.Printf("answer: %s\n", data[8:])
	c.answered = true
	return false
}

// Two ifaces, which usually are on two hosts. Each sends to the address of the other one, over one
// connection, which the first message opens.
func Example() {
	md := must(tcp.New(tcp.Config{}).OpenMD("tcp"))
	defer md.Close()
	open := func() uct.Iface {
		return must(md.OpenIface(uct.IfaceParams{Transport: tcp.Name, Device: must(md.Resources())[0].Device}))
	}
	connect := func(from, to uct.Iface) uct.EP {
		addr := to.Ext().Address // the program passes its bytes to the other host
		return must(from.NewEP(uct.EPParams{DeviceAddr: addr.DeviceAddr(nil), IfaceAddr: addr.IfaceAddr(nil)}))
	}
	near, far := open(), open()
	defer near.Close()
	defer far.Close()
	there := connect(near, far)
	c := &client{}
	check(near.SetAMHandler(1, c))
	check(far.SetAMHandler(1, &greeter{connect(far, near)}))

	check(there.Ops().AM.AMShort(1, 0, []byte("who is there?")))
	for !c.answered {
		near.Progress()
		far.Progress()
	}
	// Output:
	// request: who is there?
	// answer: here
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
