package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/bench"
)

// transports returns the names of all transports.
func transports(t *testing.T) (names []string) {
	list, err := device.Transports(layers.Config{}.Components("shm"))
	require.NoError(t, err)
	for _, tr := range list {
		names = append(names, tr.Resource.Transport)
	}
	return names
}

// short are flags of a run of many short tests.
var short = []string{"-q", "-n", "10", "-w", "1", "--rounds", "2", "-W", "4", "-o", "json"}

// TestMain_EveryTransportRunsEveryTest runs two processes; package layers tests the variants of uct. Without a sweep it
// uses one of the transports over InfiniBand.
func TestMain_EveryTransportRunsEveryTest(t *testing.T) {
	for _, x := range transports(t) {
		t.Run(x, func(t *testing.T) {
			switch x {
			case "sm":
			case "tcp", "rc_mlx5":
				testenv.SkipShort(t, furtherRun)
			default:
				testenv.SkipSweep(t, "as others between processes")
			}
			code, out, errs := perftest(t, with(short, "-x", x, "-t", "all", "-s", "100", "--rounds", "1")...)
			require.Equal(t, exitOK, code, errs)
			run, recs := records(t, out)
			assert.Equal(t, x, run.Settings.Transport)
			seen := map[string]bool{}
			for _, r := range recs {
				seen[r.Test] = true
				assert.Equal(t, x, r.Transport)
				assert.GreaterOrEqual(t, r.P99NS, r.P50NS)
			}
			for _, test := range bench.MessageTests() {
				assert.True(t, seen[test], test)
			}
		})
	}
}

func TestMain_Variant(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	for _, d := range layer.Variants() {
		code, out, errs := perftest(t, with(short, "-x", "sm", "-t", "am_lat,put_pp,put_mr,fadd_lat", "-s", "64", "-D", d)...)
		require.Equal(t, exitOK, code, errs)
		run, recs := records(t, out)
		assert.Equal(t, d, run.Settings.Variant)
		require.Len(t, recs, 4, "only records of uct")
		for _, r := range recs[:3] {
			assert.Equal(t, d, r.Variant, r.Test)
		}
		assert.Empty(t, recs[3].Variant, "variant of an atomic")
	}
}

func TestMain_SizeAboveLimitIsAnErrorWithTheLimit(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-x", "sm", "-t", "am_lat", "-D", "short", "-s", "16k"}, "short takes at most 8256 bytes"},
		{[]string{"-x", "sm", "-t", "am_lat", "-D", "short", "-s", "4"}, "short takes at least 8 bytes"},
		{[]string{"-x", "sm", "-t", "am_bw", "-s", "64k"}, "takes at most 8256 bytes"},
		{[]string{"-x", "tcp", "-t", "get_lat", "-D", "short", "-s", "8"}, "the transport has only zcopy, bcopy"},
		{[]string{"-x", "ud", "-t", "put_bw", "-s", "8"}, "the transport has no such operation"},
		{[]string{"-x", "self", "-t", "am_bw", "-D", "bcopy", "-s", "1m"}, "bcopy takes at most 8256 bytes"},
		{[]string{"-x", "rc", "-t", "tag_bw", "--layers", "verbs,uct", "-s", "8"}, "the layer has no such operation"},
		{[]string{"-x", "rc", "-t", "am_lat", "--layers", "verbs", "-s", "16k"}, "receives of verbs have 8192 bytes"},
	} {
		t.Run(c.want, func(t *testing.T) {
			code, out, errs := perftest(t, with(short, c.args...)...)
			assert.Equal(t, exitFailure, code)
			assert.Contains(t, errs, c.want)
			assert.Empty(t, out)
		})
	}
}

func TestMain_OmitsAndCountsRowsAboveLimit(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	code, out, errs := perftest(t, with(short, "-x", "sm", "-t", "am_lat,am_bw", "-s", "2k-64k")...)
	require.Equal(t, exitOK, code, errs)
	_, recs := records(t, out)
	assert.Len(t, recs, 2*(6+3), "uct up to 8 KiB")
	assert.Contains(t, errs, "6 rows omitted")
	assert.Contains(t, errs, "takes at most 8256 bytes")

	code, out, errs = perftest(t, with(short, "-x", "sm", "-t", "am_lat", "-s", "16k-64k", "--layers", "uct")...)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errs, "nothing could be measured")
	assert.Empty(t, out)
}

func TestMain_MeasuresMessageTransportsByMessages(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	code, out, errs := perftest(t, with(short, "-x", "ud", "-s", "8")...)
	require.Equal(t, exitOK, code, errs)
	_, recs := records(t, out)
	require.Len(t, recs, 4)
	for i, r := range recs {
		assert.Equal(t, []string{"am_lat", "am_lat", "am_bw", "am_bw"}[i], r.Test)
		assert.Equal(t, []string{"uct", "ucp"}[i%2], r.Layer)
	}
}

func TestMain_CannotStopRequiredTarget(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	code, _, errs := perftest(t, with(short, "-x", "tcp", "-t", "put_lat", "-s", "8", "--stop-peer")...)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, errs, "the target has to take part and cannot be stopped")
}

func TestMain_StoppedTargetOfSharedMemory(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	code, out, errs := perftest(t, with(short, "-x", "sm", "-t", "all", "-s", "8", "--stop-peer")...)
	require.Equal(t, exitOK, code, errs)
	_, recs := records(t, out)
	assert.NotEmpty(t, recs)
}

// All layers run over the ioctls of a fake kernel.
func TestMain_FakeKernel(t *testing.T) {
	testenv.SkipShort(t, furtherRun)
	t.Setenv(device.FakeEnv, "direct")
	code, out, errs := perftest(t, with(short, "-x", "rc_mlx5", "-t", "put_lat,am_lat,get_lat", "-s", "8,4096", "--rounds", "1")...)
	require.Equal(t, exitOK, code, errs)
	run, recs := records(t, out)
	assert.Equal(t, "mlx5_fake0", run.Settings.Device)
	assert.Len(t, recs, 3*3*2, "layers, tests, sizes")
}
