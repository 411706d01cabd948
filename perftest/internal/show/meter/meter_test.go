package meter

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gucx/gucx/perftest/internal/measure/machine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLines_OneAfterTheFirstStepAndEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		m := newLines(&b, 4, time.Second)
		time.Sleep(1500 * time.Millisecond)
		m.Step("put_lat", 8)
		time.Sleep(999 * time.Millisecond)
		m.Step("put_lat", 8)
		m.Step("put_bw", 1024)
		time.Sleep(time.Millisecond)
		synctest.Wait() // the tick and the sleep end at the same time
		m.Close()
		m.Close()
		assert.Equal(t, []string{"connecting", " 25% put_lat 8 B", " 75% put_bw 1024 B"},
			strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"))
	})
}

// TestLines_NothingTwice: a long step has one line.
func TestLines_NothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		m := newLines(&b, 200, time.Second)
		for range 3 {
			m.Step("put_lat", 8)
			time.Sleep(10 * time.Second)
		}
		m.Close()
		assert.Equal(t, "  0% put_lat 8 B\n  1% put_lat 8 B\n", b.String())
	})
}

func TestNew_QuietAndEmptyWriteNothing(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	for _, m := range []*Meter{New(w, 10, true), New(w, 0, false)} {
		m.Step("put_lat", 1)
		m.Close()
	}
	require.NoError(t, w.Close())
	var b bytes.Buffer
	_, err = b.ReadFrom(r)
	require.NoError(t, err)
	assert.Empty(t, b.String())
	require.NoError(t, r.Close())
}

func TestBar_CloseBeforeAllSteps(t *testing.T) {
	var b bytes.Buffer
	m := newBar(&b, 10)
	m.Step("put_lat", 8)
	m.Close()
	m.Close()
}

func TestString_WithoutASize(t *testing.T) {
	m := newMeter(4)
	m.Step("Static, 4 threads", 0)
	assert.Equal(t, " 25% Static, 4 threads", m.String())
}

func TestStep_DoesNotAllocateInOneCell(t *testing.T) {
	m := newMeter(10)
	m.Step("put_lat", 8)
	assert.Zero(t, testing.AllocsPerRun(100, func() { m.Step("put_lat", 8) }))
}

func TestIsTerminal_NotAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	assert.False(t, machine.IsTerminal(w))
}

// TestIsTerminal_DumbTerminal: without cursor movement each update of a bar would be a new line.
func TestIsTerminal_DumbTerminal(t *testing.T) {
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	defer f.Close()
	t.Setenv("TERM", "xterm")
	assert.True(t, machine.IsTerminal(f))
	t.Setenv("TERM", "dumb")
	assert.False(t, machine.IsTerminal(f))
}
