package kvstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucprpc"
	"github.com/gucx/gucx/ucs"
)

// ClientConfig is the configuration of a Client.
type ClientConfig struct {
	// Network is as in Config; Addresses are the addresses of the replicas.
	Network   string
	Addresses []string
}

// Client is a client of a store. If its connection fails, it connects to the replica that serves. Several goroutines may
// call its methods. They block until a server serves or their context is done.
type Client struct {
	c   *ucp.Context
	cfg ClientConfig

	session    atomic.Pointer[session] // latest session
	connecting chan struct{}           // capacity 1: contains a value while a goroutine connects
	open       context.Context
	shut       context.CancelFunc
	stats      Stats

	watching    sync.Mutex // protects the fields below
	watches     map[uint32]func(Change)
	watchNumber uint32 // number of the latest watch
}

// Stats counts lookups.
type Stats struct {
	Torn   atomic.Uint64 // slots read while the server was writing them
	Moved  atomic.Uint64 // searches repeated because keys moved
	Called atomic.Uint64 // lookups by a call of the server
}

// session is a connection to the primary.
type session struct {
	cl     *Client
	server info
	rpc    *ucprpc.Client
	table  *ucprpc.Memory
	moves  atomic.Uint64 // move counter of the header, at some time since the start of the session

	lease   time.Duration // see lease
	until   atomic.Int64  // time until which the server is certainly the primary, as sinceStart
	renewal sync.Mutex    // protects the fields below
	beat    uint64        // beat counter of the header
	seen    time.Duration // start of the latest get of beat, as sinceStart
}

// Dial connects to a store.
func Dial(ctx context.Context, c *ucp.Context, cfg ClientConfig) (*Client, error) {
	cfg.Network = cmp.Or(cfg.Network, "tcp")
	if len(cfg.Addresses) == 0 {
		return nil, fmt.Errorf("kvstore: no address: %w", ucs.ErrInvalidParam)
	}
	cl := &Client{c: c, cfg: cfg, connecting: make(chan struct{}, 1), watches: map[uint32]func(Change){}}
	cl.open, cl.shut = context.WithCancel(context.Background())
	if _, err := cl.connected(ctx, nil); err != nil {
		return nil, ucs.Join(err, cl.Close())
	}
	return cl, nil
}

// Pauses between attempts to connect, and the timeout of an attempt.
const (
	connectPause = 10 * time.Millisecond
	connectLimit = 2 * time.Second
)

// connected returns a session other than failed, and connects if there is none. It blocks until then or until ctx is
// done, also while another goroutine connects.
func (cl *Client) connected(ctx context.Context, failed *session) (*session, error) {
	if s := cl.session.Load(); s != failed {
		return s, nil
	}
	select {
	case cl.connecting <- struct{}{}:
	case <-cl.open.Done():
		return nil, ucs.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-cl.connecting }()
	if s := cl.session.Load(); s != failed {
		return s, nil
	}
	if failed != nil {
		_ = failed.rpc.Close() // the error is that of the failed connection
	}
	for cl.open.Err() == nil {
		var errs []error
		for _, address := range cl.cfg.Addresses {
			s, err := cl.dial(ctx, address)
			if err == nil {
				cl.session.Store(s)
				return s, nil
			}
			errs = append(errs, err)
		}
		select {
		case <-time.After(connectPause):
		case <-cl.open.Done():
		case <-ctx.Done():
			return nil, ucs.Join(append(errs, ctx.Err())...)
		}
	}
	return nil, ucs.ErrClosed
}

// dial connects to a server. The ucprpc client does not reconnect, because a new connection could be to a server that
// does not serve.
func (cl *Client) dial(ctx context.Context, address string) (_ *session, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	defer context.AfterFunc(cl.open, cancel)()
	s := &session{cl: cl}
	rpc := ucprpc.ClientConfig{WaitConnected: time.Nanosecond}
	rpc.Handlers.Handle(methodChange, ucprpc.HandlerConfig{Inline: true}, cl.handleChange)
	s.rpc, err = ucprpc.Dial(ctx, cl.c, cl.cfg.Network, address, rpc)
	if err != nil {
		return nil, err
	}
	if err = s.start(ctx); err != nil {
		return nil, ucs.Join(fmt.Errorf("kvstore: %s: %w", address, err), s.rpc.Close())
	}
	return s, nil
}

// start opens the table of the server.
func (s *session) start(ctx context.Context) error {
	s.seen = sinceStart()
	reply, err := s.rpc.Call(ctx, methodInfo, nil, nil)
	if err != nil {
		return err
	}
	if err = json.Unmarshal(reply, &s.server); err != nil {
		return err
	}
	if s.server.Role != primary {
		return errNotPrimary
	}
	s.lease = s.server.Lease / 2 // tolerates clocks whose rates differ by up to a factor of 2
	s.until.Store(int64(s.seen + s.lease))
	if s.table, err = s.rpc.Open(ctx, s.server.ID); err != nil {
		return err
	}
	if h := s.server.shape; !h.valid() || uint64(h.len()) > s.table.Len() {
		return fmt.Errorf("a table of %d slots of %d bytes in %d bytes", h.Slots, h.SlotLen, s.table.Len())
	}
	_, err = s.moved(ctx, nil, 0)
	return err
}

// Get returns the value of a key: in buf, if buf has a capacity of SlotLen bytes or more, otherwise in new memory. Error:
// ErrNoKey if the store does not have the key.
func (cl *Client) Get(ctx context.Context, key string, buf []byte) ([]byte, error) {
	var failed *session
	var busy time.Duration
	for {
		s, err := cl.connected(ctx, failed)
		if err != nil {
			return nil, err
		}
		value, err := s.get(ctx, key, buf)
		switch {
		case isBusy(ctx, err):
			cl.pause(ctx, &busy)
		case s.hasFailed(ctx, err):
			failed = s
		default:
			return value, decodeError(err)
		}
	}
}

// SlotLen returns the length of a slot in bytes, which a lookup reads.
func (cl *Client) SlotLen() int { return cl.session.Load().server.SlotLen }

// Limits of a lookup by get. A lookup beyond them calls the server.
const (
	maxSearches = 8
	maxReads    = 32 // reads of slots in one search
)

// errCall means that the client must call the server for the lookup.
var errCall = errors.New("call the server")

func (s *session) get(ctx context.Context, key string, buf []byte) ([]byte, error) {
	if len(key) == 0 || len(key) > s.server.Key {
		return nil, ErrTooLong
	}
	if n := s.server.SlotLen; cap(buf) < n {
		buf = make([]byte, n)
	}
	for range maxSearches {
		moves := s.moves.Load()
		value, err := s.search(ctx, key, buf[:s.server.SlotLen])
		if (err == nil || err == ErrNoKey) && !s.hasLease(ctx) {
			break
		}
		if err == ErrNoKey {
			var moved bool
			if moved, err = s.moved(ctx, buf, moves); err != nil || !moved {
				return nil, cmp.Or(err, ErrNoKey)
			}
			s.cl.stats.Moved.Add(1)
			continue
		}
		if err != errCall {
			return value, err
		}
		break
	}
	s.cl.stats.Called.Add(1)
	return s.rpc.Call(ctx, methodGet, []byte(key), buf)
}

// search reads the slots that may contain the key. It may miss the key if keys move during the search.
func (s *session) search(ctx context.Context, key string, slot []byte) ([]byte, error) {
	h := s.server.shape
	for i, reads := home(key, h.Slots), 0; i < h.Slots+spareSlots; reads++ {
		if reads == maxReads {
			return nil, errCall
		}
		if err := s.table.Get(ctx, slot, uint64(h.offset(i))); err != nil {
			return nil, err
		}
		e, err := readSlot(slot)
		switch {
		case err != nil:
			s.cl.stats.Torn.Add(1) // read the slot again
		case string(e.key) == key:
			return e.value, nil
		case len(e.key) == 0:
			return nil, ErrNoKey
		default:
			i++
		}
	}
	return nil, ErrNoKey
}

// moved reports whether keys may have moved since s.moves had the value before.
func (s *session) moved(ctx context.Context, buf []byte, before uint64) (bool, error) {
	head := append(buf[:0], make([]byte, 8)...)
	if err := s.table.Get(ctx, head, headMoves); err != nil {
		return false, err
	}
	now := binary.LittleEndian.Uint64(head)
	s.moves.Store(now)
	return now != before || now%2 == 1, nil
}

// start is the time at which sinceStart is 0.
var start = time.Now()

func sinceStart() time.Duration { return time.Since(start) }

// hasLease reports whether the server is certainly still the primary. The table of a server may be readable after the
// server has exited and the backup has become the primary. But the backup waits for a lease, and a change of the beat
// counter shows that the server was alive after the start of the previous get of the header.
func (s *session) hasLease(ctx context.Context) bool {
	now := sinceStart()
	until := time.Duration(s.until.Load())
	if now > until-s.lease/2 && s.renewal.TryLock() {
		s.renew(ctx)
		s.renewal.Unlock()
		now, until = sinceStart(), time.Duration(s.until.Load())
	}
	return now < until
}

// renew reads the header, unless it has read it recently.
func (s *session) renew(ctx context.Context) {
	now, head := sinceStart(), make([]byte, 8)
	if now-s.seen < s.lease/16 {
		return
	}
	if s.table.Get(ctx, head, headBeat) != nil {
		return // the caller calls the server, which returns the error
	}
	if beat := binary.LittleEndian.Uint64(head); beat != s.beat {
		s.until.Store(int64(s.seen + s.lease))
		s.beat = beat
	}
	s.seen = now
}

// Put writes the value of a key. After Put has returned nil, each Get of any client returns that value or a later one.
// Error: ErrUnknown if the connection fails before the reply.
func (cl *Client) Put(ctx context.Context, key string, value []byte) error {
	if len(key) > MaxKey || len(value) > MaxValue {
		return ErrTooLong
	}
	return cl.update(ctx, methodPut, appendPut(make([]byte, 0, 2+len(key)+len(value)), key, value))
}

// Remove removes a key. Errors: ErrNoKey if the store does not have the key; ErrUnknown as for Put.
func (cl *Client) Remove(ctx context.Context, key string) error {
	return cl.update(ctx, methodRemove, []byte(key))
}

func (cl *Client) update(ctx context.Context, m ucprpc.Method, request []byte) error {
	err := cl.call(ctx, m, request)
	if ucprpc.CodeOf(err) == ucprpc.CodeLost {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// call calls the primary. If the connection fails before the request is sent, or m is idempotent, it calls the next
// primary. It repeats a call that the server rejected because of a limit.
func (cl *Client) call(ctx context.Context, m ucprpc.Method, request []byte) error {
	var failed *session
	var busy time.Duration
	for {
		s, err := cl.connected(ctx, failed)
		if err != nil {
			return err
		}
		_, err = s.rpc.Call(ctx, m, request, nil)
		switch {
		case isBusy(ctx, err):
			cl.pause(ctx, &busy)
		case s.hasFailed(ctx, err) && (ucprpc.CodeOf(err) != ucprpc.CodeLost || m.Idempotent):
			failed = s
		default:
			return decodeError(err)
		}
	}
}

// isBusy reports whether the server rejected an operation because of a limit, so that the client can repeat it.
func isBusy(ctx context.Context, err error) bool {
	return ctx.Err() == nil && ucprpc.CodeOf(err) == ucprpc.CodeBusy
}

// maxBusyPause is the maximum pause before the client repeats an operation that was rejected with CodeBusy.
const maxBusyPause = time.Second

// pause waits before the client repeats a rejected operation. It doubles *last up to maxBusyPause.
func (cl *Client) pause(ctx context.Context, last *time.Duration) {
	*last = min(max(2**last, time.Millisecond), maxBusyPause)
	select {
	case <-time.After(*last):
	case <-ctx.Done():
	case <-cl.open.Done():
	}
}

// hasFailed reports whether an error means that the session has failed and the client must connect again.
func (s *session) hasFailed(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	switch ucprpc.CodeOf(err) {
	case ucprpc.CodeLost, ucprpc.CodeUnavailable, ucprpc.CodeClosed, ucprpc.CodeDraining, ucprpc.CodeNoMemory, codeNotPrimary:
		return true
	}
	return false
}

// Stats returns the counters of the client.
func (cl *Client) Stats() *Stats { return &cl.stats }

// Close closes the client. Operations in progress fail.
func (cl *Client) Close() error {
	cl.shut()
	cl.connecting <- struct{}{} // waits for a goroutine that connects, which returns soon
	defer func() { <-cl.connecting }()
	s := cl.session.Load()
	if s == nil {
		return nil
	}
	return s.rpc.Close()
}
