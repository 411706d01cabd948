package adapter

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// The UDP source port is the result of rdma_flow_label_to_udp_sport of the kernel, or random without a flow label.
func TestSourcePort(t *testing.T) {
	for label, want := range map[uint32]uint16{7: 0xc007, 0x12345: 0xe341, 0xfffff: 0xffc0} {
		assert.Equal(t, want, sourcePort(label), "label %#x", label)
	}
	assert.GreaterOrEqual(t, sourcePort(0), uint16(minSourcePort))
}

// The AV contains the address that the kernel has resolved, or the LID on InfiniBand.
func TestCreateAH(t *testing.T) {
	gid := counted(0xb0)
	attr := verbs.AHAttr{Global: true, Port: 1, SL: 3, SGIDIndex: 1, HopLimit: 64, TrafficClass: 1, FlowLabel: 7, DGID: gid, DLID: 9}
	for name, want := range map[string]prm.AV{
		"lazy": {RateSL: 6, MAC: [6]byte{2, 0, 0, 0, 0, 1}, TrafficClass: 1, HopLimit: 64, SGIDIndex: 1, FlowLabel: 7, DGID: gid},
		"ib":   {RateSL: 3, DLID: 9, GRH: true, TrafficClass: 1, HopLimit: 64, SGIDIndex: 1, FlowLabel: 7, DGID: gid},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, err := newDevice(newTranscriptKernel(t, "testdata/libmlx5-"+name+".txt"), transcriptInfo, mlx5.Config{}).Open()
			require.NoError(t, err)
			pd, err := ctx.AllocPD()
			require.NoError(t, err)
			ah, err := pd.CreateAH(attr)
			require.NoError(t, err)
			raw, err := provider.RawAV(ah)
			require.NoError(t, err)
			var got prm.AV
			got.Load(raw)
			assert.Equal(t, want, got)
			require.NoError(t, ah.Close())
			require.NoError(t, pd.Close())
			require.NoError(t, ctx.Close())
		})
	}
}
