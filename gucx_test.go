package gucx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/ucs/log"
	"github.com/gucx/gucx/uct"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestOpen_Environment: what the environment says takes effect, and what nobody knows is
// refused with what is meant.
func TestOpen_Environment(t *testing.T) {
	for _, tc := range []struct {
		name, value string
		want        string // part of the error; "" for none
		is          error
	}{
		{"GUCX_TLS", "self", "", nil},
		{"GUCX_TLS", "nonsense", "transport nonsense not found", ucs.ErrUnreachable},
		{"GUCX_TSL", "self", "GUCX_TSL: unknown name, the nearest is GUCX_TLS", nil},
		{"GUCX_SM_CMA", "n", "", nil},
		{"GUCX_SM_CMA", "perhaps", "GUCX_SM_CMA", nil},
		{"GUCX_TCP_DEVICE", "lo", "the nearest is GUCX_TCP_DEVICES", nil},
		{"GUCX_LOG_LEVEL", "loud", "want one of fatal, error, warn", nil},
		{"GUCX_LOG_FILE", filepath.Join(t.TempDir(), "none", "log"), "no such file", os.ErrNotExist},
		{"GUCX_TEST_ANYTHING", "1", "", nil},
	} {
		t.Run(tc.name+"="+tc.value, func(t *testing.T) {
			t.Setenv(tc.name, tc.value)
			c, err := Open()
			if tc.want == "" {
				require.NoError(t, err)
				require.NoError(t, c.Close())
				return
			}
			require.ErrorContains(t, err, tc.want)
			if tc.is != nil {
				assert.ErrorIs(t, err, tc.is)
			}
		})
	}
}

// TestOpen_Log: the first context sets the log, further ones keep it, and one that says
// nothing about it changes nothing.
func TestOpen_Log(t *testing.T) {
	before := log.SetLevel(log.Error)
	defer log.SetLevel(before)
	open := func() {
		t.Helper()
		c, err := Open()
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	t.Setenv("GUCX_TLS", "self")
	open()
	assert.False(t, log.On(log.Warn), "the program's own level stays")

	first, second := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "log")
	t.Setenv("GUCX_LOG_LEVEL", "debug")
	for _, file := range []string{first, second} {
		t.Setenv("GUCX_LOG_FILE", file)
		open()
		open()
		assert.True(t, log.On(log.Debug))
		log.For("test").Debug("here")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Contains(t, string(text), "test: here")
	}
	t.Setenv("GUCX_LOG_FILE", "")
	open() // back to standard error, the file is closed: TestMain looks for it
}

// comp is a component of a program, without memory domains.
type comp struct{ opened int }

func (c *comp) Name() string                   { return "mine" }
func (c *comp) MDs() ([]uct.MDResource, error) { c.opened++; return nil, nil }
func (c *comp) OpenMD(string) (uct.MD, error)  { return nil, ucs.ErrUnreachable }

// TestOwn: components of the program are opened too, and their variables are read.
func TestOwn(t *testing.T) {
	var c comp
	ctx, err := Open(&c)
	require.NoError(t, err)
	require.NoError(t, ctx.Close())
	assert.Equal(t, 1, c.opened)

	var mine struct {
		Depth int `env:"DEPTH" doc:"A number."`
	}
	own := Own{
		Tables:     []config.Table{{Prefix: "MINE", Doc: "Mine", Config: &mine}},
		Components: func() []uct.Component { return []uct.Component{&c} },
	}
	cfg, err := FromEnv([]string{"GUCX_MINE_DEPTH=7", "GUCX_TLS=self"}, own)
	require.NoError(t, err)
	assert.Equal(t, 7, mine.Depth)
	assert.Len(t, cfg.Components(), 5)
	ctx, err = cfg.Open()
	require.NoError(t, err)
	require.NoError(t, ctx.Close())
	assert.Equal(t, 2, c.opened)
	_, err = FromEnv([]string{"GUCX_MINE_DEPHT=7"}, own)
	assert.ErrorContains(t, err, "GUCX_MINE_DEPTH")
}

// TestConfig_PrintedReadsBack: what is printed, of defaults too, can be put into the environment
// line by line.
func TestConfig_PrintedReadsBack(t *testing.T) {
	defaults, err := FromEnv(nil, Own{})
	require.NoError(t, err)
	var text strings.Builder
	require.NoError(t, config.Print(&text, config.PrintOptions{}, defaults.Tables()...))
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	assert.Greater(t, len(lines), 100)
	for _, line := range lines {
		_, err := FromEnv([]string{strings.ReplaceAll(line, "'", "")}, Own{})
		assert.NoError(t, err)
	}
}
