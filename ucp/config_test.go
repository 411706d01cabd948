package ucp

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/all"
)

// TestConfig_Lengths: lengths have units, and the limits "auto", "0" and "inf" have the documented meaning.
func TestConfig_Lengths(t *testing.T) {
	for _, c := range []struct {
		value               string
		rndv, zcopy         int
		window, budgetBytes int64
		peer                int64
	}{
		{"auto", defaultRndvThresh, 0, defaultEagerWindow, defaultEagerBudget, defaultPeerBudget},
		{"0", 1, 1, 0, 0, 0},
		{"100", 100, 100, 100, 100, 100},
		{"64k", 64 << 10, 64 << 10, 64 << 10, 64 << 10, 64 << 10},
		{"inf", maxCredit, maxCredit, maxCredit, maxCredit, maxCredit},
	} {
		var cfg Config
		var environ []string
		for _, name := range []string{"RNDV_THRESH", "ZCOPY_THRESH", "EAGER_WINDOW", "EAGER_BUDGET", "PEER_BUDGET"} {
			environ = append(environ, "GUCX_"+name+"="+c.value)
		}
		require.NoError(t, config.FromEnv(environ, cfg.Table()), c.value)
		require.NoError(t, cfg.Validate(), c.value)
		assert.Equal(t, c.rndv, cfg.rndvThresh(), c.value)
		assert.Equal(t, c.zcopy, cfg.zcopyThresh(), c.value)
		assert.Equal(t, c.window, cfg.eagerWindow(), c.value)
		assert.Equal(t, c.budgetBytes, cfg.eagerBudget(), c.value)
		assert.Equal(t, c.peer, cfg.peerBudget(), c.value)
	}
}

// TestConfig_Validate: the error of a wrong value has its name in the environment, once and in one line, also if the
// value is from the environment.
func TestConfig_Validate(t *testing.T) {
	for want, c := range map[string]Config{
		"CONNECT soon, want one of lazy, eager":                        {Connect: "soon"},
		"STUDY_KEY_RESOLVE never, want one of unpack, op":              {Study: Study{KeyResolve: "never"}},
		"COSTS guessed, want one of measured, declared":                {Costs: "guessed"},
		"RNDV_SCHEME fast, want one of auto, get_zcopy, put_zcopy, am": {RndvScheme: "fast"},
		"TAG_PROTO other, want one of auto, tupleq, tupleq_copy":       {TagProto: "other"},
		"MAX_RNDV_RAILS 9, want at most 4":                             {MaxRndvRails: 9},
		"MAX_RMA_RAILS -1, want 0 or more":                             {MaxRMARails: -1},
		"TUPLEQ_MAX -1, want 0 or more":                                {TupleqMax: -1},
		"WIREUP_TIMEOUT -1s, want 0 or more":                           {WireupTimeout: -time.Second},
		"KEEPALIVE_INTERVAL -1s, want 0 or more":                       {KeepaliveInterval: -time.Second},
		"RCACHE_MAX_REGIONS -1, want 0 or more":                        {RCache: RCacheConfig{MaxRegions: -1}},
		"RCACHE_OVERHEAD -1s, want 0 or more":                          {RCache: RCacheConfig{Overhead: -time.Second}},
	} {
		_, err := NewContext(c)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam)
		assert.EqualError(t, err, "ucp: invalid parameter: "+want)
		err = config.FromEnv(nil, c.Table())
		assert.EqualError(t, err, "GUCX_*: invalid parameter: "+want)
	}
}

// configFromEnv returns the configuration that a line of the environment, without GUCX_, selects.
func configFromEnv(t testing.TB, line string) (cfg Config) {
	t.Helper()
	require.NoError(t, config.FromEnv([]string{"GUCX_" + line}, cfg.Table()))
	return cfg
}

// TestWireupTimeout_OfTheEnvironment: the timeout has the syntax of UCX for times.
func TestWireupTimeout_OfTheEnvironment(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want time.Duration // 0: no timeout
	}{
		{"5", 5 * time.Second}, {"250ms", 250 * time.Millisecond}, {"2m", 2 * time.Minute},
		{"auto", defaultWireupTimeout}, {"inf", 0},
	} {
		cfg := configFromEnv(t, "WIREUP_TIMEOUT="+tc.in)
		require.NoError(t, cfg.Validate())
		assert.Equal(t, tc.want, cfg.wireupTimeout(), tc.in)
	}
	var zero Config
	assert.Equal(t, defaultWireupTimeout, zero.wireupTimeout())
	assert.ErrorIs(t, (&Config{WireupTimeout: -1}).Validate(), ucs.ErrInvalidParam)
}

// TestIdleLanes_TupleQ: EPs with tuple queues keep their lanes, because a tuple queue belongs to a lane.
func TestIdleLanes_TupleQ(t *testing.T) {
	assert.Zero(t, (&Config{EPIdleTimeout: time.Second, TagProto: tagProtoTupleq}).idleTimeout())
	assert.Zero(t, (&Config{EPIdleTimeout: config.Infinite}).idleTimeout())
	assert.Zero(t, (&Config{}).idleTimeout())
	assert.Equal(t, time.Second, (&Config{EPIdleTimeout: time.Second, TagProto: tagProtoAuto}).idleTimeout())
}

// TestRails_Config: invalid settings are rejected.
func TestRails_Config(t *testing.T) {
	for _, cfg := range []Config{{MaxRndvRails: selection.MaxRails + 1}, {MaxRMARails: -1}} {
		assert.ErrorIs(t, cfg.Validate(), ucs.ErrInvalidParam)
	}
	cfg := configFromEnv(t, "MAX_RMA_RAILS=3")
	assert.Equal(t, selection.Rails{RMA: 3}, (&Config{MaxRMARails: cfg.MaxRMARails}).rails())
	assert.Equal(t, sharing{2, 16 << 10}, cfg.rndvSharing())
	assert.Equal(t, sharing{3, 8 << 10}, cfg.rmaSharing())
	assert.Equal(t, 16<<10, cfg.sharedFrom())
}

// TestConfig_Token: the token is from one of two settings, and is long enough.
func TestConfig_Token(t *testing.T) {
	const token = "0123456789abcdef"
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("  "+token+"\n"), 0o600))
	short := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(short, []byte("short\n"), 0o600))
	for _, cfg := range []Config{{AuthToken: token}, {AuthTokenFile: file}} {
		got, err := cfg.token()
		require.NoError(t, err)
		assert.Equal(t, token, got)
	}
	for _, cfg := range []Config{{AuthToken: "short"}, {AuthTokenFile: short}, {AuthTokenFile: file + "x"}, {AuthToken: token, AuthTokenFile: file}} {
		_, err := NewContext(cfg, all.Components()...)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	}
}
