package mlx5

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

func TestConfig_Defaults(t *testing.T) {
	cases := []struct {
		in, want Config
		err      error
	}{
		{in: Config{}, want: Config{TotalUUARs: 16, LowLatUUARs: 4}},
		{in: Config{TotalUUARs: 32}, want: Config{TotalUUARs: 32, LowLatUUARs: 20}},
		{in: Config{TotalUUARs: 4, LowLatUUARs: 9}, want: Config{TotalUUARs: 4, LowLatUUARs: 3}},
		{in: Config{TotalUUARs: 1}, want: Config{TotalUUARs: 2, LowLatUUARs: 1}},
		{in: Config{TotalUUARs: 15}, want: Config{TotalUUARs: 16, LowLatUUARs: 4}},
		{in: Config{TotalUUARs: 511}, want: Config{TotalUUARs: 512, LowLatUUARs: 500}},
		{in: Config{TotalUUARs: 8, LowLatUUARs: NoLowLatUUARs}, want: Config{TotalUUARs: 8}},
		{in: Config{LowLatUUARs: NoLowLatUUARs}, want: Config{TotalUUARs: 16, LowLatUUARs: 4}},
		{in: Config{TotalUUARs: 513}, err: ucs.ErrInvalidParam},
		{in: Config{TotalUUARs: -1}, err: ucs.ErrInvalidParam},
		{in: Config{LowLatUUARs: -2}, err: ucs.ErrInvalidParam},
		{in: Config{UARPolicy: 7}, err: ucs.ErrInvalidParam},
	}
	for _, c := range cases {
		got, err := c.in.WithDefaults()
		assert.ErrorIs(t, err, c.err)
		if c.err == nil {
			assert.Equal(t, c.want, got)
		}
	}
}

func TestConfigFromEnv(t *testing.T) {
	env := func(vars map[string]string) func(string) (string, bool) {
		return func(k string) (string, bool) { v, ok := vars[k]; return v, ok }
	}
	got, err := ConfigFromEnv(env(map[string]string{
		"MLX5_TOTAL_UUARS": "8", "MLX5_NUM_LOW_LAT_UUARS": "2", "MLX5_SHUT_UP_BF": "",
		"MLX5_POST_SEND_PREFER_BF": "0", "MLX5_SINGLE_THREADED": "1",
	}))
	require.NoError(t, err)
	assert.Equal(t, Config{TotalUUARs: 8, LowLatUUARs: 2, ShutUpBF: true, InlineBF: true, SingleThreaded: true}, got)

	got, err = ConfigFromEnv(env(nil))
	require.NoError(t, err)
	assert.Equal(t, Config{}, got)

	for _, v := range []string{"x", "0", "-4", "", "x8"} {
		_, err = ConfigFromEnv(env(map[string]string{"MLX5_TOTAL_UUARS": v}))
		assert.ErrorIs(t, err, ucs.ErrInvalidParam)
		assert.ErrorContains(t, err, "MLX5_TOTAL_UUARS")
	}
	_, err = ConfigFromEnv(env(map[string]string{"MLX5_NUM_LOW_LAT_UUARS": "-1"}))
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	assert.ErrorContains(t, err, "MLX5_NUM_LOW_LAT_UUARS")
}

// Each variable by itself, as libmlx5 takes its value.
func TestConfigFromEnv_Values(t *testing.T) {
	const shutUp, prefer, single = "MLX5_SHUT_UP_BF", "MLX5_POST_SEND_PREFER_BF", "MLX5_SINGLE_THREADED"
	const total, lowLat = "MLX5_TOTAL_UUARS", "MLX5_NUM_LOW_LAT_UUARS"
	for _, c := range []struct {
		name, value string
		want        Config
	}{
		{shutUp, "0", Config{}},
		{shutUp, "1", Config{ShutUpBF: true}},
		{shutUp, "", Config{ShutUpBF: true}},
		{shutUp, "00", Config{ShutUpBF: true}},
		{shutUp, "no", Config{ShutUpBF: true}},
		{prefer, "0", Config{InlineBF: true}},
		{prefer, "1", Config{}},
		{prefer, "", Config{}},
		{prefer, "no", Config{}},
		{single, "1", Config{SingleThreaded: true}},
		{single, "0", Config{}},
		{single, "yes", Config{}},
		{single, "", Config{}},
		{total, "7", Config{TotalUUARs: 7}}, // WithDefaults makes 8 of it
		{total, " +12uuars", Config{TotalUUARs: 12}},
		{total, "99999999999", Config{TotalUUARs: 1<<31 - 1}},
		{lowLat, "0", Config{LowLatUUARs: NoLowLatUUARs}},
		{lowLat, "none", Config{LowLatUUARs: NoLowLatUUARs}},
		{lowLat, "", Config{LowLatUUARs: NoLowLatUUARs}},
		{lowLat, "3", Config{LowLatUUARs: 3}},
	} {
		got, err := ConfigFromEnv(func(name string) (string, bool) { return c.value, name == c.name })
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%s=%q", c.name, c.value)
	}
}
