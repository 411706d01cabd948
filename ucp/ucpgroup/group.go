package ucpgroup

import (
	"context"
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// Group is the view of this process on n ranks, each with its own worker. The group, its communicators and requests belong
// to the goroutine that owns the worker.
type Group struct {
	w     *ucp.Worker
	rank  int
	peers []peer // by rank in the communicator World
	world *Comm

	contexts contextSet
	free     *Request
	pending  requestList // requests of package ucp that were not complete at the last check
	schedules
	failure
	closed bool
}

// peer is a rank.
type peer struct {
	ep       *ucp.EP
	gone     error        // why the EP accepts no more operations; nil if it does
	used     bool         // messages were sent to the rank or received from it
	notified bool         // a notice of the failure of the group was sent to the rank
	knows    bool         // a notice of the rank has arrived, so it knows of the failure
	notice   *ucp.Request // request of the notice to the rank; nil if it is complete
	closeDue bool         // the EP must be closed when the rank knows
}

// Connect makes the group whose ranks have these worker addresses, of which addrs[rank] is
// this worker's own. It sends no message and does not block: ranks connect with the first message
// between them. The worker must have no other endpoints to these ranks, and no handler of active
// messages with id NoticeID. Until the group closes, the worker accepts tagged messages of the ranks only. Every
// rank needs its own worker. The worker still belongs to the caller. Errors: ErrInvalidParam, those of
// [ucp.Worker.NewEP].
func Connect(w *ucp.Worker, rank int, addrs [][]byte) (*Group, error) {
	n := len(addrs)
	if n < 1 || n > MaxRanks {
		return nil, invalid("connect", "ranks", n)
	}
	if rank < 0 || rank >= n {
		return nil, invalid("connect", "rank", rank)
	}
	g := &Group{w: w, rank: rank, peers: make([]peer, n)}
	g.waits = noticeLimit
	w.OnActive(NoticeID, g.handleNotice)
	for q, addr := range addrs {
		ep, err := w.NewEP(addr, ucp.EPConfig{OnError: func(_ *ucp.EP, err error) { g.lost(q, err) }})
		if err != nil {
			g.abandon()
			return nil, opError("connect", &RankError{q, err})
		}
		g.peers[q].ep = ep
	}
	if err := w.RestrictTags(rankMask, g.sources); err != nil {
		g.abandon()
		return nil, opError("connect", err)
	}
	g.contexts.take(worldContext)
	g.world = newComm(g, worldContext, rank, allRanks(n))
	return g, nil
}

// abandon closes the endpoints of a group that could not be made.
func (g *Group) abandon() {
	for _, r := range g.closeEPs(ucp.CloseForce) {
		r.Release()
	}
	g.w.OnActive(NoticeID, nil)
}

// sources yields the tags that each rank may send: those that contain its rank.
func (g *Group) sources(yield func(*ucp.EP, uint64) bool) {
	for q := range g.peers {
		if !yield(g.peers[q].ep, uint64(q)<<rankShift) {
			return
		}
	}
}

// allRanks returns the ranks of World.
func allRanks(n int) []int32 {
	ranks := make([]int32, n)
	for q := range ranks {
		ranks[q] = int32(q)
	}
	return ranks
}

// New makes the group of the ranks that exchange their addresses through b. It blocks until every rank
// has called it, or ctx is done. Errors: those of b and of [Connect].
func New(ctx context.Context, w *ucp.Worker, b Bootstrap) (*Group, error) {
	addrs, err := exchange(ctx, b, w.Address())
	if err != nil {
		return nil, opError("new", err)
	}
	return Connect(w, b.Rank(), addrs)
}

// addressKey is the key under which ranks publish their worker's address.
const addressKey = "ucp"

// exchange exchanges values between all ranks.
func exchange(ctx context.Context, b Bootstrap, mine []byte) ([][]byte, error) {
	if err := b.Put(ctx, addressKey, mine); err != nil {
		return nil, err
	}
	if err := b.Fence(ctx); err != nil {
		return nil, err
	}
	all := make([][]byte, b.Size())
	for q := range all {
		var err error
		if all[q], err = b.Get(ctx, q, addressKey); err != nil {
			return nil, fmt.Errorf("rank %d: %w", q, err)
		}
	}
	return all, nil
}

// World returns the communicator of all ranks.
func (g *Group) World() *Comm { return g.world }

// Worker returns the worker of the group.
func (g *Group) Worker() *ucp.Worker { return g.w }

// Err returns nil while the group accepts operations, otherwise the reason of its failure.
func (g *Group) Err() error {
	if g.closed {
		return opError("group", ucs.ErrClosed)
	}
	return g.failed
}

// Progress makes progress once and returns the number of events. It does not block, and reads
// no clock.
func (g *Group) Progress() int {
	n := g.w.Progress()
	g.step()
	return n
}

// step does deferred work, outside of callbacks.
func (g *Group) step() {
	if g.noticeDue {
		g.endFailed()
	}
	if g.closesDue {
		g.closeDueEPs()
	}
	if g.first != nil {
		g.advanceAll()
	}
}

// Close leaves the group. It blocks and makes progress until every rank has called it. If ctx is done first, the group
// fails. If the group has failed, Close does not wait for the other ranks to call Close, but at most 5 s until they
// have been notified of the reason. It cancels requests that are not complete. It returns the reason for which the group
// has failed. The worker remains open.
func (g *Group) Close(ctx context.Context) error {
	if g.closed {
		return nil
	}
	if g.failed == nil {
		_ = g.world.Barrier(ctx) // if it fails, so has the group
	}
	if g.closed = true; g.failed != nil {
		g.awaitNotified(ctx)
		_ = g.closeAll(ctx, ucp.CloseForce) // the error does not matter: the group has failed
		return g.failed
	}
	return g.closeAll(ctx, ucp.CloseFlush)
}

// Abort fails the group on all ranks because of err. Operations of the other ranks fail with a [RankError] of this
// rank. It wraps the error of package ucs that err matches, or ErrCanceled if there is none. Call Close after it.
func (g *Group) Abort(err error) {
	if wireStatus(err) == ucs.StatusInternal {
		err = fmt.Errorf("%w: %w", ucs.ErrCanceled, err)
	}
	g.fail(&RankError{g.rank, err})
	g.step()
}

// closeAll completes all requests, closes the endpoints, and waits for that.
func (g *Group) closeAll(ctx context.Context, mode ucp.CloseMode) error {
	g.cancelAll()
	var errs []error
	for _, r := range g.closeEPs(mode) {
		if err := g.w.Until(ctx, r.Done); err != nil {
			r.Release()
			errs = append(errs, err)
		} else if _, err := r.Test(); err != nil {
			errs = append(errs, err)
		}
	}
	g.advanceAll() // completes collective operations that were canceled
	g.w.OnActive(NoticeID, nil)
	if err := g.w.RestrictTags(0, nil); err != nil && !errors.Is(err, ucs.ErrClosed) {
		errs = append(errs, err)
	}
	return ucs.Join(errs...)
}

// closeEPs begins to close the open endpoints.
func (g *Group) closeEPs(mode ucp.CloseMode) (closing []*ucp.Request) {
	for q := range g.peers {
		ep := g.peers[q].ep
		if ep == nil {
			continue
		}
		if r, err := ep.Close(mode); err == nil && r != nil {
			closing = append(closing, r)
		}
	}
	return closing
}
