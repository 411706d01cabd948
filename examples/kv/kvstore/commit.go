package kvstore

import (
	"encoding/binary"
	"errors"

	"github.com/gucx/gucx/ucp/ucprpc"
)

// update is an update of the table.
type update struct {
	entry
	remove bool
	call   *ucprpc.Call // replied to when the update was executed; nil at a backup
}

// commit writes an update to the log of the backup, then executes it here and then replies to the call, so that no client
// reads an update that can be lost. Updates that arrive during a write to the log are written together. commit does not
// block: the goroutine that progresses the server runs all steps.
func (s *Server) commit(u *update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, u)
	s.commitQueue()
}

// commitQueue starts to execute queued updates, unless others are in progress. The caller holds s.mu.
func (s *Server) commitQueue() {
	for len(s.queue) > 0 && len(s.batch) == 0 && s.holds == 0 && s.open.Err() == nil {
		f := s.backup
		if f != nil && !f.hasRoom() {
			return // called continues when the backup has replied
		}
		s.batch = s.nextBatch()
		switch {
		case len(s.batch) == 0:
		case f == nil:
			s.endBatch()
		default:
			f.begin()
			for _, u := range s.batch {
				f.record = appendUpdate(f.record, u)
			}
			if f.write(func(err error) { s.written(f, err) }) != nil {
				s.fail(f)
			}
		}
	}
}

// nextBatch removes updates from the queue, and rejects those that cannot be executed. An update that adds a key is the
// first of a batch, so that no other update of the batch uses its slot. The caller holds s.mu.
func (s *Server) nextBatch() (batch []*update) {
	n, size := 0, 0
	for _, u := range s.queue {
		_, found := s.table.find(u.key)
		adds := !u.remove && !found
		if n > 0 && (adds || size >= maxBatch) {
			break
		}
		n++
		switch {
		case s.role != primary:
			u.call.Finish(encodeError(errNotPrimary))
		case adds && !s.table.hasRoom(u.key):
			u.call.Finish(encodeError(ErrFull))
		default:
			s.updates++
			u.number = s.updates
			batch = append(batch, u)
			size += updateHead + len(u.key) + len(u.value)
		}
	}
	clear(s.queue[:n])
	s.queue = s.queue[n:]
	return batch
}

// endBatch executes the batch, which the backup has, or which needs no backup. The caller holds s.mu.
func (s *Server) endBatch() {
	for _, u := range s.batch {
		u.call.Finish(encodeError(s.apply(u)))
	}
	s.batch = nil
	s.idle.Broadcast()
}

// written is called when the put of the batch to the log of the backup has completed or failed.
func (s *Server) written(f *follower, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.backup != f || f.failed: // see dropBackup
	case err != nil:
		s.fail(f)
	default:
		s.endBatch()
		s.callBackup(f)
		s.commitQueue()
	}
}

// callBackup calls the backup to apply its log if a quarter of the log was written since the last call. The caller holds
// s.mu.
func (s *Server) callBackup(f *follower) {
	if f.failed || !f.mustCall() {
		return
	}
	f.calling, f.called = true, f.next.pos
	if f.peer.Start(methodApply, nil, f.reply[:], func(reply []byte, err error) { s.called(f, reply, err) }) != nil {
		s.fail(f)
	}
}

// called is called when the backup has applied its log, or the call has failed.
func (s *Server) called(f *follower, reply []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backup != f || f.failed {
		return
	}
	if err != nil || len(reply) != len(f.reply) {
		s.fail(f)
		return
	}
	f.calling, f.applied = false, min(binary.LittleEndian.Uint64(reply), f.next.pos)
	s.callBackup(f)
	s.commitQueue()
}

// hold stops updates until release is called, and waits until none is in progress. The callers of hold and release hold
// s.mu.
func (s *Server) hold() (release func()) {
	s.holds++
	for s.open.Err() == nil && (len(s.batch) > 0 || s.backup != nil && s.backup.failed) {
		s.idle.Wait()
	}
	return func() {
		s.holds--
		s.commitQueue()
	}
}

// setBackup replaces the backup. nil means none. The caller holds s.mu.
func (s *Server) setBackup(f *follower) {
	if s.backup != nil {
		close(s.backup.dropped)
	}
	s.backup = f
}

// fail stops updates until dropBackup knows whether the backup has exited. The caller holds s.mu.
func (s *Server) fail(f *follower) {
	f.failed = true
	if s.open.Err() != nil {
		return // Close fails the calls in progress
	}
	s.holds++
	s.closing.Go(s.dropBackup)
}

// dropBackup waits until the backup has exited or knows that it is out of sync, and then continues without the backup. If
// the server is closed first, the calls in progress fail with CodeLost, because the backup may have their updates.
func (s *Server) dropBackup() {
	for s.open.Err() == nil {
		other, err := s.callOther(s.info())
		if errors.Is(err, errNotListening) || err == nil && other.Role == syncing {
			break
		}
		s.pause(retryPause)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open.Err() != nil {
		return
	}
	s.setBackup(nil)
	s.endBatch()
	s.holds--
	s.commitQueue()
}
