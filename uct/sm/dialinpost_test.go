package sm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// TestDialInPost: the first post connects. After one Progress on each side messages arrive; no other goroutine has to run meanwhile.
func TestDialInPost(t *testing.T) {
	a, b := openStation(t, Config{DialInPost: true}), openStation(t, Config{})
	e, err := a.iface.NewEP(uct.EPParams{DeviceAddr: b.iface.DeviceAddr(nil), IfaceAddr: b.iface.IfaceAddr(nil)})
	require.NoError(t, err)
	var got []byte
	require.NoError(t, b.iface.SetAMHandler(1, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
		got = append(got, data...)
		return false
	})))

	assert.ErrorIs(t, e.Ops().AM.AMShort(1, 7, make([]byte, a.iface.Attr().AM.MaxShort-wordLen+1)), uct.ErrTooLong, "not connected")
	assert.Equal(t, uct.ErrNoResource, e.Ops().AM.AMShort(1, 7, nil))
	assert.Equal(t, 1, a.iface.Progress())
	require.NoError(t, e.Ops().AM.AMShort(1, 7, nil))
	assert.Zero(t, b.iface.Progress(), "it adds the link")
	assert.Equal(t, 1, b.iface.Progress())
	assert.Equal(t, []byte{7, 0, 0, 0, 0, 0, 0, 0}, got)

	require.NoError(t, e.Close())
	a.close(t)
	b.close(t)
}

// TestDialInPost_PeerClosed: the post does not fail, the EP does in the next Progress.
func TestDialInPost_PeerClosed(t *testing.T) {
	a, b := openStation(t, Config{DialInPost: true}), openStation(t, Config{})
	e, err := a.iface.NewEP(uct.EPParams{DeviceAddr: b.iface.DeviceAddr(nil), IfaceAddr: b.iface.IfaceAddr(nil)})
	require.NoError(t, err)
	b.close(t)
	assert.Equal(t, uct.ErrNoResource, e.Ops().AM.AMShort(1, 7, nil))
	assert.Equal(t, 1, a.iface.Progress())
	assert.ErrorIs(t, e.Ops().AM.AMShort(1, 7, nil), uct.ErrEPFailed)
	require.NoError(t, e.Close())
	a.close(t)
}
