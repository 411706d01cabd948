package kvstore

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/gucx/gucx/ucp/ucprpc"
)

// methodWatch makes the server send a methodChange, a one-way message, for each change of a key with a prefix. The request
// is a number that the client chooses (u32) and the prefix. The server replies when the watch ends. The message is the
// number, flags (u8) and the key.
var (
	methodWatch  = ucprpc.Method{Number: 5, Idempotent: true}
	methodChange = ucprpc.Method{Number: 6}
)

const (
	watchHead   = 4
	changeHead  = 5
	flagRemoved = 1
	flagMissed  = 2
)

// Change is a change of a key, without the value: see [Client.Get].
type Change struct {
	Key     string
	Removed bool
	// Missed means that changes before this one may not have been reported; Key is then empty. The first Change of a
	// watch has Missed, as does the first after the client has reconnected, or after keys changed faster than the client
	// received.
	Missed bool
}

// maxWatches and maxPeerWatches are the maximum numbers of watches of a server and of one client. Each watch occupies one
// call of the server.
const (
	maxWatches     = 1024 // less than ucprpc.Limits.MaxCalls
	maxPeerWatches = 16
)

// maxPending is the maximum number of changes that the server stores for a watch.
const maxPending = 256

// watch is a watch at the server.
type watch struct {
	peer    *ucprpc.Peer
	prefix  string
	wake    chan struct{} // capacity 1
	pending []Change      // at most maxPending; under Server.mu
	missed  bool          // pending was full; under Server.mu
}

// handleWatch sends changes until the client disconnects or ends the watch. A client that does not receive blocks only
// the goroutines of its own watches, at most maxPeerWatches.
func (s *Server) handleWatch(c *ucprpc.Call) error {
	if len(c.Data) < watchHead || len(c.Data) > watchHead+MaxKey {
		return ErrTooLong
	}
	w := &watch{peer: c.Peer(), prefix: string(c.Data[watchHead:]), wake: make(chan struct{}, 1), missed: true}
	w.wake <- struct{}{}
	if err := s.addWatch(w); err != nil {
		return err
	}
	defer func() {
		s.mu.Lock()
		delete(s.watches, w)
		s.mu.Unlock()
	}()
	ctx, message := c.Context(), append([]byte(nil), c.Data[:watchHead]...)
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.mu.Lock()
		pending, missed := w.pending, w.missed
		w.pending, w.missed = nil, false
		s.mu.Unlock()
		if missed {
			pending = append(pending, Change{Missed: true})
		}
		for _, change := range pending {
			message = appendChange(message[:watchHead], change)
			if err := c.Peer().Send(ctx, methodChange, message); err != nil {
				return err
			}
		}
	}
}

// addWatch adds a watch. It returns an error if the server does not serve or has reached a limit.
func (s *Server) addWatch(w *watch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role != primary {
		return errNotPrimary
	}
	n := 0
	for other := range s.watches {
		if other.peer == w.peer {
			n++
		}
	}
	if len(s.watches) >= maxWatches || n >= maxPeerWatches {
		return &ucprpc.Error{Code: ucprpc.CodeBusy, Text: "too many watches"}
	}
	s.watches[w] = true
	return nil
}

// report reports a change to all watches. The caller holds s.mu.
func (s *Server) report(key []byte, removed bool) {
	for w := range s.watches {
		switch {
		case !strings.HasPrefix(string(key), w.prefix):
			continue
		case len(w.pending) < maxPending && !w.missed:
			w.pending = append(w.pending, Change{Key: string(key), Removed: removed})
		default:
			w.missed = true
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// appendChange appends flags and key to the number of a watch.
func appendChange(b []byte, c Change) []byte {
	flags := byte(0)
	if c.Removed {
		flags |= flagRemoved
	}
	if c.Missed {
		flags |= flagMissed
	}
	return append(append(b, flags), c.Key...)
}

// Watch calls f for each change of a key with prefix until ctx is done. After a failed connection it watches at the next
// primary. It waits while the server has the maximum number of watches: 16 of a client, or 1,024 of all. f runs on a
// goroutine that progresses the connection: it must return soon and must not use cl.
func (cl *Client) Watch(ctx context.Context, prefix string, f func(Change)) error {
	if len(prefix) > MaxKey {
		return ErrTooLong
	}
	cl.watching.Lock()
	cl.watchNumber++
	number := cl.watchNumber
	cl.watches[number] = f
	cl.watching.Unlock()
	defer func() {
		cl.watching.Lock()
		delete(cl.watches, number)
		cl.watching.Unlock()
	}()
	return cl.call(ctx, methodWatch, append(binary.LittleEndian.AppendUint32(nil, number), prefix...))
}

// handleChange passes a message, which may be malformed, to its watch.
func (cl *Client) handleChange(c *ucprpc.Call) error {
	if len(c.Data) < changeHead {
		return ErrTooLong
	}
	cl.watching.Lock()
	f := cl.watches[binary.LittleEndian.Uint32(c.Data)]
	cl.watching.Unlock()
	if f != nil {
		flags := c.Data[watchHead]
		f(Change{Key: string(c.Data[changeHead:]), Removed: flags&flagRemoved != 0, Missed: flags&flagMissed != 0})
	}
	return nil
}
