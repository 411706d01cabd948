package ib_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
)

var _ config.Value = (*ib.Endpoints)(nil)

// What three ifaces take of a context, by category: thread domains and UAR pages.
func TestEndpoints_Resources(t *testing.T) {
	for text, want := range map[string][2]int{
		"Dynamic":       {3, 8 + 3},
		"2xdynamic":     {6, 8 + 6},
		"SharedDynamic": {3, 8 + 2},
		"static":        {0, 8},
	} {
		t.Run(text, func(t *testing.T) {
			var e ib.Endpoints
			require.NoError(t, e.UnmarshalText([]byte(text)))
			path := ib.PathConfig{Endpoints: e}
			c := ib.New(loop, rc.Transport(rc.Config{IB: path}), ud.Transport(ud.Config{IB: path}))
			opened, err := c.OpenMD("loop0")
			require.NoError(t, err)
			md := opened.(*ib.MD)
			var ifaces []uct.Iface
			for _, tl := range []string{"rc", "ud", "rc"} {
				iface, err := md.OpenIface(uct.IfaceParams{Transport: tl, Device: md.PortName(1)})
				require.NoError(t, err)
				ifaces = append(ifaces, iface)
			}
			r, ok := md.Context().Resources()
			require.True(t, ok)
			assert.Equal(t, want, [2]int{r.TDs, r.UARPages})
			for _, i := range ifaces {
				require.NoError(t, i.Close())
			}
			require.NoError(t, md.Close())
		})
	}
}

func TestEndpoints_Text(t *testing.T) {
	for _, name := range []string{"MPI-everywhere", "MPI+threads"} {
		e := ib.EndpointsStatic
		assert.ErrorContains(t, e.UnmarshalText([]byte(name)), "not for an iface")
		assert.Equal(t, ib.EndpointsStatic, e)
	}
	var e ib.Endpoints
	assert.ErrorIs(t, e.UnmarshalText([]byte("mine")), uct.ErrInvalidParam)
	text, err := e.MarshalText()
	require.NoError(t, err)
	assert.Equal(t, "Dynamic", string(text))
	assert.Equal(t, "Endpoints(9)", ib.Endpoints(9).String())
	assert.Error(t, (&ib.PathConfig{Endpoints: 9}).Validate())
}
