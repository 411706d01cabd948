// Package meter shows the progress of a run: a bar on a terminal; elsewhere a line after the first
// step, and then each second if there is progress. The measuring goroutine only counts; another one
// draws.
package meter

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/gucx/gucx/perftest/internal/measure/machine"
)

const (
	barInterval  = 150 * time.Millisecond
	lineInterval = time.Second
)

// Meter counts steps. Step may be called by any goroutine.
type Meter struct {
	total int64
	done  atomic.Int64
	// at is the current measurement: a test and a size. Step allocates only when it changes.
	at atomic.Pointer[place]

	stop  func()
	first chan struct{} // closed by the first step
	quit  chan struct{}
	wg    sync.WaitGroup
}

type place struct {
	test string
	size int
}

// New shows the progress of total steps on f, or nothing if quiet is set. The caller must call
// Close before it writes anything else to f.
func New(f *os.File, total int, quiet bool) *Meter {
	switch {
	case quiet || total == 0:
		return newMeter(total)
	case machine.IsTerminal(f):
		return newBar(f, total)
	}
	return newLines(f, total, lineInterval)
}

func newMeter(total int) *Meter {
	m := &Meter{total: int64(total), first: make(chan struct{}), quit: make(chan struct{}), stop: func() {}}
	m.at.Store(&place{})
	return m
}

// Step reports one completed step; size 0 is not shown.
func (m *Meter) Step(test string, size int) {
	if p := m.at.Load(); p.test != test || p.size != size {
		m.at.Store(&place{test, size})
	}
	if m.done.Add(1) == 1 {
		close(m.first)
	}
}

// Close ends the display. Idempotent.
func (m *Meter) Close() {
	select {
	case <-m.quit:
		return
	default:
	}
	close(m.quit)
	m.wg.Wait()
	m.stop()
}

// String returns the state in one line.
func (m *Meter) String() string {
	p := m.at.Load()
	if p.test == "" {
		return "connecting"
	}
	text := fmt.Sprintf("%3d%% %s", 100*m.done.Load()/m.total, p.test)
	if p.size == 0 { // of an application
		return text
	}
	return fmt.Sprintf("%s %d B", text, p.size)
}

// every calls f after the first step, and then at an interval until Close.
func (m *Meter) every(interval time.Duration, f func()) {
	m.wg.Go(func() {
		t := time.NewTicker(interval)
		defer t.Stop()
		first := m.first
		for {
			select {
			case <-first:
				first = nil
				t.Reset(interval)
				f()
			case <-t.C:
				f()
			case <-m.quit:
				return
			}
		}
	})
}

// newLines writes a line at an interval, if there is progress.
func newLines(w io.Writer, total int, interval time.Duration) *Meter {
	m := newMeter(total)
	last := ""
	m.every(interval, func() {
		if now := m.String(); now != last {
			last = now
			_, _ = fmt.Fprintln(w, now) // write errors of the progress are ignored
		}
	})
	return m
}

// newBar draws a bar, which is removed at the end.
func newBar(w io.Writer, total int) *Meter {
	m := newMeter(total)
	p := mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithRefreshRate(barInterval))
	bar := p.AddBar(m.total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return m.String() }, decor.WC{W: 28, C: decor.DindentRight})),
		mpb.AppendDecorators(decor.OnComplete(decor.AverageETA(decor.ET_STYLE_MMSS), "")))
	m.every(barInterval, func() { bar.SetCurrent(m.done.Load()) })
	m.stop = func() {
		bar.Abort(true)
		p.Wait()
	}
	return m
}
