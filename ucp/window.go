package ucp

import (
	"fmt"
	"math"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// A peer may have only so much on the way and not received here: every eager message is
// charged to a window, in bytes of data and of what keeping it costs, and the charge comes
// back when it is received. Who has no credit left for the data announces the message and
// keeps the data (rendezvous); who has none for that waits. So what a worker holds for
// peers is bounded: by the first window for each, and a budget for all.
const (
	// firstWindow is the credit of a connection before its peer has granted more, in bytes.
	// Both sides know it.
	firstWindow = 16 << 10
	// reserve is the credit that only announcements may use, in bytes: some 40 of them.
	reserve = 16 << 10
	// messageCharge is charged for each message besides its data, in bytes: its record
	// and the shortest buffer. A buffer is at most twice as long as its data.
	messageCharge = 400
)

// charge is what a message of n bytes is charged.
func charge(n int) int64 { return int64(n) + messageCharge }

// window is the account of a connection, as sender and as receiver.
type window struct {
	credit int64 // what may be sent yet, without the reserve
	most   int64 // what credit was at most: no more than what the peer takes in all
	size   int64 // what the peer may have unreceived here, without the reserve
	held   int64 // what it has
	due    int64 // what was received since credit was given back last, as of settle
	batch  int64 // as much as is given back at once
	grown  bool  // it was tried to make size more than the first window

	creditsGot, creditsSent uint64 // AMCredit messages

	// room is how long a message may be that nothing else has to be done for, in bytes: what
	// may be held yet. Negative while there is something to be done for each; see admit.
	room int64
	// quota is what may be charged to messages that are not held either before something has to
	// be given back; see left. It was measured once: what it is less since then is due.
	quota, measured int64
}

// noRoom is the room of a connection that no message may come over unchecked. What is charged
// and given back meanwhile leaves it negative.
const noRoom = math.MinInt64 / 2

func (a *window) open() {
	a.credit, a.most, a.room, a.quota, a.measured = firstWindow, firstWindow, noRoom, noRoom, noRoom
	a.resize(firstWindow)
}

// resize sets the size: half of it is worth a message that gives it back.
func (a *window) resize(size int64) { a.size, a.batch = size, size/2 }

// admit sets the room, when the window, or what the EP does with messages, has changed.
func (m *messages) admit() {
	e := m.e
	m.room = noRoom
	if m.grown && !m.closed && e.msgs == m && e.state == epOpen && e.link != nil {
		m.room = m.size + reserve - m.held - messageCharge
	}
	m.measure()
}

// measure sets the quota. What passes lessens it by as much as it brings the peer nearer to
// being told, so it is never too much between two calls.
func (a *window) measure() {
	a.settle()
	a.quota = min(a.room+messageCharge, a.batch-a.due-1)
	a.measured = a.quota
}

// settle brings due up to date.
func (a *window) settle() {
	a.due += a.measured - a.quota
	a.measured = a.quota
}

// left is what is left of the quota after a message of n bytes. If that is not negative, setting
// it gives back what the message was to be charged, and nothing else has to be done for it.
func (a *window) left(n int) int64 { return a.quota - charge(n) }

// charge charges what is held.
func (a *window) charge(n int64) {
	a.held += n
	a.room -= n
	a.quota -= n
	a.measured -= n
}

// accept finds the connection that a message of n bytes comes over, by the name that the
// peer has for it, and charges it. nil, which is counted, if no connection of that name
// takes messages, or the peer sends more than it was granted.
func (w *Worker) accept(name uint64, n int) *EP {
	if m := w.latest; m.self == name && int64(n) <= m.room {
		m.charge(charge(n))
		return m.e
	}
	return w.acceptSlow(name, n)
}

// from is the connection of that name if a message of n bytes, that is handled at once, may
// come over it without more ado; nil if accept is to look into that. Hold charges the message
// if it is kept, or else passed gives back what it was to be charged.
func (w *Worker) from(name uint64, n int) *messages {
	m := w.latest
	if m.self != name {
		e := w.eps.Find(name)
		if e == nil || e.msgs == nil {
			return nil
		}
		m = e.msgs
		w.latest = m
	}
	if int64(n) > m.room {
		return nil
	}
	return m
}

// unconnected is the latest connection where there is none.
var unconnected = &messages{window: window{room: noRoom, quota: noRoom, measured: noRoom}}

// hold charges a message of n bytes that was admitted, also if the connection has gone
// meanwhile.
func (m *messages) hold(n int) {
	m.charge(charge(n))
	if m.closed {
		m.e.w.leftBytes += charge(n)
	}
}

// passed gives back n bytes, which a message was to be charged.
func (m *messages) passed(n int64) {
	if m.quota -= n; m.quota < 0 {
		m.tell()
	}
}

// tell tells the peer what it may send again if that is worth it, and sets the quota.
//
//go:noinline
func (m *messages) tell() {
	if m.settle(); m.due >= m.batch {
		m.grant()
	}
	m.measure()
}

//go:noinline
func (w *Worker) acceptSlow(name uint64, n int) *EP {
	e := w.sender(name)
	if e == nil || !e.arrived(n) {
		return nil
	}
	w.latest = e.msgs
	return e
}

// arrived charges a message of n bytes to its sender. It reports false, and fails the
// EP, if the peer sends more than it was granted.
func (e *EP) arrived(n int) bool {
	a := e.messaging()
	a.charge(charge(n))
	if a.held > a.size+reserve {
		e.w.stats.badMessages.Inc()
		a.charge(-charge(n)) // nothing of it is kept
		e.markFailed(ucs.StatusRemoteInvalid, fmt.Errorf("%w: it sends more than it was granted", ucs.ErrRemoteInvalid), e.via(&creditControl.stage))
		return false
	}
	if !a.grown {
		e.grow()
		a.admit()
		a.giveBack(0) // what was granted is told at once: the message may stay unread
	}
	return true
}

// grow makes the window as large as the configuration says, while the budget of the worker
// permits that. The connections of one peer get at most half of the budget, unless there is one only. An EP
// that finds no budget asks again each time it gives its peer half a window of credit.
func (e *EP) grow() {
	a, w := e.msgs, e.w
	more := w.ctx.cfg.eagerWindow() - a.size
	a.grown = true
	budget, uuid := w.ctx.cfg.eagerBudget(), e.peer.Addr.UUID()
	if more <= 0 || w.granted+more > budget {
		return
	}
	if of := w.names.Granted(uuid); of > 0 && of+more > budget/2 {
		return // the rest is for other peers
	}
	w.names.Grant(uuid, more)
	w.granted += more
	a.resize(a.size + more)
	a.due += more
	a.room += more
}

// received gives back the charge of a message of n bytes, which the user has now, and
// tells the peer once that is worth it.
func (m *messages) received(n int) { m.giveBack(charge(n)) }

// giveBack is received by what messages were charged.
func (m *messages) giveBack(n int64) {
	m.held -= n
	m.room += n
	if m.closed {
		m.e.w.leftBytes -= n
		return
	}
	m.passed(n)
}

// grant tells the peer what it may send again, unless the connection is over. What a handler
// may still keep is left for the next time.
func (m *messages) grant() {
	if e := m.e; e.state == epOpen && e.msgs == m {
		e.grow()
		left := e.w.active.inHand(m)
		e.control(creditControl, 0, uint64(m.due-left))
		m.due = left
		m.creditsSent++
		m.sender.unblock()
	}
}

// closeWindow gives the window back to the budget when the EP goes.
func (e *EP) closeWindow() {
	m := e.msgs
	if m == nil || m.closed {
		return
	}
	e.w.granted -= m.size - firstWindow
	e.w.names.Grant(e.peer.Addr.UUID(), firstWindow-m.size)
	m.resize(firstWindow)
	m.leave()
	m.admit()
	m.sender.unblock()
	if e.w.latest == m {
		e.w.latest = unconnected
	}
	e.w.active.forget(m)
	m.closeKeys()
}

// handleCredit lets messages go on that waited for credit.
func (w *Worker) handleCredit(c *wire.Control, e *EP) bool {
	a := e.msgs
	if a == nil || c.Value > maxCredit {
		return false
	}
	a.creditsGot++
	a.credit += int64(c.Value)
	a.most = max(a.most, a.credit)
	a.stream.goOn()
	if a.waiting > 0 {
		e.replayMessages()
	}
	return true
}

// maxCredit is the most that one message may grant, in bytes.
const maxCredit = 1 << 40

// affords reports that a message that is charged n bytes may go, and charges it. An
// announcement may use the reserve.
func (a *window) affords(n, below int64) bool {
	if a.credit+below < n {
		return false
	}
	a.credit -= n
	return true
}

// controlMsg is a message of the AM lane with what is left to say about a message, or credit.
type controlMsg struct {
	stage stage // of the request that sends one which the lane does not take at once
	am    uint8
}

var (
	ackControl      = newControl("acknowledgement", wire.AMAck)
	creditControl   = newControl("credit", wire.AMCredit)
	putDoneControl  = newControl("end of data", wire.AMPutDone)
	takenControl    = newControl("end of stream data", wire.AMStreamTaken)
	withdrawControl = newControl("withdrawal", wire.AMWithdraw)
)

func newControl(name string, am uint8) *controlMsg {
	return &controlMsg{am: am, stage: stage{
		name: name, role: wireup.AM, ahead: true, settled: (*Request).answered,
		post: func(r *Request) error { return r.ep.sendControl(r.stage.lane(r.ep), am, r.raddr, r.value) },
	}}
}

// control tells the peer something about the message or receive that it calls id: in the call,
// if the lane takes it, and otherwise by a request.
func (e *EP) control(c *controlMsg, id, value uint64) {
	x := e.lane(wireup.AM)
	if x != nil && x.Proven && e.aborting == ucs.StatusOK && e.sendControl(x, c.am, id, value) == nil {
		return
	}
	r := e.w.newRequest(e, &c.stage)
	r.raddr, r.value = id, value
	r.answer()
}

// answer starts a request that tells the peer something and has no user.
func (r *Request) answer() {
	e := r.ep
	if r, _ = r.start(); r != nil {
		r.flags |= reqAnswerDue
		e.answerDue()
		r.Release()
	}
}

func (e *EP) sendControl(x *lane, am uint8, id, value uint64) error {
	w := e.w
	c := wire.Control{EP: e.link.conn.RemoteEP(), ID: id, Value: value}
	w.msg.b = c.Append(w.msg.b[:0])
	if x.Iface.sends().control {
		return x.AM.AMShort(am, c.EP, w.msg.b[wire.ControlWord:])
	}
	_, err := x.AM.AMBcopy(am, &w.msg)
	return err
}
