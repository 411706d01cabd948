package ud_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// counter counts messages.
type counter struct{ messages, bytes int }

func (c *counter) HandleAM(data []byte, _ uct.Desc) (keep bool) {
	c.messages, c.bytes = c.messages+1, c.bytes+len(data)
	return false
}

// row is a message of n bytes.
type row struct{ n int }

func (r *row) Pack(dst []byte) int { return copy(dst, make([]byte, r.n)) }

// An iface of ud has one queue pair for all its EPs: here one hundred EPs to the iface itself. A
// message fits in one datagram. Lost datagrams are retransmitted, and a flush completes when all
// messages have arrived.
func Example() {
	c := ib.New(func() ([]*verbs.Device, error) {
		d, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
		return []*verbs.Device{d}, err
	}, ud.Transport(ud.Config{}))
	md := must(c.OpenMD(must(c.MDs())[0].Name))
	defer md.Close()
	iface := must(md.OpenIface(uct.IfaceParams{Transport: ud.Name, Device: must(md.Resources())[0].Device}))
	defer iface.Close()
	count := &counter{}
	check(iface.SetAMHandler(1, count))

	addr := iface.Ext().Address
	message := &row{iface.Attr().AM.MaxBcopy}
	for range 100 {
		ep := must(iface.NewEP(uct.EPParams{DeviceAddr: addr.DeviceAddr(nil), IfaceAddr: addr.IfaceAddr(nil)}))
		must(ep.Ops().AM.AMBcopy(1, message))
	}
	for must(iface.Flush(nil)) {
		iface.Progress()
	}
	fmt.Println(count.messages, "messages, each of", count.bytes/count.messages, "bytes")
	// Output: 100 messages, each of 4088 bytes
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
