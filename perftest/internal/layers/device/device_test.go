package device

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) {
	for _, c := range []struct {
		fabric, name string
		want         string
		port         uint8
		err          string
	}{
		{"shm", "", "softhca0", 1, ""},
		{"", "softhca0", "softhca0", 1, ""},
		{"shm", "softhca0:1", "softhca0", 1, ""},
		{"shm", "softhca0:2", "softhca0", 2, ""},
		{"loop", "", "softhca-loop", 1, ""},
		{"shm", "mlx5_0", "", 0, "there is softhca0"},
		{"shm", "softhca0:0", "", 0, "port"},
		{"shm", "softhca0:x", "", 0, "port"},
		{"shm", "softhca0:256", "", 0, "port"},
		{"ethernet", "", "", 0, "ethernet"},
	} {
		t.Run(c.fabric+"/"+c.name, func(t *testing.T) {
			d, port, err := Find(c.fabric, c.name)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, d.Name())
			assert.Equal(t, c.port, port)
		})
	}
}

func TestFabrics_AllHaveDevices(t *testing.T) {
	for _, f := range Fabrics() {
		devices, err := List(f)
		require.NoError(t, err)
		assert.NotEmpty(t, devices)
	}
}

// The environment variables of libmlx5 configure the queues.
func TestList_Environment(t *testing.T) {
	t.Setenv("MLX5_TOTAL_UUARS", "4")
	devices, err := List("loop")
	require.NoError(t, err)
	ctx, err := devices[0].Open()
	require.NoError(t, err)
	r, ok := ctx.Resources()
	require.True(t, ok)
	assert.Equal(t, 4, r.UUARs)
	require.NoError(t, ctx.Close())

	t.Setenv("MLX5_TOTAL_UUARS", "many")
	_, err = List("loop")
	assert.ErrorContains(t, err, "MLX5_TOTAL_UUARS")
}

// The device of the fake kernel is first if the environment requests it.
func TestList_Fake(t *testing.T) {
	t.Setenv(FakeEnv, "direct")
	devices, err := List("loop")
	require.NoError(t, err)
	assert.Equal(t, "mlx5_fake0", devices[0].Name())
	assert.Equal(t, "softhca-loop", devices[1].Name())
	t.Setenv(FakeEnv, "yes")
	_, err = List("loop")
	assert.ErrorContains(t, err, "want direct or silicon")
}
