package uct_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/self"
)

// open opens an iface of the transport self, an endpoint to the iface itself, and
// memory with its key. For other transports only the first lines differ.
func open() (iface uct.Iface, ep uct.EP, mem uct.Mem, key uct.RKey) {
	md := must(self.New(self.Config{}).OpenMD("self"))
	iface = must(md.OpenIface(uct.IfaceParams{Transport: self.Name, Device: self.DeviceName}))
	addr := iface.Ext().Address
	ep = must(iface.NewEP(uct.EPParams{DeviceAddr: addr.DeviceAddr(nil), IfaceAddr: addr.IfaceAddr(nil)}))
	mem = must(md.Ext().Alloc.Alloc(4096, uct.AccessAll))
	key = must(md.Ext().Keys.UnpackRKey(must(mem.PackRKey(nil))))
	return iface, ep, mem, key
}

// The data of a message is valid during the call of the handler. The payload follows the 8-byte header of AMShort.
func ExampleAMSender() {
	iface, ep, _, _ := open()
	defer iface.Close()
	check(iface.SetAMHandler(1, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) (keep bool) {
		fmt.Printf("%s\n", data[8:])
		return false
	})))
	check(ep.Ops().AM.AMShort(1, 42, []byte("hello")))
	for iface.Progress() == 0 {
	}
	// Output: hello
}

// A put of a buffer that the caller may reuse at once. A flush completes when the data has arrived at the target.
func ExamplePutter() {
	iface, ep, mem, key := open()
	defer iface.Close()
	check(ep.Ops().Put.PutShort([]byte("hello"), mem.Addr(), key))
	for must(ep.Flush(nil)) { // pending
		iface.Progress()
	}
	fmt.Printf("%s\n", mem.Bytes()[:5])
	// Output: hello
}

// Progress calls a Completion if the operation is pending when the call returns. The caller must not move or free
// it until then, so it is usually a field of the caller's record.
func ExampleGetter() {
	iface, ep, mem, key := open()
	defer iface.Close()
	copy(mem.Bytes(), "hello")
	done, buf := false, make([]byte, 5)
	c := &uct.Completion{Count: 1, Func: func(*uct.Completion) { done = true }}
	pending := must(ep.Ops().Get.GetBcopy(buf, mem.Addr(), key, c))
	for pending && !done {
		iface.Progress()
	}
	fmt.Printf("%s\n", buf)
	// Output: hello
}

// A fetching operation returns the old value.
func ExampleAtomics() {
	iface, ep, mem, key := open()
	defer iface.Close()
	var before uint64
	done := false
	c := &uct.Completion{Count: 1, Func: func(*uct.Completion) { done = true }}
	pending := must(ep.Ops().Atomics.AtomicFetch(uct.AtomicAdd, 8, 42, &before, mem.Addr(), key, c))
	for pending && !done {
		iface.Progress()
	}
	fmt.Println(before, mem.Bytes()[0])
	// Output: 0 42
}

// An operation without resources returns ErrNoResource and has no effect. The caller queues a pending request, which
// Progress calls when there may be resources again.
func ExamplePendingReq() {
	iface, ep, _, _ := open()
	defer iface.Close()
	received := 0
	check(iface.SetAMHandler(1, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { received++; return false })))
	sent := 0
	for ep.Ops().AM.AMShort(1, 0, nil) == nil {
		sent++
	}
	check(ep.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error { return ep.Ops().AM.AMShort(1, 0, nil) }}))
	for received < sent+1 {
		iface.Progress()
	}
	fmt.Println("all received")
	// Output: all received
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
