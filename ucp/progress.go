package ucp

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Progress completes operations, delivers what arrived and goes on with
// handshakes. It returns how much happened; 0 means idle. It does not block, and
// callbacks that it runs must not call it. It polls the ifaces on which something
// is connected; of the others it looks at one flag each.
func (w *Worker) Progress() int {
	if w.ticks--; w.ticks < 0 {
		return w.progressAll()
	}
	if w.watch.Idle() && len(w.more) == 0 {
		return 0
	}
	return w.progressPolled()
}

// progressPolled polls the ifaces that are polled.
//
//go:noinline
func (w *Worker) progressPolled() int {
	n := w.hot.Progress()
	if len(w.more) > 0 {
		n += w.progressMore()
	}
	return n
}

// progresser is the part of an iface that Progress needs.
type progresser interface{ Progress() int }

// nothing stands for the polled iface where there is none.
type nothing struct{}

func (nothing) Progress() int { return 0 }

// quiet watches nothing, busy something that is never idle.
var (
	quietWord   uint32
	quiet, busy = &ucs.Watch{Word: &quietWord, Attention: &quietWord},
		&ucs.Watch{Word: &quietWord, Quiet: 1, Attention: &quietWord}
)

// watchOf is the watch on an iface.
func watchOf(i uct.Iface) *ucs.Watch {
	if u, ok := i.(uct.Watcher); ok {
		if w := u.Watch(); w != nil {
			return w
		}
	}
	return busy
}

//go:noinline
func (w *Worker) progressMore() (n int) {
	for _, i := range w.more {
		n += i.Progress()
	}
	return n
}

// idleTicks is how many calls of Progress go by between two looks at the flags of
// resting ifaces while others are polled. Only new connections come that way.
const idleTicks = 64

// progressAll is Progress with all that is not done each time.
//
//go:noinline
func (w *Worker) progressAll() (n int) {
	if w.alarm.due.Load() {
		w.onAlarm()
	}
	if w.slow {
		n = w.progressSlow()
	}
	n += w.hot.Progress() + w.progressMore()
	if w.polled > 0 && !w.slow {
		w.ticks = idleTicks
	}
	return n + w.lookAtIdle()
}

// raise has the next Progress look at everything.
func (w *Worker) raise() { w.slow, w.ticks = true, 0 }

// addChore has the next Progress look at an EP.
func (w *Worker) addChore(e *EP) {
	if !e.choring {
		e.choring = true
		w.chores = append(w.chores, e)
		w.raise()
	}
}

// progressSlow handles what callbacks have left behind, outside of any of them.
func (w *Worker) progressSlow() int {
	w.slow = false
	n := len(w.inbox) + len(w.broken)
	inbox := w.inbox
	w.inbox = nil
	for _, b := range inbox {
		w.receive(b)
	}
	broken := w.broken
	w.broken = nil
	for _, b := range broken {
		w.lose(b)
	}
	chores := w.chores
	w.chores = w.spare[:0]
	for _, e := range chores {
		e.choring = false
		e.chore()
	}
	clear(chores)
	w.spare = chores
	resting := w.resting
	w.resting = nil
	for _, i := range resting {
		i.rest()
	}
	return n
}

// chore goes on with what an EP has to do besides operations.
func (e *EP) chore() {
	if e.state == epClosed {
		return
	}
	if e.needs != 0 && e.state < epFailed {
		e.connect()
	}
	if e.link == nil {
		if e.ending {
			e.destroy()
		}
		return
	}
	if e.departing {
		e.depart()
	}
	aux := &e.link.aux
	if aux.err != nil {
		e.auxFailed(aux.err)
	} else if !aux.settleDown() {
		e.w.addChore(e)
	}
	if e.ending && aux.posted() {
		e.finishClose()
	}
	if e.ending && aux.idle() {
		e.destroy()
	}
}

// connect asks for the lanes that operations need.
func (e *EP) connect() {
	needs := e.needs
	e.needs = 0
	if e.link == nil {
		e.makeLink()
	}
	for p := range wireup.Aux {
		if needs.Has(p) && e.state < epFailed {
			e.handle(wireup.Event{Kind: wireup.NeedLane, Purpose: p})
		}
	}
}

func (e *EP) makeLink() {
	e.link = &link{e: e, conn: wireup.NewConn(wireup.ConnParams{
		Local: e.w.addr, Remote: e.peer.addr, Reach: e.w.reacher(e.peer.addr),
		PackedLocal: e.w.packed, LocalEP: e.id, Seq: e.seq, Timeout: e.w.ctx.cfg.wireupTimeout(),
	})}
	e.link.aux.l = e.link
}

// auxFailed has the next transport carry the handshake. Without one it ends an EP that
// cannot talk to its peer, if it has something to say or to hear; otherwise only the
// auxiliary lane is given up.
func (e *EP) auxFailed(err error) {
	aux, conn := &e.link.aux, e.link.conn
	waits := !conn.Quiet() && !conn.Over()
	if (waits || !aux.posted()) && aux.takeOver(err) {
		e.handle(wireup.Event{Kind: wireup.SendingFailed})
		aux.push()
		e.w.addChore(e)
		return
	}
	failed := errors.Join(aux.failed...)
	aux.close()
	if waits {
		e.fail(statusOf(failed), fmt.Errorf("handshake: %w", failed))
	}
}

// laneBroke is told by transports of an endpoint that failed.
func (w *Worker) laneBroke(ep uct.EP, err error) {
	w.stats.brokenLanes.Inc()
	w.broken = append(w.broken, brokenLane{ep, err})
	w.raise()
}

// reason is why an operation was refused: what the transport has told of the lane that
// failed, if it has and the EP does not know yet.
func (e *EP) reason(err error) error {
	if !errors.Is(err, uct.ErrEPFailed) {
		return err
	}
	for _, b := range e.w.broken {
		if e.w.byLane[b.ep] == e && e.link.aux.ep != b.ep {
			return b.err
		}
	}
	return err
}

// lose handles a transport endpoint that failed.
func (w *Worker) lose(b brokenLane) {
	e := w.byLane[b.ep]
	if e == nil || e.link == nil {
		return
	}
	if e.link.aux.ep == b.ep {
		e.auxFailed(b.err)
		return
	}
	e.fail(statusOf(b.err), b.err)
}
