package threads

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/measure/pattern"
	"github.com/gucx/gucx/ucp"
)

// lane is what one goroutine has. Its functions are made once, so that what it does
// allocates nothing.
type lane struct {
	i      int
	worker worker
	ep     *ucp.EP
	key    *ucp.RKey // of the peer's memory of the same lane
	mem    *ucp.Mem  // first what comes or is put, then what goes
	params ucp.OpParams
	into   ucp.OpParams // of active messages that are fetched

	part     Part
	window   int
	in, out  []byte // of a window
	slot     int    // of the operation that is posted next
	requests []*ucp.Request
	failed   error // of an operation
	wrong    error // of data: the first

	starts starts
	posted func(*ucp.Worker)
	ended  func() bool

	// Active messages. Who has the worker may use these.
	cameWrong error  // of a message that came
	came      uint64 // messages
	got       uint64 // of these, whose data is here
	fetched   []bool // by slot: its data has yet to be looked at
	acks      uint64
	want      uint64
	enough    func() bool // got is what is wanted
	told      func() bool // acks are
	head      [wordLen]byte
}

// starts begin one operation each, of slot.
type starts struct {
	put, get, flush, send, active, ack, receive, takeAck, tell, next func() (*ucp.Request, error)
}

const wordLen = 8

// newLane makes lane i.
func newLane(i int, w worker, mem *ucp.Mem) *lane {
	l := &lane{i: i, worker: w, mem: mem}
	l.params.Mem, l.into.Mem = mem, mem
	l.posted = l.post
	l.ended = l.end
	l.enough = func() bool { return l.reached(l.got) }
	l.told = func() bool { return l.reached(l.acks) }
	l.into.OnDone = l.fetchedOne
	l.makeStarts()
	return l
}

func (l *lane) makeStarts() {
	l.starts = starts{
		put: func() (*ucp.Request, error) {
			return l.ep.Put(l.out[:l.part.Size], l.key.Addr(), l.key, &l.params)
		},
		get: func() (*ucp.Request, error) {
			return l.ep.Get(l.out[:l.part.Size], l.key.Addr(), l.key, &l.params)
		},
		flush:   func() (*ucp.Request, error) { return l.ep.Flush() },
		send:    func() (*ucp.Request, error) { return l.ep.TagSend(l.tag(tagData), l.piece(l.out), &l.params) },
		receive: l.receive,
		tell:    func() (*ucp.Request, error) { return l.ep.TagSend(l.tag(tagAck), nil, nil) },
		takeAck: l.takeAck,
		active: func() (*ucp.Request, error) {
			return l.ep.SendActive(l.id(idData), nil, l.piece(l.out), &l.params)
		},
		ack: func() (*ucp.Request, error) { return l.ep.SendActive(l.id(idAck), l.head[:], nil, nil) },
	}
}

// begin prepares for a part.
func (l *lane) begin(p Part, initiates bool) {
	l.part, l.window = p, p.Test.windowOf(p.Window, p.Size)
	n := p.Test.memory(p.Window, p.Size)
	half := len(l.mem.Bytes()) / 2
	l.in, l.out = l.mem.Bytes()[:n], l.mem.Bytes()[half:][:n]
	l.failed, l.cameWrong, l.wrong, l.requests = nil, nil, nil, l.requests[:0]
	l.came, l.got, l.acks, l.want, l.slot = 0, 0, 0, 0, 0
	l.fetched = make([]bool, l.window)
	out := p.Seed
	if p.Test.Kind == Get && initiates {
		out++ // what is there is not what will be got
	}
	for k := range max(1, n/p.Size) {
		pattern.Fill(l.out[k*p.Size:][:p.Size], out+uint64(l.i))
	}
	if p.Test.Kind == Get && !initiates {
		copy(l.in, l.out)
	} else {
		clear(l.in)
	}
}

// piece is the slot of a window that is next.
func (l *lane) piece(b []byte) []byte { return b[l.slot*l.part.Size:][:l.part.Size] }

// post starts the next operation. Its errors, and those of its end, are in failed.
func (l *lane) post(*ucp.Worker) {
	r, err := l.starts.next()
	l.note(err)
	if r != nil {
		l.requests = append(l.requests, r)
	}
}

// end gives requests back that have ended, and reports whether all have.
func (l *lane) end() bool {
	for n := len(l.requests); n > 0; n-- {
		r := l.requests[n-1]
		if !r.Done() {
			return false
		}
		if s := r.Status(); s != 0 {
			l.note(s.Err())
		}
		r.Release()
		l.requests = l.requests[:n-1]
	}
	return true
}

// note keeps the first error.
func (l *lane) note(err error) {
	if l.failed == nil {
		l.failed = err
	}
}

// each posts an operation for each slot of a window.
func (l *lane) each(start func() (*ucp.Request, error), prepare func(k, slot int), k int) {
	l.starts.next = start
	for slot := range l.window {
		l.slot = slot
		if prepare != nil {
			prepare(k, slot)
		}
		l.worker.Do(l.posted)
	}
}

// allEnded waits for what was posted.
func (l *lane) allEnded(ctx context.Context) error {
	if len(l.requests) > 0 {
		if err := l.worker.Until(ctx, l.ended); err != nil {
			return err
		}
	}
	return l.failed
}

// number marks the message of a slot: window k of lane i.
func (l *lane) number(k, slot int) {
	b := l.out[slot*l.part.Size:][:l.part.Size]
	var word [wordLen]byte
	binary.LittleEndian.PutUint64(word[:], l.numberOf(k, slot))
	copy(b, word[:])
}

// numberOf has the lane in its lowest byte, as the shortest message has only that.
func (l *lane) numberOf(k, slot int) uint64 {
	return (uint64(k)*uint64(l.window)+uint64(slot))<<8 | uint64(byte(l.i))
}

// check looks at a message that has come in a slot of window k: at all of it before the
// clock runs, and then at its number and its last byte.
func (l *lane) check(b []byte, k, slot int) {
	var word [wordLen]byte
	copy(word[:], b)
	want := l.numberOf(k, slot)
	if n := len(b); n < wordLen {
		want &= 1<<(8*n) - 1
	}
	if got := binary.LittleEndian.Uint64(word[:]); got != want {
		l.isWrong(fmt.Errorf("number %#x instead of %#x", got, want))
	}
	from := wordLen
	if k >= l.part.Warm {
		from = max(from, len(b)-1)
	}
	for i := from; i < len(b); i++ {
		if want := pattern.Byte(l.part.Seed+uint64(l.i), i); b[i] != want {
			l.isWrong(fmt.Errorf("byte %d is %#x instead of %#x", i, b[i], want))
			return
		}
	}
}

func (l *lane) isWrong(err error) {
	if l.wrong == nil {
		l.wrong = fmt.Errorf("%w: thread %d, %s: %w", ErrData, l.i, l.part.Test.Name, err)
	}
}

// finish looks at what has come in the part, and returns what was wrong.
func (l *lane) finish(initiates bool) error {
	switch {
	case l.part.Test.Kind == Put && !initiates:
		l.compare(l.in)
	case l.part.Test.Kind == Get && initiates:
		l.compare(l.out)
	}
	return l.wrong
}

// compare looks at data that was put or got.
func (l *lane) compare(b []byte) {
	if err := pattern.Check(b, l.part.Seed+uint64(l.i)); err != nil {
		l.isWrong(err)
	}
}
