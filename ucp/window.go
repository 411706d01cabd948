package ucp

import (
	"fmt"

	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/wireup"
)

// Each eager message is charged to a window, in bytes of data and of what the receiver needs to store it. The
// charge is returned as credit when the message is received. A sender without credit for the data sends an RTS
// (rendezvous). A sender without credit for the RTS queues the message. So the memory that a worker uses for
// its peers is limited: by the first window of each connection, a share for each peer worker and a budget for
// all peers. See docs/design/0010-limits.md.
//
// Package window has the arithmetic.
const (
	// firstWindow is the window of a connection before its first message, in bytes, if the peer has few
	// connections. The handshake sends it to the peer.
	firstWindow = 16 << 10
	leastWindow = window.Least
	// messageCharge is charged for each message in addition to its data, in bytes.
	messageCharge = window.MessageCharge
)

// charge is window.Charge, without a second call to inline.
func charge(n int) int64 { return int64(n) + messageCharge }

// admit updates Room and Quota after a change of the window or of the EP's state.
func (m *messages) admit() {
	e := m.e
	m.Admit(m.grown && !m.closed && e.msgs == m && e.state == epOpen && e.link != nil)
}

// accept returns the EP with the id name, and charges it a message of n bytes. It counts an error
// and returns nil if no such EP accepts messages, or if the message exceeds the credit of the peer.
func (w *Worker) accept(name uint64, n int) *EP {
	if m := w.messages.latest; m.self == name && int64(n) <= m.Room {
		m.Hold(charge(n))
		return m.e
	}
	return w.acceptSlow(name, n)
}

// from returns the messages of the EP with the id name, if a message of n bytes needs no further
// check; otherwise nil, and the caller must call accept. If the message is stored, the caller
// charges it with Hold, otherwise it passes the charge to consumeQuota.
func (w *Worker) from(name uint64, n int) *messages {
	m := w.messages.latest
	if m.self != name {
		e := w.eps.Find(name)
		if e == nil || e.msgs == nil {
			return nil
		}
		m = e.msgs
		w.messages.latest = m
	}
	if int64(n) > m.Room {
		return nil
	}
	return m
}

// unconnected is the value of latest while there is no connection.
var unconnected = &messages{Window: window.Closed()}

// chargeArrived charges a message of n bytes that was admitted, even if the connection has been closed
// since.
func (m *messages) chargeArrived(n int) {
	m.Hold(charge(n))
	if m.closed {
		m.e.w.addLeft(m, charge(n))
	}
}

// consumeQuota consumes n bytes of the quota. The caller uses it instead of Hold for a message that is already handled.
// If the quota is used up, grantIfDue returns credit to the peer.
func (m *messages) consumeQuota(n int64) {
	if m.Quota -= n; m.Quota < 0 {
		m.grantIfDue()
	}
}

// grantIfDue updates the quota. It returns credit to the peer if a batch of credit is due.
//
//go:noinline
func (m *messages) grantIfDue() {
	if m.UpdateDue(); m.Due >= m.Batch {
		m.grantSoon()
	}
	m.Measure()
}

// grantSoon returns credit to the peer: at once, or in the next Progress if the transport writes to a socket. The program often
// replies to the message for which the credit is due, and the system call would delay the reply: see experiment 0148 in docs/perf.
// Credit for a stored message that a call of the program receives is not postponed: the program may make no progress for long.
func (m *messages) grantSoon() {
	if x := m.e.lane(wireup.AM); x == nil || !x.Iface.writes || !m.e.w.engine.InProgress() {
		m.grant()
		return
	}
	m.credits.later = true
	m.e.w.schedule(m.e)
}

// grantPostponed sends the credit that grantSoon has postponed.
func (e *EP) grantPostponed() {
	if m := e.msgs; m != nil && m.credits.later {
		m.UpdateDue()
		m.grant()
		m.Measure()
	}
}

// grantLast is grantPostponed when the EP begins to close: the peer may need the credit for messages that precede its receive of
// the last messages of this side.
func (e *EP) grantLast() {
	if m := e.msgs; m != nil && m.credits.later {
		m.UpdateDue()
		m.sendCredit()
	}
}

//go:noinline
func (w *Worker) acceptSlow(name uint64, n int) *EP {
	e := w.sender(name)
	if e == nil || !e.chargeSender(n) {
		return nil
	}
	w.messages.latest = e.msgs
	return e
}

// chargeSender charges a message of n bytes to its sender. If the peer sends more than its credit, chargeSender fails the EP
// and returns false.
func (e *EP) chargeSender(n int) bool {
	a := e.messaging()
	a.Hold(charge(n))
	if a.Overdrawn() {
		e.w.stats.badMessages.Inc()
		a.Hold(-charge(n)) // the message is dropped
		e.markFailed(ucs.StatusRemoteInvalid, fmt.Errorf("%w: it sends more than its credit", ucs.ErrRemoteInvalid), e.via(&creditControl.stage))
		return false
	}
	if !a.grown {
		e.grow()
		a.admit()
		a.returnCharge(0) // grant the credit now: the message may remain unreceived
	}
	return true
}

// openWindow sets the first window of an EP whose link was just made, and counts the window: firstWindow if the peer
// has used less than half of its share, otherwise leastWindow.
func (e *EP) openWindow() {
	w, l := e.w, e.link
	l.window = leastWindow
	if w.permits(e, firstWindow, w.peerShare(e.peer.Addr.UUID())/2) {
		w.setWindow(e, firstWindow)
	}
	l.window = e.window()
}

// window returns the size of the window in bytes, without the reserve: the charge of unreceived messages that the
// peer may have here.
func (e *EP) window() int64 {
	switch {
	case e.link == nil:
		return leastWindow
	case e.msgs != nil:
		return e.msgs.Size
	}
	return e.link.window
}

// learnWindow sets the credit when the peer's first window has arrived.
func (e *EP) learnWindow() {
	m := e.msgs
	if m == nil || m.creditKnown || e.link.conn.RemoteEP() == 0 {
		return
	}
	m.creditKnown = true
	m.Granted(max(int64(e.link.conn.RemoteWindow()), leastWindow))
}

// grow enlarges the window: to the configured size if the peer has used less than half of its share
// and the budget of the worker permits it; otherwise to a quarter of that size up to three quarters
// of the share; otherwise to firstWindow. If only one connection of a peer has more than
// firstWindow, only the budget limits it. An EP without the configured size tries again with each
// grant of credit, and an EP with it may get wideWindow then.
func (e *EP) grow() {
	a, w := e.msgs, e.w
	a.grown = true
	whole := max(w.ctx.cfg.eagerWindow(), firstWindow)
	if a.Size >= whole {
		e.widen()
		return
	}
	share := w.peerShare(e.peer.Addr.UUID())
	for _, step := range [...]struct{ size, share int64 }{
		{whole, share / 2}, {max(whole/4, firstWindow), share / 4 * 3}, {firstWindow, share},
	} {
		if step.size <= a.Size {
			return
		}
		if w.permits(e, step.size, step.share) {
			w.setWindow(e, step.size)
			return
		}
	}
}

// The wide window of a connection that transfers much (experiment 0154 in docs/perf).
const (
	// wideWindow is its size in bytes: more than 256 messages of 4 KiB.
	wideWindow = 2 << 20
	// wideAfter is the number of grants, each of half a window, before a connection gets it.
	wideAfter = 16
	// wideHeld is the part of the window that unreceived messages may use then: one of wideHeld.
	wideHeld = 4
	// wideShare is the part of EagerBudget that all windows may use when a connection gets it: one of wideShare. The rest is for
	// the first messages of other connections.
	wideShare = 4
)

// widen enlarges a full window to wideWindow if the peer has sent much and the program receives it as it arrives, unless the size
// is configured. Otherwise a sender that is faster than the receiver is out of credit most of the time, and sends RTS.
func (e *EP) widen() {
	m, w := e.msgs, e.w
	cfg := &w.ctx.cfg
	if m.Size >= wideWindow || m.credits.sent < wideAfter || m.Held > m.Size/wideHeld || cfg.EagerWindow != config.MemAuto {
		return
	}
	uuid := e.peer.Addr.UUID()
	_, all := w.names.Granted(uuid)
	if w.messages.granted+wideWindow-m.Size <= cfg.eagerBudget()/wideShare && all+wideWindow-m.Size <= w.peerShare(uuid)/2 {
		w.setWindow(e, wideWindow)
	}
}

// permits reports whether the window of an EP may have size bytes, if share is the limit of its peer in bytes.
// The connections of one peer get at most half of the budget, unless only one of them has more than
// firstWindow.
func (w *Worker) permits(e *EP, size, share int64) bool {
	has, budget := e.window(), w.ctx.cfg.eagerBudget()
	granted, all := w.names.Granted(e.peer.Addr.UUID())
	if more := beyondFirst(size); more > 0 {
		if granted -= beyondFirst(has); w.messages.granted+more-beyondFirst(has) > budget || granted > 0 && granted+more > budget/2 {
			return false
		}
		if granted == 0 {
			return true
		}
	}
	all -= window.Beyond(has)
	return all == 0 || all+window.Beyond(size) <= share
}

// beyondFirst returns the part of a window that counts against the worker's budget, in bytes.
func beyondFirst(size int64) int64 { return max(size-firstWindow, 0) }

// setWindow sets the window of an EP with a link, and counts it. The peer receives what exceeds the
// first window with the next grant of credit.
func (w *Worker) setWindow(e *EP, size int64) {
	has := e.window()
	more := beyondFirst(size) - beyondFirst(has)
	w.names.Grant(e.peer.Addr.UUID(), more, window.Beyond(size)-window.Beyond(has))
	w.messages.granted += more
	m := e.msgs
	if m == nil {
		e.link.window = size
		return
	}
	if m.grown {
		m.Enlarge(size)
		return
	}
	m.Resize(size)
}

// Upper limits of the memory that a full window of messages uses: records, buffers and the overhead
// of the allocator. Announcements with keys need the most.
const (
	// leastWindowMemory is the limit for leastWindow with its reserve, in bytes, if no key is
	// longer than maxSmallKey.
	leastWindowMemory = 4608
	// memoryFactor is the number of bytes of memory for each further byte of the window.
	memoryFactor = 2
)

// peerShare returns the limit for the sum of a peer's windows, without leastWindow of each, in
// bytes. With these windows, the least windows of all EPs that the peer may make and the messages
// that it has left behind, the peer uses at most Config.PeerBudget.
func (w *Worker) peerShare(uuid uint64) int64 {
	return (w.ctx.cfg.peerRoom() - w.messages.leftOf[uuid]) / memoryFactor
}

// leftRoom returns how many bytes of messages a peer may leave behind: the memory that its windows
// and the EPs that it has not made do not use.
func (w *Worker) leftRoom(uuid uint64) int64 {
	cfg := &w.ctx.cfg
	_, windows := w.names.Granted(uuid)
	free := int64(cfg.maxEPsPerPeer()-w.names.Made(uuid)) * leastWindowMemory
	return cfg.peerRoom() + free - windows*memoryFactor
}

// peerRoom returns the part of PeerBudget for windows and messages left behind, after the least
// windows of all EPs that a peer may make, in bytes; at least an eighth of the budget.
func (c *Config) peerRoom() int64 {
	budget := c.peerBudget()
	return max(budget-int64(c.maxEPsPerPeer())*leastWindowMemory, budget/8)
}

// received returns the charge of a message of n bytes that the user has received. The peer gets the
// credit in batches.
func (m *messages) received(n int) { m.returnCharge(charge(n)) }

// returnCharge returns a charge of n bytes, messageCharge included.
func (m *messages) returnCharge(n int64) {
	m.Held -= n
	m.Room += n
	if m.closed {
		m.e.w.addLeft(m, -n)
		return
	}
	m.consumeQuota(n)
}

// grant sends the due credit to the peer, unless the connection is closed. The charge of the
// message that a handler is processing is left for the next grant.
func (m *messages) grant() {
	if e := m.e; e.receives() && e.msgs == m {
		e.grow()
		m.sendCredit()
	}
}

// sendCredit is grant without checks.
func (m *messages) sendCredit() {
	e := m.e
	m.credits.later = false
	e.control(creditControl, 0, uint64(m.Grant(e.chargeInHandlers())))
	m.credits.sent++
	e.each(func(p *protocol) func(*EP) { return p.granted })
}

// closeWindow returns the window to the budget when the EP is destroyed.
func (e *EP) closeWindow() {
	m := e.msgs
	if e.link != nil && (m == nil || !m.closed) {
		e.w.setWindow(e, leastWindow)
	}
	if m == nil || m.closed {
		return
	}
	m.closed = true
	m.unbind()
	m.joined = joinedWords{} // it would keep the transport endpoint alive
	e.w.addLeft(m, m.Held)
	m.admit()
	if e.w.messages.latest == m {
		e.w.messages.latest = unconnected
	}
	m.closeKeys()
}

// addLeft adds n bytes to the memory of messages that a departed peer has left behind.
func (w *Worker) addLeft(m *messages, n int64) {
	uuid := m.e.peer.Addr.UUID()
	w.messages.leftBytes += n
	if w.messages.leftOf[uuid] += n; w.messages.leftOf[uuid] == 0 {
		delete(w.messages.leftOf, uuid)
	}
}

// handleCredit handles a grant of the peer, and sends messages that waited for credit.
func (w *Worker) handleCredit(c *wire.Control, e *EP) bool {
	a := e.msgs
	if a == nil || c.Value > maxCredit {
		return false
	}
	a.credits.got++
	a.Granted(int64(c.Value))
	e.each(func(p *protocol) func(*EP) { return p.credited })
	e.useCredit()
	return true
}

// useCredit sends messages that have waited for credit.
func (e *EP) useCredit() {
	e.each(func(p *protocol) func(*EP) { return p.moreCredit })
	if e.waiting.messages() > 0 {
		e.replayMessages()
	}
}

// controlMsg is a type of control message: it concerns a message of the AM lane, or credit.
type controlMsg struct {
	stage stage // of the request that sends the message if the lane has no resources
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
		name: name, role: wireup.AM, unfenced: true, completed: (*Request).answered,
		post: func(r *Request) error {
			c := recordOf[controlRecord](r)
			return r.ep.sendControl(r.stage.lane(r.ep), am, c.id, c.value)
		},
	}}
}

// controlRecord is the content of a control message.
type controlRecord struct {
	id, value uint64
}

// control sends a control message about the message or receive with the id. If the lane has no
// resources, a request sends it later.
func (e *EP) control(c *controlMsg, id, value uint64) {
	x := e.lane(wireup.AM)
	if x != nil && x.Connected && e.closing.aborting == ucs.StatusOK && e.sendControl(x, c.am, id, value) == nil {
		return
	}
	r := e.w.newRequest(e, &c.stage)
	*recordOf[controlRecord](r) = controlRecord{id, value}
	r.answer()
}

// answer starts a request that sends something to the peer. No user has the request.
func (r *Request) answer() {
	e := r.ep
	if r, _ = r.start(); r != nil {
		e.answerDue()
		r.Release()
	}
}

func (e *EP) sendControl(x *lane, am uint8, id, value uint64) error {
	w := e.w
	c := wire.Control{EP: e.link.conn.MessageEP(), ID: id, Value: value}
	w.msg.b = c.Append(w.msg.b[:0])
	if x.Iface.sends().control {
		return x.AM.AMShort(am, c.EP, w.msg.b[wire.ControlWord:])
	}
	_, err := x.AM.AMBcopy(am, &w.msg)
	return err
}
