package ucp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
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
