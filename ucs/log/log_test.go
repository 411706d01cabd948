package log

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// capture sends the log into a buffer at level l for the length of a test.
func capture(t *testing.T, l Level) *bytes.Buffer {
	var out bytes.Buffer
	Use(NewLineHandler(&out))
	before := SetLevel(l)
	t.Cleanup(func() {
		SetLevel(before)
		Use(NewLineHandler(os.Stderr))
	})
	return &out
}

func TestLine_Form(t *testing.T) {
	out := capture(t, Warn)
	For("rc").Warn("peer sent no credits", "qpn", Hex(0x1a2), "lid", 3)
	assert.Regexp(t, regexp.MustCompile(`^\[\d+\.\d{6}\] \[[\w-]+:`+fmt.Sprint(os.Getpid())+
		`\] log_test\.go:\d+ GUCX WARN  rc: peer sent no credits, qpn 0x1a2, lid 3\n$`), out.String())
}

func TestLine_PartsThatAreMissing(t *testing.T) {
	var out bytes.Buffer
	h := NewLineHandler(&out)
	require.NoError(t, h.Handle(context.Background(), slog.NewRecord(time.Time{}, slog.LevelInfo, "hello", 0)))
	assert.Regexp(t, regexp.MustCompile(`^\[[\w-]+:\d+\] GUCX INFO  hello\n$`), out.String())
}

func TestLine_AttributesAndGroups(t *testing.T) {
	out := capture(t, Info)
	l := For("ucp").With("worker", 1).WithGroup("lane").With("tl", "rc")
	l.Info("up", slog.Group("score", "rma", 2.5, slog.Group("", "inline", true)), slog.Attr{}, "device", "softhca0")
	l.WithGroup("").Info("again")
	lines := strings.Split(out.String(), "\n")
	assert.True(t, strings.HasSuffix(lines[0],
		"ucp: up, worker 1, lane.tl rc, lane.score.rma 2.5, lane.score.inline true, lane.device softhca0"), lines[0])
	assert.True(t, strings.HasSuffix(lines[1], "ucp: again, worker 1, lane.tl rc"), lines[1])
}

func TestLine_ForeignTextStaysOnOneLine(t *testing.T) {
	out := capture(t, Warn)
	For("tcp").Warn("peer says\nERROR forged", "name", "a\x00b\tc", "k\ney", "ü")
	assert.Equal(t, 1, strings.Count(out.String(), "\n"))
	assert.Contains(t, out.String(), `peer says\nERROR forged, name a\x00b\tc, k\ney ü`)
}

func TestLine_ManyGoroutinesOneWriteEach(t *testing.T) {
	out := capture(t, Warn)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				For("c").Warn("line", "from", i)
			}
		})
	}
	wg.Wait()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Len(t, lines, 400)
	for _, line := range lines {
		assert.Regexp(t, `^\[.* GUCX WARN  c: line, from \d$`, line)
	}
}

func TestOn(t *testing.T) {
	capture(t, Debug)
	for l := Fatal; l < levelEnd; l++ {
		assert.Equal(t, l <= Debug, On(l), l.String())
		assert.Equal(t, l <= Debug, For("x").Enabled(context.Background(), l.Level()), l.String())
	}
	testenv.NoAllocs(t, "On", func() { On(Data) })
}

func TestLevels_AreFiltered(t *testing.T) {
	out := capture(t, Warn)
	l := For("x")
	l.Info("not this")
	l.Log(context.Background(), Diag.Level(), "nor this")
	l.Error("but this")
	l.Log(context.Background(), Fatal.Level(), "and this")
	assert.Equal(t, 2, strings.Count(out.String(), "\n"))
	assert.Contains(t, out.String(), "GUCX ERROR x: but this")
	assert.Contains(t, out.String(), "GUCX FATAL x: and this")
}

func TestLevel_Text(t *testing.T) {
	for l := Fatal; l < levelEnd; l++ {
		var back Level
		require.NoError(t, back.UnmarshalText([]byte(strings.ToUpper(l.String()))))
		assert.Equal(t, l, back)
		assert.Equal(t, l, fromSlog(l.Level()))
		text, err := l.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, l.String(), string(text))
	}
	var l Level
	assert.Equal(t, "warn", l.String(), "the zero value")
	assert.Error(t, l.UnmarshalText([]byte("loud")))
	assert.Equal(t, "fatal", Level(-100).String())
	assert.Equal(t, "poll", Level(100).String())
	assert.Equal(t, Fatal, fromSlog(1000))
	assert.Equal(t, Poll, fromSlog(-1000))
	assert.Equal(t, Info, fromSlog(slog.LevelInfo+1))
}

func TestConfig_FromEnvironment(t *testing.T) {
	var c Config
	table := config.Table{Doc: "log", Config: &c}
	require.NoError(t, config.FromEnv([]string{"GUCX_LOG_LEVEL=trace", "GUCX_LOG_FILE=/dev/null"}, table))
	assert.Equal(t, Config{Level: Trace, File: "/dev/null"}, c)
	assert.ErrorContains(t, config.FromEnv([]string{"GUCX_LOG_LEVEL=loud"}, table), "want one of fatal, error, warn")
}

func TestApply_File(t *testing.T) {
	capture(t, Warn) // restores level and output
	dir := t.TempDir()
	closer, err := Apply(Config{Level: Info, File: filepath.Join(dir, "log.%p")})
	require.NoError(t, err)
	logger := For("x")
	logger.Info("into the file")
	require.NoError(t, closer.Close())
	SetLevel(Fatal)
	logger.Info("not into the file")
	text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("log.%d", os.Getpid())))
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(text), "\n"))
	assert.Contains(t, string(text), "x: into the file")
}

func TestApply_Errors(t *testing.T) {
	capture(t, Error)
	_, err := Apply(Config{Level: Poll, File: filepath.Join(t.TempDir(), "none", "log")})
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.False(t, On(Warn), "nothing has changed")
	closer, err := Apply(Config{Level: Debug})
	require.NoError(t, err)
	assert.True(t, On(Debug))
	assert.NoError(t, closer.Close())
}

// An application's handler gets the records with the component, and decides about
// levels too.
func TestUse_OwnHandler(t *testing.T) {
	capture(t, Debug)
	var out bytes.Buffer
	logger := For("rc").With("dev", "softhca0")
	Use(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	logger.Info("not enabled there")
	logger.Warn("hot", "n", 1)
	assert.Contains(t, out.String(), `level=WARN msg=hot component=rc dev=softhca0 n=1`)
	assert.Equal(t, 1, strings.Count(out.String(), "\n"))
}

func ExampleFor() {
	logger := For("rc")
	logger.Debug("qp is up", "qpn", Hex(0x48)) // not at the default level
	fmt.Println(On(Warn), On(Debug))
	// Output: true false
}
