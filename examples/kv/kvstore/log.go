package kvstore

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucprpc"
)

// A log is a ring of records in the memory of the backup, which the primary writes by puts without the backup's CPU. The
// backup has an update when its put is complete. The backup applies the records when the primary calls it, after each
// quarter of the log, and before the backup becomes the primary.
//
// Record, at a multiple of 16 bytes; all numbers are little endian:
//
//	 0  u32  checksum of the rest, up to the end of the updates
//	 4  u32  length of the updates in bytes
//	 8  u64  number of the record, from 1
//	16  updates: see appendUpdate
//
// If a record does not fit before the end of the log, the primary writes it at the beginning. The reader identifies it by
// its number, because records of earlier laps have lower numbers. The primary writes zeros after each record, in the place
// of the next header, so that the reader does not interpret data of an earlier lap as a record. A wrong checksum means
// that the primary is writing the record, or exited before the record was complete: its updates are not acknowledged.
const (
	logLen     = 1 << 20
	logAlign   = 16
	recordHead = 16

	recordSum    = 0
	recordLen    = 4
	recordNumber = 8
)

// maxBatch is the length in bytes of the updates of a record from which on no update is added; maxRecord is the maximum
// length of a record in bytes, with the zeros after it.
const (
	maxBatch  = 64 << 10
	maxRecord = recordHead + maxBatch + updateHead + MaxKey + MaxValue + logAlign + recordHead
)

// alignRecord rounds the length of a record up to a multiple of logAlign.
func alignRecord(n int) int { return (n + logAlign - 1) &^ (logAlign - 1) }

// place is the position after a record: the number of the record, and the number of bytes up to the position in all laps.
type place struct{ pos, number uint64 }

// offset returns the offset of the place in the memory of the log.
func (p place) offset() int { return int(p.pos % logLen) }

// logWriter is the primary's state of the log of the backup.
type logWriter struct {
	next   place
	record []byte // next record: space for the header, then updates
}

// begin starts a record. The caller appends updates to w.record and then calls end.
func (w *logWriter) begin() { w.record = append(w.record[:0], make([]byte, recordHead)...) }

// end completes the record and returns the bytes to write and their offset in the log.
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

// logReader is the backup's state of its log.
type logReader struct {
	log  *ucp.Mem
	mem  []byte // memory of log
	next place
	copy []byte // copy of a record, because the primary can change mem
}

// record returns the updates of the next record, or nil if there is none. The result is valid until the next call.
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

// read returns the updates of the record at a place, or nil if the record there does not have the next number.
func (r *logReader) read(at place) []byte {
	b := r.mem[at.offset():]
	r.copy = append(r.copy[:0], b[:recordHead]...) // in the log, because a place is a multiple of recordHead
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
	called  uint64 // position of the log at the last call of methodApply
	applied uint64 // position up to which the backup has applied the log
	reply   [8]byte
	calling bool          // methodApply is in progress
	failed  bool          // the backup lacks updates or has exited; dropBackup waits for evidence
	dropped chan struct{} // closed when the follower is no longer the backup
}

// hasRoom reports whether the log has space for a record of maximum length.
func (f *follower) hasRoom() bool { return f.next.pos+2*maxRecord <= f.applied+logLen }

// mustCall reports whether the backup must apply its log.
func (f *follower) mustCall() bool { return !f.calling && f.next.pos-f.called >= logLen/4 }

// write starts the put of the record. It calls done when the put has completed or failed.
func (f *follower) write(done func(error)) error {
	b, offset := f.end()
	return f.log.StartPut(b, uint64(offset), done)
}
