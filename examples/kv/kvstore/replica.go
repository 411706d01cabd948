package kvstore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/gucx/gucx/ucp/ucprpc"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Two servers are replicas: the primary, which serves, and its backup, which has each update before the client receives
// the reply.
//
//	backup                                primary
//	connects, methodJoin              ->  opens the log of the backup
//	                                  <-  from now on puts updates to the log before it applies them
//	reads the table of the primary
//	is in sync, methodFollow          ->  replies when it has dropped this backup
//	applies the log                   <-  methodApply, from time to time
//
// A server continues without the other one only if the other one has certainly exited: if the host of its address refuses
// the connection, if the path of its socket does not exist, or if another start of it replies. A failed connection or a
// missing reply is no evidence: the server waits. So there are never two primaries, but the failure of a host stops the
// store.
//
//   - If the primary has exited, a backup in sync waits for a lease, applies the rest of the log and becomes the primary.
//     It waits because clients may read from the table of a primary for almost a lease after they last knew that the
//     primary was alive.
//   - If the backup has exited, or knows that it is out of sync, the primary continues without it.
//   - A server that starts has an empty table and becomes a backup. It does not serve before it is in sync. With
//     Config.New it becomes the primary if the other one has no updates either, but not after it has tried to follow a
//     primary, which may have had updates. If both have Config.New, the one with the lower ID becomes the primary.
//   - A primary accepts only the server at Config.Other as its backup.
var (
	methodJoin   = ucprpc.Method{Number: 7} // info in JSON -> info in JSON
	methodApply  = ucprpc.Method{Number: 8} // -> position up to which the backup has applied the log (u64)
	methodFollow = ucprpc.Method{Number: 9}
)

// role is the role of a server.
type role string

const (
	syncing role = "syncing" // its table lacks updates
	backup  role = "backup"  // its table and log have all updates
	primary role = "primary" // serves clients
)

// errNotListening is the error if no server listens at an address: the previous server has exited.
var errNotListening = errors.New("kvstore: no server listens there")

// errOther is the error for a server that joins and is not the one at Config.Other. The primary could not detect later
// that such a backup has exited.
var errOther = errors.New("kvstore: the primary has another server as its replica")

// handleJoin makes the caller the backup. A caller that was the backup over an earlier connection must sync again.
func (s *Server) handleJoin(c *ucprpc.Call) (err error) {
	var joins info
	if err := json.Unmarshal(c.Data, &joins); err != nil {
		return err
	}
	if s.cfg.Other == "" {
		return errOther
	}
	if other, err := s.callOther(info{}); err != nil || other.ID != joins.ID {
		return ucs.Join(errOther, err)
	}
	log, err := c.Peer().Open(c.Context(), logName)
	if err != nil {
		return err
	}
	if log.Len() < logLen {
		return fmt.Errorf("a log of %d bytes", log.Len())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.hold()()
	switch me := s.infoLocked(); {
	case s.open.Err() != nil:
		return ucs.ErrClosed
	case me.Role != primary:
		return errNotPrimary
	case joins.shape != me.shape || joins.Key != me.Key || joins.Value != me.Value:
		return fmt.Errorf("a table of %d slots of %d bytes: the primary has %d of %d", joins.Slots, joins.SlotLen, me.Slots, me.SlotLen)
	case joins.Lease != me.Lease:
		return fmt.Errorf("a lease of %v: the primary has %v", joins.Lease, me.Lease)
	}
	s.setBackup(&follower{peer: c.Peer(), log: log, dropped: make(chan struct{})})
	return nil
}

// handleFollow replies when the caller is no longer the backup.
func (s *Server) handleFollow(c *ucprpc.Call) error {
	s.mu.Lock()
	f := s.backup
	s.mu.Unlock()
	if f == nil || f.peer != c.Peer() {
		return errDropped
	}
	select {
	case <-f.dropped:
	case <-c.Context().Done():
	}
	return errDropped
}

// errDropped means that the primary continues without the backup.
var errDropped = errors.New("kvstore: the primary has dropped the backup")

// Pauses and timeouts of replicate.
const (
	retryPause = 10 * time.Millisecond
	callLimit  = 2 * time.Second
)

// replicate runs the server as a backup until it becomes the primary or is closed.
func (s *Server) replicate() {
	for s.open.Err() == nil {
		s.mu.Lock()
		asked := s.syncingCalls
		s.mu.Unlock()
		other, err := s.callOther(s.info())
		ended := errors.Is(err, errNotListening)
		s.mu.Lock()
		role, followed := s.role, s.followed
		s.mu.Unlock()
		switch {
		case role == backup && (ended || err == nil && other.ID != followed):
			s.pause(s.cfg.Lease)
			if s.open.Err() != nil || s.takeOver() {
				return
			}
		case role == syncing && s.cfg.New && followed == "" && err == nil && s.precedes(other):
			s.lead()
			return
		case role == syncing && s.cfg.New && followed == "" && ended && s.leadUnlessCalled(asked):
			return
		case err == nil && other.Role == primary:
			err = s.follow(other.ID)
		case err == nil:
			err = fmt.Errorf("kvstore: no primary: the other server is %s", other.Role)
		}
		s.setWhy(err)
		s.pause(retryPause)
	}
}

// callOther returns the info of the other server. Error: errNotListening if no process listens at its address. If me is the
// info of a primary, the other server then knows that it is not the backup of this one.
func (s *Server) callOther(me info) (other info, err error) {
	ctx, cancel := context.WithTimeout(s.open, callLimit)
	defer cancel()
	rpc, err := ucprpc.Dial(ctx, s.c, s.cfg.Network, s.cfg.Other, ucprpc.ClientConfig{})
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return other, fmt.Errorf("%w: %w", errNotListening, err)
	case err != nil:
		return other, err
	}
	defer rpc.Close()
	request, err := json.Marshal(me)
	if err != nil {
		return other, err
	}
	reply, err := rpc.Call(ctx, methodInfo, request, nil)
	if err == nil {
		err = json.Unmarshal(reply, &other)
	}
	return other, err
}

// precedes reports whether this server, which has New, becomes the primary if neither server has updates.
func (s *Server) precedes(other info) bool {
	return other.Role == syncing && (!other.New || s.id < other.ID)
}

// leadUnlessCalled makes the server the primary, unless another server with New has called since
// syncingCalls had the given value: that server listens now, and may be the primary.
func (s *Server) leadUnlessCalled(asked int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.syncingCalls != asked {
		return false
	}
	s.leadLocked()
	return true
}

// takeOver makes a backup the primary after its primary has exited. It applies the rest of the log, which no longer changes.
// It returns false if it cannot apply the log.
func (s *Server) takeOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.applyLog() != nil {
		return false
	}
	s.leadLocked()
	return true
}

// lead makes the server the primary.
func (s *Server) lead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leadLocked()
}

// leadLocked is lead. The caller holds s.mu.
func (s *Server) leadLocked() {
	s.role = primary
	s.closing.Go(s.beat)
	_ = s.rpc.Publish(s.id, s.mem) // fails only for nil memory
}

// follow runs the server as a backup of the primary with the given ID until the connection fails.
func (s *Server) follow(id string) error {
	ctx, cancel := context.WithCancel(s.open)
	defer cancel()
	stay, err := s.beginSync(id)
	if err != nil {
		return err
	}
	var cfg ucprpc.ClientConfig
	cfg.WaitConnected = time.Nanosecond
	cfg.Handlers.Handle(methodApply, ucprpc.HandlerConfig{Inline: true}, func(c *ucprpc.Call) error { return s.handleApply(stay, c) })
	rpc, err := ucprpc.Dial(ctx, s.c, s.cfg.Network, s.cfg.Other, cfg)
	if err != nil {
		return err
	}
	defer rpc.Close()
	if err := rpc.Publish(logName, s.log.log); err != nil {
		return err
	}
	me, err := json.Marshal(s.info())
	if err != nil {
		return err
	}
	if _, err := rpc.Call(ctx, methodJoin, me, nil); err != nil {
		return err
	}
	table, err := rpc.Open(ctx, id)
	if err != nil {
		return err
	}
	if err := s.copyTable(ctx, table); err != nil {
		return err
	}
	if !s.inSync(stay) {
		return errDropped
	}
	_, err = rpc.Call(ctx, methodFollow, nil, nil)
	return err
}

// logName is the name of the log of a backup.
const logName = "log"

// beginSync clears the table and allocates a new log, because a primary may still write to the previous log. It returns
// the new backupEpoch.
func (s *Server) beginSync(primary string) (stay int, err error) {
	mem, err := s.c.MemAllocAccess(logLen, uct.AccessRemoteWrite)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role, s.followed, s.updates = syncing, primary, 0
	s.backupEpoch++
	s.table.clear()
	s.removed = map[string]uint64{}
	err = s.closeLog()
	s.log = &logReader{log: mem, mem: mem.Bytes()}
	return s.backupEpoch, err
}

// closeLog frees the log. The caller holds s.mu.
func (s *Server) closeLog() error {
	if s.log == nil {
		return nil
	}
	log := s.log
	s.log = nil
	return log.log.Close()
}

// inSync sets the role to backup, unless the primary has dropped the server since beginSync returned the epoch stay.
func (s *Server) inSync(stay int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backupEpoch != stay {
		return false
	}
	s.role, s.removed = backup, nil
	return true
}

// copyTable copies the table of the primary, which may change during the copy. Keys move only to lower slots, so a reader
// that starts with the last slot misses no key.
func (s *Server) copyTable(ctx context.Context, from *ucprpc.Memory) error {
	slot := make([]byte, s.table.SlotLen)
	for i := s.table.end() - 1; i >= 0; {
		if err := from.Get(ctx, slot, uint64(s.table.offset(i))); err != nil {
			return err
		}
		e, err := readSlot(slot)
		if err != nil {
			continue // the primary was writing the slot
		}
		if len(e.key) > 0 {
			if err := s.copyEntry(e); err != nil {
				return err
			}
		}
		i--
	}
	return nil
}

// copyEntry adds an entry of the primary's table, unless this server has a later update of the key.
func (s *Server) copyEntry(e entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.applyLog(); err != nil {
		return err
	}
	if i, found := s.table.find(e.key); s.removed[string(e.key)] > e.number || found && s.table.at(i).number >= e.number {
		return nil
	}
	if !s.table.hasRoom(e.key) {
		return ErrFull
	}
	s.table.put(e)
	s.updates = max(s.updates, e.number)
	return nil
}

// handleApply applies the log.
func (s *Server) handleApply(stay int, c *ucprpc.Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backupEpoch != stay {
		return errDropped
	}
	if err := s.applyLog(); err != nil {
		return err
	}
	c.Reply = binary.LittleEndian.AppendUint64(c.Reply, s.log.next.pos)
	return nil
}

// applyLog executes the updates in the log. If that fails, the backup is out of sync. The caller holds s.mu.
func (s *Server) applyLog() error {
	if s.log == nil {
		return nil
	}
	for message := s.log.record(); message != nil; message = s.log.record() {
		if err := s.applyRecord(message); err != nil {
			s.role = syncing
			s.backupEpoch++
			return err
		}
	}
	return nil
}

// applyRecord executes the updates of a record, which may be malformed.
func (s *Server) applyRecord(message []byte) error {
	for len(message) > 0 {
		u, rest, ok := cutUpdate(message)
		if !ok || len(u.key) == 0 || len(u.key) > s.cfg.Key || len(u.value) > s.cfg.Value || !u.remove && !s.table.hasRoom(u.key) {
			return ErrTooLong
		}
		if s.role == syncing && u.remove {
			s.removed[string(u.key)] = u.number
		}
		_ = s.apply(u) // the primary reports ErrNoKey to its caller
		s.updates, message = u.number, rest
	}
	return nil
}

// updateHead is the length in bytes of the header of an update: number (u64), 1 if the update removes the key (u8),
// length of the key (u16) and of the value (u16).
const updateHead = 13

func appendUpdate(b []byte, u *update) []byte {
	b = binary.LittleEndian.AppendUint64(b, u.number)
	removes := byte(0)
	if u.remove {
		removes = 1
	}
	b = binary.LittleEndian.AppendUint16(append(b, removes), uint16(len(u.key)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(u.value)))
	return append(append(b, u.key...), u.value...)
}

// cutUpdate parses the first update of a message, which may be malformed, and returns the rest of the message.
func cutUpdate(b []byte) (u *update, rest []byte, ok bool) {
	if len(b) < updateHead {
		return nil, nil, false
	}
	k, v := int(binary.LittleEndian.Uint16(b[9:])), int(binary.LittleEndian.Uint16(b[11:]))
	if len(b) < updateHead+k+v {
		return nil, nil, false
	}
	u = &update{remove: b[8] == 1}
	u.number = binary.LittleEndian.Uint64(b)
	b = b[updateHead:]
	u.key, u.value = b[:k], b[k:k+v]
	return u, b[k+v:], true
}
