package ibtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/hwfault"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// FailEachCall opens an MD, memory, two ifaces of tl with config, connected EPs and, if tl has them, a receive queue. It
// repeats this once for each call of the device, and that call then fails. The function that makes the failing call must
// return the error, destroy the objects that it has created, and succeed when it is called again (Connect with another
// EP). After Close, no object of the device, memory or file descriptor may remain.
func FailEachCall(t *testing.T, tl ib.Transport, config any) {
	t.Helper()
	soft, err := softhca.NewDevice(softhca.Config{Name: deviceName, Fabric: softhca.FabricLoop})
	require.NoError(t, err)
	r := &faultRun{t: t, tl: tl, config: config}
	dev := r.faults.Device(soft, mlx5.Config{TotalUUARs: 2, LowLatUUARs: mlx5.NoLowLatUUARs})
	r.component = ib.New(func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }, tl)
	r.faults.FailNone()
	calls := r.all()
	files := testenv.OpenFiles(t)
	for i, call := range calls {
		r.name = fmt.Sprintf("call %d, %s", i, call)
		r.failed = 0
		r.faults.FailCall(i)
		r.all()
		assert.Equal(t, 1, r.failed, "%s: functions that returned the error", r.name)
		require.Equal(t, files, testenv.OpenFiles(t), "%s: open files", r.name)
	}
}

// faultRun is one run in which one call fails.
type faultRun struct {
	t         *testing.T
	faults    hwfault.Faults
	component uct.Component
	tl        ib.Transport
	config    any
	name      string // number and name of the call that fails
	failed    int    // number of functions that returned its error
}

// injected reports whether err is the injected error. Any other error fails the test.
func (r *faultRun) injected(what string, err error) bool {
	r.t.Helper()
	if err == nil {
		return false
	}
	require.ErrorIs(r.t, err, hwfault.ErrInjected, "%s: %s", r.name, what)
	r.failed++
	return true
}

// opened calls open, a second time if the first returns the injected error, and returns its result.
func opened[T any](r *faultRun, what string, open func() (T, error)) T {
	r.t.Helper()
	before := r.faults.Live()
	v, err := open()
	if r.injected(what, err) {
		assert.Equal(r.t, before, r.faults.Live(), "%s: %s leaves objects behind", r.name, what)
		v, err = open()
	}
	require.NoError(r.t, err, "%s: %s again", r.name, what)
	return v
}

// all opens, connects and closes all objects, and returns the calls of the device before the first Close.
func (r *faultRun) all() []string {
	bytes := offheap.InUse()
	md := opened(r, "open MD", func() (uct.MD, error) { return r.component.OpenMD(deviceName) })
	opened(r, "list resources", md.Resources)
	alloc := opened(r, "allocate memory", func() (uct.Mem, error) { return md.Ext().Alloc.Alloc(4096, uct.AccessAll) })
	reg := opened(r, "register memory", func() (uct.Mem, error) { return md.Ext().Reg.Reg(make([]byte, 4096), uct.AccessAll) })
	var ifaces [2]uct.Iface
	for i := range ifaces {
		ifaces[i] = opened(r, "open iface", func() (uct.Iface, error) {
			return md.OpenIface(uct.IfaceParams{Transport: r.tl.Name(), Device: Device, Config: r.config})
		})
	}
	for range 2 { // the second pair may share connections of the first
		r.connectEPs(ifaces)
	}
	calls := r.faults.Calls()
	for _, it := range ifaces {
		require.NoError(r.t, it.Close(), r.name)
	}
	require.NoError(r.t, reg.Close(), r.name)
	require.NoError(r.t, alloc.Close(), r.name)
	require.NoError(r.t, md.Close(), r.name)
	assert.Empty(r.t, r.faults.Live(), "%s: objects that are left", r.name)
	assert.Equal(r.t, bytes, offheap.InUse(), "%s: memory that is left", r.name)
	return calls
}

// connectEPs creates an EP on each iface and connects them to each other.
func (r *faultRun) connectEPs(ifaces [2]uct.Iface) {
	var eps [2]uct.EP
	for i, it := range ifaces {
		eps[i] = opened(r, "new EP", func() (uct.EP, error) { return it.NewEP(paramsFor(ifaces[1-i])) })
	}
	if q := eps[0].Ops().Queues; q != nil {
		opened(r, "new queue", func() (uct.Queue, error) { return q.NewQueue(4) })
	}
	if r.connected(ifaces, eps) {
		return
	}
	for i, ep := range eps {
		if c := ep.Ops().Connect; c != nil {
			_ = c.Connect(addrs(ifaces[1-i], eps[1-i])) // the result of a second Connect is not specified
		}
		require.NoError(r.t, ep.Close(), "%s: close EP", r.name)
	}
	for i, it := range ifaces {
		eps[i] = opened(r, "new EP", func() (uct.EP, error) { return it.NewEP(paramsFor(ifaces[1-i])) })
	}
	require.True(r.t, r.connected(ifaces, eps), "%s: connect other EPs", r.name)
}

// connected reports whether Connect has succeeded on both EPs.
func (r *faultRun) connected(ifaces [2]uct.Iface, eps [2]uct.EP) bool {
	for i, ep := range eps {
		c := ep.Ops().Connect
		if c != nil && r.injected("connect", c.Connect(addrs(ifaces[1-i], eps[1-i]))) {
			return false
		}
	}
	return true
}

func addrs(it uct.Iface, ep uct.EP) (deviceAddr, epAddr []byte) {
	return it.Ext().Address.DeviceAddr(nil), ep.Ops().Connect.EPAddr(nil)
}

// paramsFor returns the parameters of an EP to it; zero if EPs connect to EPs.
func paramsFor(it uct.Iface) uct.EPParams {
	if it.Attr().Caps.Has(uct.CapConnectEP) {
		return uct.EPParams{}
	}
	a := it.Ext().Address
	return uct.EPParams{DeviceAddr: a.DeviceAddr(nil), IfaceAddr: a.IfaceAddr(nil)}
}
