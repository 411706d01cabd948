package kvstore

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucprpc"
)

// A log is memory of the backup, a ring of records that the primary writes by puts: an update is with the backup when its
// put is complete, without the backup's CPU. The backup applies the records when the primary calls it, each time when a
// quarter of the log was written, and before it becomes the primary.
//
// Record, at a multiple of 16 bytes; all numbers are little endian:
//
//	 0  u32  checksum of the rest, up to the end of the updates
//	 4  u32  length of the updates in bytes
//	 8  u64  number of the record, from 1
//	16  updates: see appendUpdate
//
// A record that does not fit before the end of the log is at its beginning, where the reader finds it by its number: the
// records there of earlier laps have lower ones. Behind a record are zeros for the head of the next one, so that no value of
// an earlier lap is read as a record. A wrong checksum means that the primary is writing the record, or has ended before
// it was complete: no client has an acknowledgment of its updates.
const (
	logLen     = 1 << 20
	logAlign   = 16
	recordHead = 16

	recordSum    = 0
	recordLen    = 4
	recordNumber = 8
)

// maxBatch is the length of the updates of a record in bytes, at which no further one is added; maxRecord is that of the
// longest record, with the zeros behind it.
const (
	maxBatch  = 64 << 10
	maxRecord = recordHead + maxBatch + updateHead + MaxKey + MaxValue + logAlign + recordHead
)

// alignRecord rounds the length of a record up.
func alignRecord(n int) int { return (n + logAlign - 1) &^ (logAlign - 1) }

// place is a position in a log, behind a record: the number of that, and the bytes up to here in all laps.
type place struct{ pos, number uint64 }

// offset is where the place is in the memory of the log.
func (p place) offset() int { return int(p.pos % logLen) }

// logWriter is the log of the backup, as the primary writes it.
type logWriter struct {
	next   place
	record []byte // that is being written: updates behind room for the head
}

// begin begins a record. Append updates to w.record, then call end.
func (w *logWriter) begin() { w.record = append(w.record[:0], make([]byte, recordHead)...) }

// end returns what must be written at which offset of the log.
func (w *logWriter) end() (b []byte, offset int) {
	n := len(w.record)
	if left := logLen - w.next.offset(); n > left {
		w.next.pos += uint64(left)
	}
	w.next.number++
	offset = w.next.offset()
	w.next.pos += uint64(alignRecord(n))

	binary.LittleEndian.PutUint32(w.record[recordLen:], uint32(n-recordHead))
	binary.LittleEndian.PutUint64(w.record[recordNumber:], w.next.number)
	binary.LittleEndian.PutUint32(w.record[recordSum:], crc32.Checksum(w.record[recordLen:], castagnoli))
	w.record = append(w.record, make([]byte, alignRecord(n)-n+recordHead)...)
	return w.record[:min(len(w.record), logLen-offset)], offset
}

// logReader is the log of a backup, as the backup reads it.
type logReader struct {
	log  *ucp.Mem
	mem  []byte // of log
	next place
	copy []byte // of a record: the primary can change mem
}

// record returns the updates of the next record, until the next call; nil if there is none.
func (r *logReader) record() []byte {
	at := r.next
	updates := r.read(at)
	if updates == nil {
		at.pos += uint64(logLen - at.offset())
		updates = r.read(at)
	}
	if updates != nil {
		r.next = place{pos: at.pos + uint64(alignRecord(recordHead+len(updates))), number: at.number + 1}
	}
	return updates
}

// read returns the updates of the record at a place; nil if the record with the next number is not there.
func (r *logReader) read(at place) []byte {
	b := r.mem[at.offset():]
	r.copy = append(r.copy[:0], b[:recordHead]...) // not beyond the end: a place is a multiple of it
	n := int(binary.LittleEndian.Uint32(r.copy[recordLen:]))
	if binary.LittleEndian.Uint64(r.copy[recordNumber:]) != at.number+1 || n > min(len(b), maxRecord)-recordHead {
		return nil
	}
	r.copy = append(r.copy, b[recordHead:recordHead+n]...)
	if binary.LittleEndian.Uint32(r.copy) != crc32.Checksum(r.copy[recordLen:], castagnoli) {
		return nil
	}
	return r.copy[recordHead:]
}

// follower is the backup of a primary. The primary uses it under Server.mu.
type follower struct {
	peer *ucprpc.Peer
	log  *ucprpc.Memory
	logWriter
	called  uint64 // position of the log when methodApply was last called
	applied uint64 // up to here the backup has applied the log
	reply   [8]byte
	calling bool          // methodApply is in progress
	failed  bool          // it lacks updates, or has ended: dropBackup finds out
	dropped chan struct{} // closed when it is not the backup any more
}

// hasRoom reports whether any record fits in the log.
func (f *follower) hasRoom() bool { return f.next.pos+2*maxRecord <= f.applied+logLen }

// mustCall reports whether the backup must apply its log.
func (f *follower) mustCall() bool { return !f.calling && f.next.pos-f.called >= logLen/4 }

// write begins to write the record. done is called when the backup has it.
func (f *follower) write(done func(error)) error {
	b, offset := f.end()
	return f.log.StartPut(b, uint64(offset), done)
}
