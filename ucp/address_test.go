package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/wireup"
)

// maxDefaultAddr is the maximum length in bytes of the address of a worker with all transports. The worker and tcp have
// a public key of 32 bytes each.
const maxDefaultAddr = 240

// TestAddress_DefaultWorkerIsShort: the test logs the bytes of each transport, by leaving out one after the other.
func TestAddress_DefaultWorkerIsShort(t *testing.T) {
	ctx, err := ucp.NewContext(ucp.Config{}, all.Components()...)
	require.NoError(t, err)
	defer func() { require.NoError(t, ctx.Close()) }()
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close()) }()

	packed := w.Address()
	if n := len(w.AddressInfo().Resources); n == 7 { // more network devices need more
		assert.LessOrEqual(t, len(packed), maxDefaultAddr)
	} else {
		t.Logf("%d resources", n)
	}
	rest := *w.AddressInfo()
	left := len(packed)
	for i := range w.AddressInfo().Resources {
		r := &w.AddressInfo().Resources[i]
		rest.Resources = w.AddressInfo().Resources[i+1:]
		b, err := rest.Pack()
		require.NoError(t, err)
		t.Logf("%3d bytes: %s on a device of %d bytes, iface of %d", left-len(b), r.Transport, len(r.DeviceAddr), len(r.IfaceAddr))
		left = len(b)
	}
	t.Logf("%3d bytes: head and memory domains; %d in all", left, len(packed))

	got, err := wireup.UnpackAddress(packed)
	require.NoError(t, err)
	for i := range got.Resources {
		got.Resources[i].Device = w.AddressInfo().Resources[i].Device
	}
	assert.Equal(t, w.AddressInfo(), got, "this side uses the same values as the peer")
}
