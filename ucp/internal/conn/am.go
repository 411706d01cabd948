package conn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Host is the part of a worker that an AM carrier needs.
type Host interface {
	// Open makes the endpoint of a path and polls its iface. The carrier is told of a
	// failure by Fail.
	Open(p Path, c *AM) (uct.EP, error)
	// Close closes the endpoint and lets its iface rest.
	Close(p Path, ep uct.EP)
	// Excluded reports that a lane over the path has failed: another path is better.
	Excluded(p Path) bool
	// Drain says whether the endpoint of a path only waits for the peer's acknowledgement, so
	// that its iface need not be polled each time.
	Drain(p Path, drains bool)
	// Limit is the longest active message of a path in bytes.
	Limit(p Path) int
	// Name has an error say which transport failed.
	Name(p Path, err error) error
	// Attention has the worker look at the carrier at its next progress.
	Attention()
}

// AM is the [Carrier] over the auxiliary lane: active messages of a transport that
// connects without a handshake. It is opened by the first message and closed when the
// handshake is over, so that its iface need not be polled. When its transport fails, or the
// peer does not answer over it, the next best takes over.
type AM struct {
	host  Host
	paths []Path // best first
	id    uint8  // of the active message

	ep     uct.EP // nil while closed
	am     uct.AMSender
	out    [][]byte
	pack   packer
	pend   uct.PendingReq
	flush  *amFlush // before closing; nil since the last message
	queued bool
	drains bool // the host knows that ep only waits
	state  amState
	err    error   // the lane broke
	at     int     // in paths; noPath before the first is chosen
	ways   []way   // how each of paths went; nil if no path was left in this handshake
	failed []error // why

	unanswered int // repetitions over the present path, in this handshake
}

// way is how a path went in a handshake.
type way uint8

const (
	wayOpen   way = iota
	waySilent     // the peer did not answer: other paths are better
	wayLater      // ErrNotYet: to be tried when another path was silent
	wayFailed
)

// mostUnanswered is how many repetitions a path gets. The third is due 7 s after the first message, and
// 3 s after that which goes over another path: a peer that is only busy has answered by then, and
// a connection that times out after a minute, as by default, has tried 17 paths (see maxPaths in wireup).
const mostUnanswered = 3

// errSilent is why a path is left that may be good.
var errSilent = fmt.Errorf("%w: the peer has not answered", ucs.ErrTimedOut)

// ErrNotYet is wrapped by what [Host].Open returns for a path that only the peer can open, and has not.
var ErrNotYet = errors.New("not yet")

// noPath is the place of AM.at where no path is chosen.
const noPath = -1

// amState is what became of the messages that were sent.
type amState uint8

const (
	amDirty    amState = iota // some may not have arrived
	amAwaiting                // the same; pend waits for resources of the transport to flush
	amFlushing                // flush will tell when all have
	amClean                   // all have arrived
)

// NewAM makes a carrier that sends active messages of an id over the paths to a peer.
func NewAM(host Host, paths []Path, id uint8) *AM {
	a := &AM{host: host, paths: paths, id: id, at: noPath}
	a.pend.Func = func(*uct.PendingReq) error { return a.resume() }
	return a
}

// EP is the endpoint that is open; nil if there is none.
func (a *AM) EP() uct.EP { return a.ep }

// Path is where the endpoint is open.
func (a *AM) Path() Path { return a.paths[a.at] }

// Err implements Carrier.
func (a *AM) Err() error { return a.err }

// Fail is called when the endpoint has failed.
func (a *AM) Fail(err error) {
	a.err = err
	a.host.Attention()
}

// Idle implements Carrier.
func (a *AM) Idle() bool { return a.ep == nil && len(a.out) == 0 }

// Posted implements Carrier.
func (a *AM) Posted() bool { return len(a.out) == 0 }

// Send implements Carrier.
func (a *AM) Send(msg []byte, repeat bool) {
	if repeat {
		a.repeated()
		if len(a.out) > 0 {
			return
		}
	}
	a.out = append(a.out, msg)
	a.state, a.flush = amDirty, nil
	a.drain(false)
	a.host.Attention()
	a.push()
}

// repeated notes that the peer has not answered yet, and leaves a path that seems to lead nowhere
// if there is another one.
func (a *AM) repeated() {
	a.unanswered++
	if a.unanswered >= mostUnanswered && a.err == nil && a.at != noPath && a.hasOther() {
		a.Fail(errSilent)
	}
}

// hasOther reports that a path has not failed that is not the present one.
func (a *AM) hasOther() bool {
	for i := range a.paths {
		if i != a.at && a.way(i) != wayFailed {
			return true
		}
	}
	return false
}

func (a *AM) way(i int) way {
	if a.ways == nil {
		return wayOpen
	}
	return a.ways[i]
}

// push sends what it can.
func (a *AM) push() {
	if a.queued || a.err != nil || len(a.out) == 0 {
		return
	}
	if a.ep == nil {
		if a.err = a.open(); a.err != nil {
			return
		}
	}
	for len(a.out) > 0 {
		err := a.sendOne(a.out[0])
		switch err {
		case nil:
			a.out = a.out[1:]
			continue
		case uct.ErrNoResource:
			if err = a.ep.AddPending(&a.pend); err == uct.ErrBusy {
				continue
			}
			a.queued = err == nil
		}
		if !a.queued {
			a.err = err
		}
		return
	}
	a.out = nil
}

func (a *AM) sendOne(msg []byte) error {
	if limit := a.host.Limit(a.paths[a.at]); len(msg) > limit {
		return fmt.Errorf("handshake message of %d bytes, %d fit: %w", len(msg), limit, ucs.ErrTooLong)
	}
	a.pack.b = msg
	_, err := a.am.AMBcopy(a.id, &a.pack)
	return err
}

func (a *AM) open() error {
	if a.at == noPath {
		a.at = a.next()
	}
	if a.at == noPath {
		return fmt.Errorf("no transport can carry the handshake: %w", ucs.ErrUnreachable)
	}
	p := a.paths[a.at]
	ep, err := a.host.Open(p, a)
	if err != nil {
		return err
	}
	if a.ep, a.am = ep, ep.Ops().AM; a.am == nil {
		a.shut()
		return fmt.Errorf("it claims active messages and has none: %w", ucs.ErrInternal)
	}
	return nil
}

// resume goes on when the lane has resources.
func (a *AM) resume() error {
	if a.state == amAwaiting {
		return a.flushQueued()
	}
	for len(a.out) > 0 {
		if err := a.sendOne(a.out[0]); err != nil {
			if err != uct.ErrNoResource {
				a.queued, a.err = false, err
			}
			return err
		}
		a.out = a.out[1:]
	}
	a.queued, a.out = false, nil
	a.host.Attention()
	return nil
}

// Settle implements Carrier.
func (a *AM) Settle(quiet bool) (done bool) {
	a.push()
	if !quiet || a.ep == nil || !a.Posted() || a.state == amFlushing {
		return true
	}
	switch a.state {
	case amDirty:
		if err := a.startFlush(); err == uct.ErrNoResource {
			return a.awaitResources()
		}
	case amAwaiting:
		return true
	}
	if a.state != amFlushing {
		a.Close()
	}
	return true
}

// startFlush flushes the endpoint. If nothing is in flight, or the transport has failed, the state stays
// as it is: the endpoint can be closed. ErrNoResource.
func (a *AM) startFlush() error {
	if a.flush == nil {
		a.flush = newAMFlush(a)
	}
	pending, err := a.ep.Flush(&a.flush.Completion)
	if pending {
		a.state = amFlushing
		a.drain(true)
	}
	return err
}

// awaitResources has the transport call resume when the endpoint may have resources. It reports
// false if it may have some now.
func (a *AM) awaitResources() bool {
	if !a.queued {
		a.queued = a.ep.AddPending(&a.pend) == nil
	}
	if a.queued {
		a.state = amAwaiting
	}
	return a.queued
}

// flushQueued flushes the endpoint in turn with the others that wait for resources, so that one that is refused
// again costs no more than this call.
func (a *AM) flushQueued() error {
	err := a.startFlush()
	if err == uct.ErrNoResource {
		return err
	}
	a.queued = false
	if a.state != amFlushing { // nothing is in flight, or the transport has failed
		a.state = amClean
		a.host.Attention()
	}
	return nil
}

// drain tells the host whether the endpoint only waits for an acknowledgement, if that is new.
func (a *AM) drain(drains bool) {
	if a.drains != drains {
		a.drains = drains
		a.host.Drain(a.paths[a.at], drains)
	}
}

// amFlush is one flush of the lane. The transport has it until it has ended, which may
// be after the lane was closed and another one opened.
type amFlush struct {
	uct.Completion
	a *AM
}

func newAMFlush(a *AM) *amFlush {
	f := &amFlush{a: a}
	f.Count, f.Func = 1, func(*uct.Completion) { f.ended() }
	return f
}

// ended runs when everything sent before the flush has arrived, or will not.
func (f *amFlush) ended() {
	a := f.a
	if a.flush != f || a.state != amFlushing {
		return
	}
	a.state = amClean
	a.host.Attention()
}

// next is the best path that has not failed in this handshake, in paths. One over which a lane has
// failed comes after the others, and one over which the peer was silent last. noPath if there is none.
func (a *AM) next() int {
	best, least := noPath, 0
	for i, p := range a.paths {
		if a.way(i) >= wayLater {
			continue
		}
		faults := 0
		if a.host.Excluded(p) {
			faults++
		}
		if a.way(i) == waySilent {
			faults += 2
		}
		if best == noPath || faults < least {
			best, least = i, faults
		}
	}
	return best
}

// Recover implements Carrier by the next best transport.
func (a *AM) Recover(disconnecting bool) (ok bool, why error) {
	err := a.err
	if a.at != noPath {
		err = a.host.Name(a.paths[a.at], err)
		a.leave(a.err)
	}
	a.failed = append(a.failed, err)
	next := a.next()
	gone := errors.Is(err, ucs.ErrPeerClosed) || errors.Is(err, ucs.ErrConnReset) && !disconnecting
	if gone || next == noPath {
		return false, ucs.Join(a.failed...)
	}
	a.shut()
	a.at, a.err, a.unanswered = next, nil, 0
	return true, nil
}

// leave notes how the present path went. When the peer was silent over it, others that were left may have
// become good.
func (a *AM) leave(why error) {
	if a.ways == nil {
		a.ways = make([]way, len(a.paths))
	}
	switch {
	case errors.Is(why, errSilent):
		a.ways[a.at] = waySilent
		a.reopen(wayLater)
		if !slices.Contains(a.ways, wayOpen) {
			a.reopen(waySilent)
			a.ways[a.at] = waySilent
		}
	case errors.Is(why, ErrNotYet):
		a.ways[a.at] = wayLater
	default:
		a.ways[a.at] = wayFailed
	}
}

// reopen gives paths that went in a certain way another turn.
func (a *AM) reopen(went way) {
	for i, w := range a.ways {
		if w == went {
			a.ways[i] = wayOpen
		}
	}
}

// Close implements Carrier.
func (a *AM) Close() {
	a.shut()
	a.out, a.err, a.at, a.ways, a.failed, a.unanswered = nil, nil, noPath, nil, nil, 0
}

// shut closes the transport endpoint.
func (a *AM) shut() {
	a.state, a.flush = amDirty, nil
	if a.ep == nil {
		return
	}
	a.drain(false)
	ep := a.ep
	a.ep, a.am = nil, nil
	if a.queued {
		ep.PurgePending(func(*uct.PendingReq) {})
		a.queued = false
	}
	a.host.Close(a.paths[a.at], ep)
}

// packer is a message on its way into a transport buffer.
type packer struct{ b []byte }

// Pack copies the message.
func (p *packer) Pack(dst []byte) int { return copy(dst, p.b) }
