package self

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// TestClosed: NewEP of a closed iface and Alloc of a closed MD fail.
func TestClosed(t *testing.T) {
	md, err := New(Config{}).OpenMD(Name)
	require.NoError(t, err)
	params := uct.IfaceParams{Transport: Name, Device: DeviceName, Config: Config{Group: new(Group)}}
	it, err := md.OpenIface(params)
	require.NoError(t, err)
	peer, err := md.OpenIface(params)
	require.NoError(t, err)
	addr := peer.(*iface)
	require.NoError(t, it.Close())
	_, err = it.NewEP(uct.EPParams{DeviceAddr: addr.DeviceAddr(nil), IfaceAddr: addr.IfaceAddr(nil)})
	assert.ErrorIs(t, err, uct.ErrClosed)
	require.NoError(t, peer.Close())
	require.NoError(t, md.Close())
	for name, register := range map[string]func() (uct.Mem, error){
		"alloc": func() (uct.Mem, error) { return md.Ext().Alloc.Alloc(64, uct.AccessAll) },
		"reg":   func() (uct.Mem, error) { return md.Ext().Reg.Reg(make([]byte, 64), uct.AccessAll) },
	} {
		mem, err := register()
		assert.ErrorIs(t, err, uct.ErrClosed, name)
		assert.Nil(t, mem, name)
	}
}
