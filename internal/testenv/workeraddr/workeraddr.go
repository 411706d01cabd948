// Package workeraddr makes worker addresses for tests, with resources like those of transports.
package workeraddr

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Make returns the address of a worker with one memory domain and resources by name: "rc" connects EPs and has all
// operations, "ud" connects ifaces and has active messages only, "sm" is as "rc" but connects ifaces. A name after
// '@' is that of another device.
func Make(t testing.TB, uuid uint64, names ...string) *wireup.Address {
	t.Helper()
	a := &wireup.Address{Key: Key(uuid), MDs: []wireup.MD{{Component: "ib"}}}
	for _, name := range names {
		base, dev, _ := strings.Cut(name, "@")
		var r wireup.Resource
		switch base {
		case "rc":
			r = rc()
		case "ud":
			r = ud()
		case "sm":
			r = sm()
		default:
			t.Fatalf("unknown resource %s", name)
		}
		if dev != "" {
			r.Device, r.DeviceAddr = dev, []byte(dev)
		}
		a.Resources = append(a.Resources, r)
	}
	return a
}

// Key returns a public key with the given UUID.
func Key(uuid uint64) (k wireup.PublicKey) {
	binary.LittleEndian.PutUint64(k[:], uuid)
	return k
}

// Reach compares the device addresses, as transports do.
func Reach(a, b *wireup.Address) func(l, r int) (ok bool, why string) {
	return func(l, r int) (bool, string) {
		if string(a.Resources[l].DeviceAddr) != string(b.Resources[r].DeviceAddr) {
			return false, ucs.ErrUnreachable.Error() + ": other fabric"
		}
		return true, ""
	}
}

// Price sets the cost of all classes of operations of a resource; bandwidth is in bytes per second.
func Price(r *wireup.Resource, latency, overhead time.Duration, bandwidth uint64) {
	attr := &uct.IfaceAttr{Caps: uct.CapPutBcopy}
	attr.Costs.Set(uct.Cost{Send: overhead, Latency: latency, Bandwidth: bandwidth}, uct.PutBcopy)
	c := wireup.NewResource(attr, 0).RMA
	r.RMA, r.AMO, r.AM = c, c, c
}

func rc() wireup.Resource {
	r := wireup.Resource{
		Transport: "rc", Device: "hca0:1",
		Caps:    uct.CapAM | uct.CapPut | uct.CapGet | uct.CapAtomic64 | uct.CapPending | uct.CapConnectEP,
		Fetch64: uct.AtomicSet(uct.AtomicAdd, uct.AtomicCSwap), Domain: uct.AtomicDevice, DeviceAddr: []byte("fabric"),
	}
	Price(&r, 600, 50, 12e9)
	return r
}

func ud() wireup.Resource {
	r := wireup.Resource{
		Transport: "ud", Device: "hca0:1",
		Caps:       uct.CapAMBcopy | uct.CapPending | uct.CapConnectIface,
		AMBcopy:    79, // 3840 bytes
		DeviceAddr: []byte("fabric"), IfaceAddr: []byte("qpn"),
	}
	Price(&r, 700, 80, 10e9)
	return r
}

func sm() wireup.Resource {
	r := rc()
	r.Transport, r.Device = "sm", "memory"
	r.Caps = r.Caps&^uct.CapConnectEP | uct.CapConnectIface
	r.AMBcopy, r.IfaceAddr = 88, []byte("segment") // 8192 bytes
	Price(&r, 80, 10, 20e9)
	return r
}
