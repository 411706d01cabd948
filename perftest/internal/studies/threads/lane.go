package threads

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/measure/pattern"
	"github.com/gucx/gucx/ucp"
)

// lane is the state of one goroutine. Its functions are created once, so that operations do not
// allocate.
type lane struct {
	i      int
	worker worker
	ep     *ucp.EP
	key    *ucp.RKey // of the peer's memory of the same lane
	mem    *ucp.Mem  // first the received and put data, then the data to send
	params ucp.OpParams
	into   ucp.OpParams // fetches of active messages

	part     Part
	window   int
	in, out  []byte // of a window
	slot     int    // of the next operation
	requests []*ucp.Request
	failed   error // of an operation
	dataErr  error // the first error of data

	starts     starts
	posted     func(*ucp.Worker)
	windowDone func() bool

	// Active messages. The owner of the worker may access these.
	recvErr  error  // of a received message
	received uint64 // received messages
	got      uint64 // fetched messages whose data has arrived
	fetched  []bool // by slot: its data must still be checked
	acks     uint64
	want     uint64
	enough   func() bool // got has the awaited value
	acked    func() bool // acks has it
	head     [wordLen]byte
}

// starts start one operation each, of slot.
type starts struct {
	put, get, flush, send, active, ack, receive, recvAck, sendAck, next func() (*ucp.Request, error)
}

const wordLen = 8

// newLane creates lane i.
func newLane(i int, w worker, mem *ucp.Mem) *lane {
	l := &lane{i: i, worker: w, mem: mem}
	l.params.Mem, l.into.Mem = mem, mem
	l.posted = l.post
	l.windowDone = l.releaseDone
	l.enough = func() bool { return l.reached(l.got) }
	l.acked = func() bool { return l.reached(l.acks) }
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
		sendAck: func() (*ucp.Request, error) { return l.ep.TagSend(l.tag(tagAck), nil, nil) },
		recvAck: l.recvAck,
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
	l.failed, l.recvErr, l.dataErr, l.requests = nil, nil, nil, l.requests[:0]
	l.received, l.got, l.acks, l.want, l.slot = 0, 0, 0, 0, 0
	l.fetched = make([]bool, l.window)
	out := p.Seed
	if p.Test.Kind == Get && initiates {
		out++ // the memory must differ from the data to get
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

// piece returns the memory of slot.
func (l *lane) piece(b []byte) []byte { return b[l.slot*l.part.Size:][:l.part.Size] }

// post starts the next operation. Its error is stored in failed.
func (l *lane) post(*ucp.Worker) {
	r, err := l.starts.next()
	l.note(err)
	if r != nil {
		l.requests = append(l.requests, r)
	}
}

// releaseDone releases completed requests, and reports whether all are complete.
func (l *lane) releaseDone() bool {
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

// note stores the first error.
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

// waitWindow waits for all posted operations.
func (l *lane) waitWindow(ctx context.Context) error {
	if len(l.requests) > 0 {
		if err := l.worker.Until(ctx, l.windowDone); err != nil {
			return err
		}
	}
	return l.failed
}

// number returns the number of the message of a slot, in window k of lane i.
func (l *lane) number(k, slot int) {
	b := l.out[slot*l.part.Size:][:l.part.Size]
	var word [wordLen]byte
	binary.LittleEndian.PutUint64(word[:], l.numberOf(k, slot))
	copy(b, word[:])
}

// numberOf has the lane in its lowest byte, because the shortest message contains only that byte.
func (l *lane) numberOf(k, slot int) uint64 {
	return (uint64(k)*uint64(l.window)+uint64(slot))<<8 | uint64(byte(l.i))
}

// check checks a received message in a slot of window k: all bytes before the clock runs, and then
// the number and the last byte.
func (l *lane) check(b []byte, k, slot int) {
	var word [wordLen]byte
	copy(word[:], b)
	want := l.numberOf(k, slot)
	if n := len(b); n < wordLen {
		want &= 1<<(8*n) - 1
	}
	if got := binary.LittleEndian.Uint64(word[:]); got != want {
		l.setDataErr(fmt.Errorf("number %#x instead of %#x", got, want))
	}
	from := wordLen
	if k >= l.part.Warm {
		from = max(from, len(b)-1)
	}
	for i := from; i < len(b); i++ {
		if want := pattern.Byte(l.part.Seed+uint64(l.i), i); b[i] != want {
			l.setDataErr(fmt.Errorf("byte %d is %#x instead of %#x", i, b[i], want))
			return
		}
	}
}

func (l *lane) setDataErr(err error) {
	if l.dataErr == nil {
		l.dataErr = fmt.Errorf("%w: thread %d, %s: %w", ErrData, l.i, l.part.Test.Name, err)
	}
}

// finish checks the data received in the part, and returns the first error.
func (l *lane) finish(initiates bool) error {
	switch {
	case l.part.Test.Kind == Put && !initiates:
		l.compare(l.in)
	case l.part.Test.Kind == Get && initiates:
		l.compare(l.out)
	}
	return l.dataErr
}

// compare checks data that was put or got.
func (l *lane) compare(b []byte) {
	if err := pattern.Check(b, l.part.Seed+uint64(l.i)); err != nil {
		l.setDataErr(err)
	}
}
