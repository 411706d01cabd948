package msgrate

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/cpu"

	"github.com/gucx/gucx/perftest/internal/studies/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Sender is one thread of the benchmark. One goroutine at a time may call Step.
type Sender struct {
	// Thread is the number of the sender, from 0.
	Thread int

	qp *verbs.QP
	cq *verbs.CQ
	// lists contains the work requests of a call: for all calls of a window except the last, and
	// for the last one.
	list, last []verbs.SendWR
	wc         []verbs.WC
	others     []*Sender     // senders whose completions may be in the CQ, by thread
	free       *steps.Shared // free places of a QP to which other threads also post; nil otherwise

	depth    int64 // maximum number of outstanding messages
	unit     int64 // messages of a window
	each     int64 // messages per completion
	calls    int   // calls per window
	toPost   int   // remaining calls of the window
	posted   int64 // messages in started windows
	total    int64
	sharedCQ bool
	idle     bool
	cqes     uint64
	meter    steps.Counter // counter of done; nil in real time, or if no other thread changes it

	_    cpu.CacheLinePad
	done int64 // completed messages; the polling thread adds, if the CQ is shared atomically
	_    cpu.CacheLinePad
}

var errOverrun = errors.New("completion queue overrun")

// Step makes one call: PostSend of a list if there is room, Poll otherwise. more is false when all
// messages of this sender are complete. It does not block or allocate.
func (s *Sender) Step() (more bool, err error) {
	if s.toPost == 0 && s.posted < s.total && s.hasRoom() {
		s.posted += s.unit
		s.toPost = s.calls
	}
	if s.toPost > 0 {
		return true, s.post()
	}
	return s.poll()
}

// Idle reports that the last step was a poll without result.
func (s *Sender) Idle() bool { return s.idle }

// hasRoom reserves room for a window.
func (s *Sender) hasRoom() bool {
	if s.free != nil {
		return s.free.Subtract(s.unit)
	}
	return s.posted-s.completed()+s.unit <= s.depth
}

func (s *Sender) completed() int64 {
	if s.sharedCQ {
		if s.meter != nil {
			s.meter.Load()
		}
		return atomic.LoadInt64(&s.done)
	}
	return s.done
}

func (s *Sender) post() error {
	s.idle = false
	s.toPost--
	list := s.list
	if s.toPost == 0 {
		list = s.last
	}
	_, err := s.qp.PostSend(list)
	return err
}

// poll polls for the completions of all threads that use the CQ.
func (s *Sender) poll() (more bool, err error) {
	n := s.cq.Poll(s.wc)
	if n < 0 {
		return false, errOverrun
	}
	s.idle = n == 0
	s.cqes += uint64(n)
	for i := range s.wc[:n] {
		if s.wc[i].Status != verbs.WCSuccess {
			return false, s.failed(&s.wc[i])
		}
		s.others[s.wc[i].ID].complete()
	}
	return s.completed() < s.total, nil
}

// complete counts one completion of s. The thread that polls the CQ calls it.
func (s *Sender) complete() {
	if !s.sharedCQ {
		s.done += s.each
		return
	}
	atomic.AddInt64(&s.done, s.each)
	if s.meter != nil {
		s.meter.Add()
	}
	if s.free != nil {
		s.free.Add(s.each)
	}
}

//go:noinline
func (s *Sender) failed(wc *verbs.WC) error {
	return fmt.Errorf("thread %d: work request of thread %d, qp %#x: %w", s.Thread, wc.ID, wc.QPN, wc.Status.Err())
}

// restart starts again with n messages. All earlier ones must be complete.
func (s *Sender) restart(n int64) {
	s.posted, s.total, s.toPost, s.idle = 0, n, 0, false
	atomic.StoreInt64(&s.done, 0)
}
