package self

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// rig is an iface with an EP to itself and memory.
type rig struct {
	md    *domain
	iface *iface
	ep    *endpoint
	mem   uct.Mem
	key   uct.RKey
	errs  []error
}

func openRig(t testing.TB) *rig {
	t.Helper()
	md, err := New(Config{}).OpenMD(Name)
	require.NoError(t, err)
	r := &rig{md: md.(*domain)}
	it, err := md.OpenIface(uct.IfaceParams{Transport: Name, Device: DeviceName,
		OnError: func(_ uct.EP, err error) { r.errs = append(r.errs, err) }})
	require.NoError(t, err)
	r.iface = it.(*iface)
	ep, err := it.NewEP(uct.EPParams{DeviceAddr: r.iface.DeviceAddr(nil), IfaceAddr: r.iface.IfaceAddr(nil)})
	require.NoError(t, err)
	r.ep = ep.(*endpoint)
	r.mem, err = r.md.Alloc(1<<20, uct.AccessAll)
	require.NoError(t, err)
	r.key = r.keyOf(t, r.mem)
	t.Cleanup(func() {
		require.NoError(t, r.iface.Close())
		require.NoError(t, r.mem.Close())
		require.NoError(t, r.md.Close())
	})
	return r
}

func (r *rig) keyOf(t testing.TB, m uct.Mem) uct.RKey {
	t.Helper()
	packed, err := m.PackRKey(nil)
	require.NoError(t, err)
	key, err := r.md.UnpackRKey(packed)
	require.NoError(t, err)
	return key
}
