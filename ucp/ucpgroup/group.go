package ucpgroup

import (
	"context"
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// Group is this process's view of n ranks, each with a worker of its own. It belongs, with
// its communicators and requests, to the goroutine that owns the worker.
type Group struct {
	w     *ucp.Worker
	rank  int
	peers []peer // by rank in the world
	world *Comm

	contexts contextSet
	free     *Request
	pending  requestList // requests of package ucp that were under way when last looked at
	schedules
	failure
	closed bool
}

// peer is a rank.
type peer struct {
	ep     *ucp.EP
	gone   error        // why the EP takes no more operations; nil if it does
	used   bool         // messages went there, or came from there
	told   bool         // of the failure of the group
	knows  bool         // of it, as it has told this rank
	notice *ucp.Request // of that, while it is under way
	hang   bool         // the EP is to be closed when the rank knows
}

// Connect makes the group whose ranks have these worker addresses, of which addrs[rank] is
// this worker's own. It sends nothing and does not block: ranks connect when the first message
// goes between them. The worker must have no other endpoints to these ranks, and the active
// messages NoticeID. Until the group closes, the worker accepts tagged messages of the ranks only. Every
// rank needs a worker of its own. The worker stays the caller's. Errors: ErrInvalidParam, those of
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

// abandon closes the endpoints of a group that does not come about.
func (g *Group) abandon() {
	for _, r := range g.closeEPs(ucp.CloseForce) {
		r.Release()
	}
	g.w.OnActive(NoticeID, nil)
}

// sources yields what tags the ranks may send: those with their own rank.
func (g *Group) sources(yield func(*ucp.EP, uint64) bool) {
	for q := range g.peers {
		if !yield(g.peers[q].ep, uint64(q)<<rankShift) {
			return
		}
	}
}

// allRanks are the ranks of the world.
func allRanks(n int) []int32 {
	ranks := make([]int32, n)
	for q := range ranks {
		ranks[q] = int32(q)
	}
	return ranks
}

// New makes the group of the ranks that b has find each other. It blocks until every rank
// has called it, or ctx ends. Errors: those of b and of [Connect].
func New(ctx context.Context, w *ucp.Worker, b Bootstrap) (*Group, error) {
	addrs, err := exchange(ctx, b, w.Address())
	if err != nil {
		return nil, opError("new", err)
	}
	return Connect(w, b.Rank(), addrs)
}

// addressKey is the key under which ranks publish their worker's address.
const addressKey = "ucp"

// exchange swaps values between all ranks.
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

// World is the communicator of all ranks.
func (g *Group) World() *Comm { return g.world }

// Worker is the worker that the group uses.
func (g *Group) Worker() *ucp.Worker { return g.w }

// Err is nil, or why the group takes no more operations.
func (g *Group) Err() error {
	if g.closed {
		return opError("group", ucs.ErrClosed)
	}
	return g.failed
}

// Progress makes progress once and returns how much happened. It does not block, and looks
// at no clock.
func (g *Group) Progress() int {
	n := g.w.Progress()
	g.step()
	return n
}

// step does what has become possible, outside of callbacks.
func (g *Group) step() {
	if g.noticeDue {
		g.endFailed()
	}
	if g.hangDue {
		g.hangUps()
	}
	if g.first != nil {
		g.advanceAll()
	}
}

// Close leaves the group, after every rank has called it: until then it blocks and makes
// progress. If the group has failed, or ctx ends first, which fails it, Close does not wait for
// others, but for 5 s at most so that they are told why. Requests that have not ended are
// canceled. The error is why the group has failed. The worker stays open.
func (g *Group) Close(ctx context.Context) error {
	if g.closed {
		return nil
	}
	if g.failed == nil {
		_ = g.world.Barrier(ctx) // if it fails, so has the group
	}
	if g.closed = true; g.failed != nil {
		g.tellAll(ctx)
		_ = g.closeAll(ctx, ucp.CloseForce) // of a group that has failed anyway
		return g.failed
	}
	return g.closeAll(ctx, ucp.CloseFlush)
}

// Abort ends the group on all ranks, which are told that this one gives up because of err: what
// they wait for ends with a [RankError] of this rank. Of err they are told whether it is one of
// package ucs, ErrCanceled if it is none. Call Close then.
func (g *Group) Abort(err error) {
	if statusToTell(err) == ucs.StatusInternal {
		err = fmt.Errorf("%w: %w", ucs.ErrCanceled, err)
	}
	g.fail(&RankError{g.rank, err})
	g.step()
}

// closeAll ends all requests and closes the endpoints, and waits for that.
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
	g.advanceAll() // collective operations that were canceled are done
	g.w.OnActive(NoticeID, nil)
	if err := g.w.RestrictTags(0, nil); err != nil && !errors.Is(err, ucs.ErrClosed) {
		errs = append(errs, err)
	}
	return ucs.Join(errs...)
}

// closeEPs begins to close the endpoints that are there.
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
