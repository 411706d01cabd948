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
	// Open makes the endpoint of a path and polls its iface. The host calls Fail when the
	// endpoint fails.
	Open(p Path, c *AM) (uct.EP, error)
	// Close closes the endpoint and lets its iface rest.
	Close(p Path, ep uct.EP)
	// Excluded reports whether a lane over the path has failed: other paths are better.
	Excluded(p Path) bool
	// Drain declares whether the endpoint of a path only waits for the peer's acknowledgement, so
	// that the host need not poll its iface each time.
	Drain(p Path, drains bool)
	// Limit is the longest active message of a path in bytes.
	Limit(p Path) int
	// Name adds the name of the transport to an error.
	Name(p Path, err error) error
	// Attention makes the next progress of the worker call Advance of the carrier.
	Attention()
}

// AM is the [Carrier] over the auxiliary lane: active messages of a transport that
// connects without a handshake. It is opened by the first message and closed when the
// handshake is over, so that its iface need not be polled. If its transport fails, or the
// peer does not reply, AM uses the next best path.
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
	drains bool // Drain(true) was called
	state  amState
	err    error       // why the current path must be abandoned
	at     int         // current path, an index of paths; noPath before the first is chosen
	states []pathState // of paths; nil: all pathOpen
	failed []error     // why paths were abandoned

	retransmits int // over the current path, in this handshake
}

// pathState is the state of a path in a handshake.
type pathState uint8

const (
	pathOpen   pathState = iota // not tried, or to be tried again
	pathSilent                  // the peer did not reply: other paths are better
	pathLater                   // ErrNotYet: try it after another path was silent
	pathFailed
)

// maxRetransmits is the number of retransmissions after which a path is abandoned. The third is due 7 s
// after the first message over the first path, and 3 s after the first message over each further path: a
// busy peer has replied by then, and a connection with the default timeout of a minute tries 17 paths (see
// maxPaths in handshake).
const maxRetransmits = 3

// errSilent is the reason to abandon a path without a reply.
var errSilent = fmt.Errorf("%w: the peer has not replied", ucs.ErrTimedOut)

// ErrNotYet is in the error of [Host].Open for a path that only the peer can open and has not opened yet.
var ErrNotYet = errors.New("not yet")

// noPath is the value of AM.at while no path is chosen.
const noPath = -1

// amState is the state of the messages that were sent.
type amState uint8

const (
	amDirty    amState = iota // some may not have arrived
	amAwaiting                // the same; pend waits for resources of the transport to flush
	amFlushing                // flush completes when all have arrived
	amClean                   // all have arrived
)

// NewAM makes a carrier that sends active messages of an id over the paths to a peer.
func NewAM(host Host, paths []Path, id uint8) *AM {
	a := &AM{host: host, paths: paths, id: id, at: noPath}
	a.pend.Func = func(*uct.PendingReq) error { return a.resume() }
	return a
}

// EP is the open endpoint; nil if there is none.
func (a *AM) EP() uct.EP { return a.ep }

// Path is the path of the open endpoint.
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
		a.countRetransmit()
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

// countRetransmit counts a retransmission, and abandons a silent path if there is another
// one.
func (a *AM) countRetransmit() {
	a.retransmits++
	if a.retransmits >= maxRetransmits && a.err == nil && a.at != noPath && a.hasOther() {
		a.Fail(errSilent)
	}
}

// hasOther reports whether a path other than the current one has not failed.
func (a *AM) hasOther() bool {
	for i := range a.paths {
		if i != a.at && a.stateOf(i) != pathFailed {
			return true
		}
	}
	return false
}

func (a *AM) stateOf(path int) pathState {
	if a.states == nil {
		return pathOpen
	}
	return a.states[path]
}

// push sends queued messages until the transport has no resources.
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

// resume continues when the transport has resources.
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

// Advance implements Carrier.
func (a *AM) Advance(quiet bool) (done bool) {
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

// startFlush flushes the endpoint. If nothing is in flight, or the transport has failed, the state does
// not change and the endpoint can be closed. Error: ErrNoResource.
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

// awaitResources makes the transport call resume when the endpoint may have resources. It returns
// false if the endpoint may have some now.
func (a *AM) awaitResources() bool {
	if !a.queued {
		a.queued = a.ep.AddPending(&a.pend) == nil
	}
	if a.queued {
		a.state = amAwaiting
	}
	return a.queued
}

// flushQueued flushes the endpoint when the transport dispatches its pending request. If the transport
// still has no resources, the attempt costs one call.
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

// drain calls Host.Drain if drains has changed.
func (a *AM) drain(drains bool) {
	if a.drains != drains {
		a.drains = drains
		a.host.Drain(a.paths[a.at], drains)
	}
}

// amFlush is one flush of the endpoint. It belongs to the transport until it completes, which may
// be after the endpoint was closed and another one opened.
type amFlush struct {
	uct.Completion
	a *AM
}

func newAMFlush(a *AM) *amFlush {
	f := &amFlush{a: a}
	f.Count, f.Func = 1, func(*uct.Completion) { f.ended() }
	return f
}

// ended runs when all messages sent before the flush have arrived or failed.
func (f *amFlush) ended() {
	a := f.a
	if a.flush != f || a.state != amFlushing {
		return
	}
	a.state = amClean
	a.host.Attention()
}

// next is the index of the best path that has not failed in this handshake. Paths over which a lane has
// failed come after the others, and silent paths last. noPath if there is none.
func (a *AM) next() int {
	best, least := noPath, 0
	for i, p := range a.paths {
		if a.stateOf(i) >= pathLater {
			continue
		}
		faults := 0
		if a.host.Excluded(p) {
			faults++
		}
		if a.stateOf(i) == pathSilent {
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
		a.abandon(a.err)
	}
	a.failed = append(a.failed, err)
	next := a.next()
	gone := errors.Is(err, ucs.ErrPeerClosed) || errors.Is(err, ucs.ErrConnReset) && !disconnecting
	if gone || next == noPath {
		return false, ucs.Join(a.failed...)
	}
	a.shut()
	a.at, a.err, a.retransmits = next, nil, 0
	return true, nil
}

// abandon sets the state of the current path. If the path was silent, paths that were not ready or silent
// before may be tried again.
func (a *AM) abandon(why error) {
	if a.states == nil {
		a.states = make([]pathState, len(a.paths))
	}
	switch {
	case errors.Is(why, errSilent):
		a.states[a.at] = pathSilent
		a.reopen(pathLater)
		if !slices.Contains(a.states, pathOpen) {
			a.reopen(pathSilent)
			a.states[a.at] = pathSilent
		}
	case errors.Is(why, ErrNotYet):
		a.states[a.at] = pathLater
	default:
		a.states[a.at] = pathFailed
	}
}

// reopen makes all paths in a state open again.
func (a *AM) reopen(state pathState) {
	for i, s := range a.states {
		if s == state {
			a.states[i] = pathOpen
		}
	}
}

// Close implements Carrier.
func (a *AM) Close() {
	a.shut()
	a.out, a.err, a.at, a.states, a.failed, a.retransmits = nil, nil, noPath, nil, nil, 0
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

// packer packs a message into a transport buffer.
type packer struct{ b []byte }

// Pack copies the message.
func (p *packer) Pack(dst []byte) int { return copy(dst, p.b) }
