package kvstore

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// TestLog_Model: a reader gets the records in order, over several laps, also if it looks while a part of one was written.
func TestLog_Model(t *testing.T) {
	var w logWriter
	r := &logReader{mem: make([]byte, logLen)}
	var unread [][]byte
	read := func() {
		got := r.record()
		require.NotNil(t, got)
		require.Equal(t, unread[0], got)
		unread = unread[1:]
	}
	lengths := []int{updateHead + 1, 100, 3, 16, maxBatch, maxBatch + updateHead + MaxKey + MaxValue}
	for laps := uint64(testenv.Rounds(20, 1000)); w.next.pos < laps*logLen; {
		for w.next.pos+2*maxRecord > r.next.pos+logLen || len(unread) > 0 && rand.N(3) == 0 {
			read()
		}
		updates := make([]byte, lengths[rand.N(len(lengths))])
		for i := range updates {
			updates[i] = byte(1 + rand.N(255))
		}
		w.begin()
		w.record = append(w.record, updates...)
		b, offset := w.end()
		copy(r.mem[offset:], b[:rand.N(recordHead+len(updates))])
		for len(unread) > 0 && rand.N(2) == 0 {
			read()
		}
		if whole := b[:recordHead+len(updates)]; len(unread) == 0 && !bytes.HasPrefix(r.mem[offset:], whole) {
			require.Nil(t, r.record(), "a part of a record")
		}
		copy(r.mem[offset:], b)
		unread = append(unread, updates)
	}
}

// TestLog_OldValue: a value that looks like the next record is not taken for it in a later lap.
func TestLog_OldValue(t *testing.T) {
	const small = recordHead // bytes of updates
	var forger logWriter
	w := logWriter{}
	r := &logReader{mem: make([]byte, logLen)}
	write := func(updates []byte) {
		w.begin()
		w.record = append(w.record, updates...)
		b, offset := w.end()
		copy(r.mem[offset:], b)
		require.Equal(t, updates, r.record())
	}
	// The first record has, where the second lap has its second record, the one that is expected there.
	const lap = logLen/(recordHead+maxBatch) + 1 // records
	forger.next.number = lap + 1
	forger.begin()
	forger.record = append(forger.record, "forged"...)
	forged, _ := forger.end()
	first := make([]byte, maxBatch)
	copy(first[small:], forged)
	write(first)
	for range lap - 2 {
		write(make([]byte, maxBatch))
	}
	write(make([]byte, logLen-w.next.offset()-recordHead)) // up to the end
	write(make([]byte, small))
	require.Equal(t, place{pos: logLen + recordHead + small, number: lap + 1}, r.next)
	require.Nil(t, r.record())
}
