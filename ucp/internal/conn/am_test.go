package conn

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// fakeHost is a worker with endpoints that a test controls.
type fakeHost struct {
	t         *testing.T
	opened    []Path
	closed    []*fakeEP
	open      *fakeEP
	excluded  map[Path]bool
	limit     int
	drains    []bool
	attention int
	openErr   error
	noAM      bool
	refuse    []error // results of the next sends, AddPending and Flush
	pendErrs  []error
	flushErr  error
	flushes   bool // a flush is pending
	sent      []string
	via       []Path // path of each message in sent
}

// fakeEP is an endpoint.
type fakeEP struct {
	uct.EP
	uct.AMSender
	h       *fakeHost
	path    Path
	pending *uct.PendingReq
	flush   *uct.Completion
}

const amID = 9

func next(list *[]error) error {
	if len(*list) == 0 {
		return nil
	}
	err := (*list)[0]
	*list = (*list)[1:]
	return err
}

func (e *fakeEP) Ops() *uct.Ops {
	if e.h.noAM {
		return &uct.Ops{}
	}
	return &uct.Ops{AM: e}
}

func (e *fakeEP) AMBcopy(id uint8, p uct.Packer) (int, error) {
	assert.EqualValues(e.h.t, amID, id)
	if err := next(&e.h.refuse); err != nil {
		return 0, err
	}
	b := make([]byte, 100)
	n := p.Pack(b)
	e.h.sent, e.h.via = append(e.h.sent, string(b[:n])), append(e.h.via, e.path)
	return n, nil
}

func (e *fakeEP) AddPending(r *uct.PendingReq) error {
	if err := next(&e.h.pendErrs); err != nil {
		return err
	}
	require.Nil(e.h.t, e.pending, "it waits already")
	e.pending = r
	return nil
}

func (e *fakeEP) PurgePending(f func(*uct.PendingReq)) {
	if r := e.pending; r != nil {
		e.pending = nil
		f(r)
	}
}

func (e *fakeEP) Flush(c *uct.Completion) (bool, error) {
	if e.h.flushErr != nil {
		return false, e.h.flushErr
	}
	e.flush = c
	return e.h.flushes, nil
}

// dispatch runs the waiting request, which is removed unless it has no resources.
func (e *fakeEP) dispatch() error {
	r := e.pending
	require.NotNil(e.h.t, r)
	e.pending = nil
	err := r.Func(r)
	if err == uct.ErrNoResource {
		e.pending = r
	}
	return err
}

func (h *fakeHost) Open(p Path, _ *AM) (uct.EP, error) {
	h.opened = append(h.opened, p)
	if err := h.openErr; err != nil {
		h.openErr = nil
		return nil, err
	}
	require.Nil(h.t, h.open)
	h.open = &fakeEP{h: h, path: p}
	return h.open, nil
}

func (h *fakeHost) Close(p Path, ep uct.EP) {
	require.Same(h.t, h.open, ep)
	assert.Equal(h.t, h.open.path, p)
	assert.Nil(h.t, h.open.pending, "the carrier has no request in its queue")
	h.closed, h.open = append(h.closed, h.open), nil
}

func (h *fakeHost) Excluded(p Path) bool         { return h.excluded[p] }
func (h *fakeHost) Drain(_ Path, drains bool)    { h.drains = append(h.drains, drains) }
func (h *fakeHost) Limit(Path) int               { return h.limit }
func (h *fakeHost) Name(p Path, err error) error { return fmt.Errorf("path %d: %w", p.Remote, err) }
func (h *fakeHost) Attention()                   { h.attention++ }

// paths are the paths of the carrier in a test.
var paths = []Path{{0, 1}, {0, 2}, {1, 3}}

func newCarrier(t *testing.T, paths ...Path) (*AM, *fakeHost) {
	h := &fakeHost{t: t, limit: 50}
	return NewAM(h, paths, amID), h
}

// tookAttention reports whether the carrier has asked for attention since the last call.
func (h *fakeHost) tookAttention() bool {
	n := h.attention
	h.attention = 0
	return n > 0
}

func send(a *AM, msgs ...string) {
	for _, m := range msgs {
		a.Send([]byte(m), false)
	}
}

// TestAM_Send: the first message opens the best path. Messages are sent in order.
func TestAM_Send(t *testing.T) {
	a, h := newCarrier(t, paths...)
	assert.True(t, a.Idle())
	assert.True(t, a.Posted())
	assert.Nil(t, a.EP())
	a.Advance(true)
	assert.Empty(t, h.opened)
	send(a, "one", "two")
	assert.True(t, h.tookAttention())
	assert.Equal(t, []string{"one", "two"}, h.sent)
	assert.Equal(t, paths[:1], h.opened)
	assert.Equal(t, paths[0], a.Path())
	assert.Same(t, h.open, a.EP())
	assert.True(t, a.Posted())
	assert.False(t, a.Idle(), "they may not have arrived")
	a.Send([]byte("two"), true)
	assert.Equal(t, []string{"one", "two", "two"}, h.sent, "nothing waits, so it is retransmitted")
	assert.NoError(t, a.Err())
	a.Close()
	assert.True(t, a.Idle())
	assert.Len(t, h.closed, 1)
	a.Close()
	assert.Len(t, h.closed, 1)
	send(a, "again")
	assert.Equal(t, []Path{paths[0], paths[0]}, h.opened)
}

// TestAM_NoResource: messages without resources wait, in order. A retransmission is dropped meanwhile.
func TestAM_NoResource(t *testing.T) {
	a, h := newCarrier(t, paths...)
	h.refuse = []error{nil, uct.ErrNoResource}
	send(a, "one", "two", "three")
	a.Send([]byte("two"), true)
	assert.Equal(t, []string{"one"}, h.sent)
	assert.False(t, a.Posted())
	assert.True(t, a.Advance(true), "the transport asks")
	assert.NotNil(t, h.open)
	h.tookAttention()
	h.refuse = []error{nil, uct.ErrNoResource}
	assert.Equal(t, uct.ErrNoResource, h.open.dispatch())
	assert.Equal(t, []string{"one", "two"}, h.sent)
	assert.False(t, h.tookAttention())
	require.NoError(t, h.open.dispatch())
	assert.Equal(t, []string{"one", "two", "three"}, h.sent)
	assert.True(t, h.tookAttention())
	assert.True(t, a.Posted())
	send(a, "four")
	assert.Equal(t, []string{"one", "two", "three", "four"}, h.sent)

	h.refuse, h.pendErrs = []error{uct.ErrNoResource, uct.ErrNoResource}, []error{uct.ErrBusy}
	send(a, "five") // there were resources when it was about to wait, and then there were none
	assert.NotNil(t, h.open.pending)
	a.Close()
	assert.True(t, a.Idle())
	send(a, "six")
	assert.Equal(t, []string{"one", "two", "three", "four", "six"}, h.sent, "five was dropped")

	broken := errors.New("broken")
	h.refuse = []error{uct.ErrNoResource}
	send(a, "seven")
	h.refuse = []error{broken}
	assert.Equal(t, broken, h.open.dispatch())
	assert.Equal(t, broken, a.Err())
	a.Close()

	h.refuse, h.pendErrs = []error{uct.ErrNoResource}, []error{broken}
	send(a, "eight")
	assert.Equal(t, broken, a.Err())
	h.pendErrs = nil
	a.Close()
	h.refuse = []error{broken}
	send(a, "nine")
	assert.Equal(t, broken, a.Err())
	assert.Len(t, h.sent, 5)
	send(a, "ten")
	assert.Len(t, h.sent, 5, "nothing is sent before it has recovered")
}

// TestAM_Limit: a message of the maximum length is sent, and a longer one is an error.
func TestAM_Limit(t *testing.T) {
	a, h := newCarrier(t, paths...)
	a.Send(make([]byte, h.limit), false)
	require.NoError(t, a.Err())
	assert.Len(t, h.sent, 1)
	a.Send(make([]byte, h.limit+1), false)
	assert.ErrorIs(t, a.Err(), ucs.ErrTooLong)
	assert.Len(t, h.sent, 1)
}

// TestAM_CannotOpen: no path, a path that fails to open, and one without active messages.
func TestAM_CannotOpen(t *testing.T) {
	a, _ := newCarrier(t)
	send(a, "one")
	assert.ErrorIs(t, a.Err(), ucs.ErrUnreachable)
	ok, why := a.Recover(false)
	assert.False(t, ok)
	assert.ErrorIs(t, why, ucs.ErrUnreachable)
	assert.NotContains(t, why.Error(), "path")

	a, h := newCarrier(t, paths...)
	h.openErr = ucs.ErrNoMemory
	send(a, "one")
	assert.Equal(t, ucs.ErrNoMemory, a.Err())
	assert.Nil(t, a.EP())
	ok, _ = a.Recover(false)
	assert.True(t, ok)
	a.Advance(false)
	assert.Equal(t, []string{"one"}, h.sent)
	assert.Equal(t, paths[1:2], h.via)

	a, h = newCarrier(t, paths...)
	h.noAM = true
	send(a, "one")
	assert.ErrorIs(t, a.Err(), ucs.ErrInternal)
	assert.Nil(t, a.EP())
	assert.Len(t, h.closed, 1)
}

// TestAM_Settle: the endpoint closes when the handshake is quiet and all messages have arrived.
func TestAM_Settle(t *testing.T) {
	a, h := newCarrier(t, paths...)
	h.flushes = true
	send(a, "one")
	assert.True(t, a.Advance(false))
	assert.Nil(t, h.open.flush, "more may follow")
	assert.True(t, a.Advance(true))
	assert.Equal(t, []bool{true}, h.drains)
	first := h.open.flush
	require.NotNil(t, first)
	assert.True(t, a.Advance(true))
	assert.Same(t, first, h.open.flush, "one flush")
	send(a, "two") // the flush does not cover this one
	assert.Equal(t, []bool{true, false}, h.drains)
	h.tookAttention()
	first.Complete(ucs.StatusOK)
	assert.False(t, h.tookAttention())
	assert.True(t, a.Advance(true))
	second := h.open.flush
	require.NotSame(t, first, second)
	second.Complete(ucs.StatusOK)
	assert.True(t, h.tookAttention())
	assert.False(t, a.Idle())
	assert.True(t, a.Advance(true))
	assert.True(t, a.Idle())
	assert.Equal(t, []bool{true, false, true, false}, h.drains)

	send(a, "three")
	assert.True(t, a.Advance(true))
	third := h.open.flush
	a.Close()
	h.tookAttention()
	third.Func(third)
	assert.False(t, h.tookAttention())
	assert.True(t, a.Idle())
	send(a, "four")
	h.tookAttention()
	third.Complete(ucs.StatusCanceled) // of a closed endpoint
	assert.False(t, h.tookAttention())
	assert.NotNil(t, a.EP())
	h.flushes = false
	assert.True(t, a.Advance(true))
	assert.True(t, a.Idle(), "all have arrived already")
}

// TestAM_SettleWithoutResources: a flush without resources is retried when the transport has some, or at once. The host
// is notified when the carrier can be closed, and not of each retry.
func TestAM_SettleWithoutResources(t *testing.T) {
	awaiting := func() (*AM, *fakeHost) {
		a, h := newCarrier(t, paths...)
		send(a, "one")
		h.flushErr = uct.ErrNoResource
		h.pendErrs = []error{uct.ErrBusy}
		assert.False(t, a.Advance(true), "there may be some now")
		assert.True(t, a.Advance(true))
		assert.NotNil(t, h.open.pending)
		assert.True(t, a.Advance(true), "it waits once")
		h.tookAttention()
		assert.Equal(t, uct.ErrNoResource, h.open.dispatch(), "it remains in the queue")
		assert.False(t, h.tookAttention())
		return a, h
	}
	t.Run("transport fails", func(t *testing.T) {
		a, h := awaiting()
		h.flushErr = ucs.ErrConnReset
		require.NoError(t, h.open.dispatch())
		assert.True(t, h.tookAttention())
		assert.True(t, a.Advance(true))
		assert.True(t, a.Idle(), "there is nothing more to wait for")
	})
	t.Run("flush starts", func(t *testing.T) {
		a, h := awaiting()
		h.flushErr, h.flushes = nil, true
		require.NoError(t, h.open.dispatch())
		assert.False(t, h.tookAttention())
		assert.True(t, a.Advance(true))
		assert.False(t, a.Idle())
		h.open.flush.Complete(ucs.StatusOK)
		assert.True(t, h.tookAttention())
		assert.True(t, a.Advance(true))
		assert.True(t, a.Idle())
	})
	t.Run("message follows", func(t *testing.T) {
		a, h := awaiting()
		h.flushErr = nil
		send(a, "two")
		require.NoError(t, h.open.dispatch())
		assert.Equal(t, []string{"one", "two"}, h.sent)
		assert.True(t, a.Advance(false))
		assert.False(t, a.Idle())
		assert.True(t, a.Advance(true))
		assert.True(t, a.Idle())
	})
}

// TestAM_Recover: when a path fails, the next best one sends the waiting messages. A path over which a lane has failed
// is the last choice. Without a path the error has the reasons of all.
func TestAM_Recover(t *testing.T) {
	a, h := newCarrier(t, paths...)
	h.excluded = map[Path]bool{paths[0]: true}
	h.refuse = []error{nil, uct.ErrNoResource}
	send(a, "one", "two")
	assert.Equal(t, paths[1:2], h.opened)
	h.tookAttention()
	for i, want := range []Path{paths[2], paths[0]} {
		a.Fail(fmt.Errorf("fault %d", i))
		assert.True(t, h.tookAttention())
		assert.EqualError(t, a.Err(), fmt.Sprintf("fault %d", i))
		ok, why := a.Recover(false)
		require.True(t, ok)
		require.NoError(t, why)
		assert.NoError(t, a.Err())
		assert.Nil(t, a.EP())
		a.Advance(false)
		assert.Equal(t, want, a.Path())
	}
	assert.Equal(t, []string{"one", "two"}, h.sent)
	assert.Equal(t, []Path{paths[1], paths[2]}, h.via)
	send(a, "three")
	assert.Equal(t, paths[0], h.via[2])
	a.Fail(errors.New("fault 2"))
	ok, why := a.Recover(false)
	assert.False(t, ok)
	for i, path := range []int{2, 3, 1} {
		assert.ErrorContains(t, why, fmt.Sprintf("path %d: fault %d", path, i))
	}
	a.Close()
	send(a, "four")
	assert.Equal(t, paths[1], h.via[3], "the next handshake uses the best path")
	a.Fail(errors.New("fault 3"))
	ok, _ = a.Recover(false)
	assert.True(t, ok)

	for _, gone := range []error{ucs.ErrConnReset, ucs.ErrPeerClosed} {
		a, _ := newCarrier(t, paths...)
		send(a, "one")
		a.Fail(gone)
		ok, why = a.Recover(false)
		assert.False(t, ok, "the peer is gone")
		assert.ErrorIs(t, why, gone)
	}

	a, h = newCarrier(t, paths...)
	send(a, "last")
	a.Fail(ucs.ErrConnReset)
	ok, _ = a.Recover(true)
	assert.True(t, ok, "the peer may have rejected this path only")
	send(a, "last")
	assert.Equal(t, paths[1], h.via[1])
}

// TestAM_Silent: if the peer does not reply over a path, the path is left after some retransmissions. When all paths
// have been left, each is tried again.
func TestAM_Silent(t *testing.T) {
	a, h := newCarrier(t, paths...)
	send(a, "request")
	repeat := func() (left bool) {
		t.Helper()
		a.Send([]byte("request"), true)
		if a.Err() == nil {
			return false
		}
		assert.ErrorIs(t, a.Err(), ucs.ErrTimedOut)
		ok, why := a.Recover(false)
		require.True(t, ok, why)
		a.Send([]byte("request"), true)
		return true
	}
	var order []Path
	for range 5 {
		order = append(order, a.Path())
		n := 1
		for !repeat() {
			n++
		}
		if len(order) == 1 {
			assert.Equal(t, maxRetransmits, n)
		}
	}
	assert.Equal(t, []Path{paths[0], paths[1], paths[2], paths[0], paths[1]}, order)
	a.Close()
	send(a, "request")
	assert.Equal(t, order[0], h.via[len(h.via)-1], "the next handshake begins with the best")
}

// TestAM_SilentAlone: the only path, and the only one that has not failed, is not left.
func TestAM_SilentAlone(t *testing.T) {
	a, _ := newCarrier(t, paths[:2]...)
	send(a, "request")
	a.Fail(errors.New("fault"))
	ok, _ := a.Recover(false)
	require.True(t, ok)
	for range 3 * maxRetransmits {
		a.Send([]byte("request"), true)
		require.NoError(t, a.Err())
	}
}

// TestAM_NotYet: a path that only the peer can open is tried again after another path was left. Without another one the
// carrier fails.
func TestAM_NotYet(t *testing.T) {
	a, h := newCarrier(t, paths[:2]...)
	h.openErr = fmt.Errorf("%w: the peer has not connected", ErrNotYet)
	send(a, "reply")
	first := h.opened[0]
	ok, _ := a.Recover(false)
	require.True(t, ok)
	send(a, "reply")
	assert.NotEqual(t, first, a.Path())
	for range maxRetransmits {
		require.NoError(t, a.Err())
		a.Send([]byte("reply"), true)
	}
	require.Error(t, a.Err())
	ok, _ = a.Recover(false)
	require.True(t, ok)
	send(a, "reply")
	assert.Equal(t, first, a.Path())

	a, h = newCarrier(t, paths[0])
	h.openErr = ErrNotYet
	send(a, "reply")
	ok, why := a.Recover(false)
	assert.False(t, ok)
	assert.ErrorIs(t, why, ErrNotYet)
}
