package all_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ib/xrc"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// loop is all transports, with one device that nobody else reaches.
func loop() all.Config {
	return all.Config{Devices: func() ([]*verbs.Device, error) {
		d, err := softhca.NewDevice(softhca.Config{Name: "loop0", Fabric: softhca.FabricLoop})
		return []*verbs.Device{d}, err
	}}
}

func TestTables(t *testing.T) {
	var c all.Config
	require.NoError(t, config.FromEnv([]string{
		"GUCX_RC_SEG_SIZE=2k", "GUCX_UD_WINDOW=7", "GUCX_SM_SEGS=9", "GUCX_SELF_FIFO_SIZE=8", "GUCX_TCP_JOIN=4k", "GUCX_RC_MLX5_MAX_POLL=3", "GUCX_UD_MLX5_WINDOW=9", "GUCX_XRC_MLX5_SHARE_DOMAIN=host", "GUCX_XRC_MLX5_TX_POSTLIST=4",
		"GUCX_IB_ENDPOINTS=shareddynamic", "GUCX_POLL_IDLE_TX=y", "HOME=/",
	}, c.Tables()...))
	assert.EqualValues(t, 2048, c.RC.SegSize)
	assert.Equal(t, 7, c.UD.Window)
	assert.Equal(t, 3, c.RCMLX5.MaxPoll)
	assert.Equal(t, 9, c.UDMLX5.Window)
	assert.Equal(t, xrc.ShareHost, c.XRCMLX5.ShareDomain)
	assert.Equal(t, 4, c.XRCMLX5.TxPostlist)
	assert.Empty(t, c.XRC.ShareDomain)
	assert.Equal(t, 9, c.SM.Segs)
	assert.Equal(t, 8, c.Self.FIFOSize)
	assert.EqualValues(t, 4096, c.TCP.Join)
	assert.Equal(t, ib.Config{Endpoints: ib.EndpointsSharedDynamic, PollIdleTx: true}, c.IB)
	err := config.FromEnv([]string{"GUCX_RC_SEG_SIZ=2k"}, c.Tables()...)
	assert.ErrorContains(t, err, "SEG_SIZE", "the nearest name")
	for _, bad := range []string{"GUCX_SM_SEGS=-1", "GUCX_SELF_FIFO_SIZE=1", "GUCX_TCP_SEG_SIZE=1", "GUCX_IB_ENDPOINTS=mine"} {
		var c all.Config
		assert.Error(t, config.FromEnv([]string{bad}, c.Tables()...), bad)
	}
}

// TestComponents: the order is the tie-break, and everything that is listed can be opened.
func TestComponents(t *testing.T) {
	c := loop()
	var comps, offers []string
	for _, comp := range c.Components() {
		comps = append(comps, comp.Name())
		found, err := comp.MDs()
		require.NoError(t, err)
		for _, m := range found {
			offers = append(offers, open(t, comp, m.Name)...)
		}
	}
	assert.Equal(t, []string{"sm", "ib", "self", "tcp"}, comps)
	assert.Equal(t, []string{"sm/memory", "rc/loop0:1", "ud/loop0:1", "rc_mlx5/loop0:1", "ud_mlx5/loop0:1", "xrc/loop0:1", "xrc_mlx5/loop0:1", "self/memory", "tcp/lo"}, offers)
	assert.Len(t, all.Components(), 4)
}

// open opens every transport of a domain and closes all again.
func open(t *testing.T, comp uct.Component, name string) (offers []string) {
	md, err := comp.OpenMD(name)
	require.NoError(t, err)
	list, err := md.Resources()
	require.NoError(t, err)
	for _, r := range list {
		iface, err := md.OpenIface(uct.IfaceParams{Transport: r.Transport, Device: r.Device})
		require.NoError(t, err)
		offers = append(offers, r.Transport+"/"+r.Device)
		require.NoError(t, iface.Close())
	}
	require.NoError(t, md.Close())
	return offers
}
