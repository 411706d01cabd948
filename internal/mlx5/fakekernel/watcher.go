package fakekernel

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/internal/mlx5/prm"
)

// watcher polls doorbell records for a device that the driver does not call (Config.Silicon).
type watcher struct {
	hw      device
	stopped atomic.Bool
	done    chan struct{}

	mu   sync.Mutex
	next int
	rows map[int]func() bool // each polls one record and reports whether it has changed
}

// After idleLooks polls without a change the watcher sleeps for pause.
const (
	idleLooks = 2000
	pause     = 50 * time.Microsecond
)

func startWatcher(hw device) *watcher {
	w := &watcher{hw: hw, done: make(chan struct{}), rows: map[int]func() bool{}}
	go w.run()
	return w
}

func (w *watcher) stop() {
	w.stopped.Store(true)
	<-w.done
}

// run polls until stop.
func (w *watcher) run() {
	defer close(w.done)
	attention := w.hw.Attention()
	for idle := 0; !w.stopped.Load(); idle++ {
		if w.look() {
			idle = 0
		}
		if atomic.LoadUint32(attention) != 0 {
			w.hw.Drive()
			idle = 0
		}
		if idle < idleLooks {
			runtime.Gosched()
		} else {
			time.Sleep(pause)
		}
	}
}

// look polls each record once.
func (w *watcher) look() (found bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, row := range w.rows {
		found = row() || found
	}
	return found
}

// add adds a row. remove removes the row and waits until no row is running.
func (w *watcher) add(row func() bool) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	n := w.next
	w.rows[n] = row
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.rows, n)
	}
}

func nothing() {}

// watchQP polls the send counter of a QP.
func (f *file) watchQP(qpn uint32, p *prm.QPParams) (remove func()) {
	if f.watcher == nil {
		return nothing
	}
	record, doorbell, seen := p.DBRec, p.UAR.Doorbell, p.DBRec.Send()
	return f.watcher.add(func() bool {
		n := record.Send()
		if n == seen {
			return false
		}
		seen = n
		doorbell.Ring(prm.UUAR0, prm.CtrlWord(0, n, qpn, 1))
		return true
	})
}

// neverArmed is an arm word with an invalid command, which differs from all arm words.
const neverArmed = uint32(1<<32 - 1)

// watchCQ polls the arm word of a CQ.
func (f *file) watchCQ(cqn uint32, p *prm.CQParams) (remove func()) {
	if f.watcher == nil || p.Sink == nil {
		return nothing
	}
	record, doorbell, seen := p.DBRec, p.UAR.Doorbell, neverArmed
	record.StoreArm(neverArmed)
	return f.watcher.add(func() bool {
		word := record.Arm()
		if word == seen {
			return false
		}
		seen = word
		doorbell.Ring(prm.CQArm, uint64(word)<<32|uint64(cqn))
		return true
	})
}

// watchSRQ polls the counter of an SRQ if the device needs a doorbell for its posts.
func (f *file) watchSRQ(srq uint32, record prm.DBRec) (remove func()) {
	if f.watcher == nil {
		return nothing
	}
	doorbell := f.hw.RecvDoorbell(srq)
	if doorbell == nil {
		return nothing
	}
	seen := record.Recv()
	return f.watcher.add(func() bool {
		n := record.Recv()
		if n == seen {
			return false
		}
		seen = n
		doorbell.Posted()
		return true
	})
}

// log2 returns the logarithm of a power of two.
func log2(n uint32) uint8 { return uint8(bits.TrailingZeros32(n)) }
