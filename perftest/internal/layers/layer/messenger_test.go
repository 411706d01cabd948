package layer

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/measure/pattern"
)

// memMessenger is a Messenger whose messages wait at the other side until that side makes progress. It
// has no room for every second message. Progress of the initiator also makes the target progress.
type memMessenger struct {
	spec    Spec
	in      *Inbox
	note    *Note
	peer    *memMessenger
	arrived []func() // arrived and not yet handled
	calls   int
	before  func() error // of Progress
	failed  error
}

func (s *memMessenger) room() bool {
	s.calls++
	return s.calls%2 == 0
}

func (s *memMessenger) Send(number uint64) (bool, error) {
	if !s.room() {
		return false, s.failed
	}
	b := make([]byte, s.spec.Size)
	pattern.Fill(b, s.spec.Seed)
	PutNumber(b, number)
	s.peer.arrived = append(s.peer.arrived, func() { s.peer.in.Receive(b) })
	return true, nil
}

func (s *memMessenger) SendNote(v uint64) (bool, error) {
	if !s.room() {
		return false, s.failed
	}
	b := binary.LittleEndian.AppendUint64(nil, v)
	s.peer.arrived = append(s.peer.arrived, func() { s.peer.note.Receive(b) })
	return true, nil
}

func (s *memMessenger) Progress() (int, error) {
	if err := s.before(); err != nil {
		return 0, err
	}
	if len(s.arrived) == 0 {
		return 0, s.failed
	}
	s.arrived[0]()
	s.arrived = s.arrived[1:]
	return 1, nil
}

func (s *memMessenger) Drained() bool { return true }

// messagePair returns an operation and the part of the target.
func messagePair(spec Spec) (Op, Part, *memMessenger) {
	a, b := &memMessenger{spec: spec, note: &Note{}}, &memMessenger{spec: spec, note: &Note{}}
	a.peer, b.peer = b, a
	for _, s := range []*memMessenger{a, b} {
		in := NewInbox(spec)
		s.in = &in
	}
	op := NewMessageOp(a, spec, a.in, a.note, Idle{Context: context.Background()}, false)
	part := NewMessagePart(b, spec, b.in, b.note)
	b.before = func() error { return nil }
	a.before = func() error {
		_, err := part.Progress()
		return err
	}
	return op, part, a
}

func TestMessenger_DeliversEachMessageOnce(t *testing.T) {
	for _, kind := range []Kind{AM, AMPing, Tag, TagPing, Stream, StreamPing} {
		for _, window := range []int{1, 2, 7} {
			spec := Spec{Kind: kind, Size: 20, Window: window, Seed: 5, Thorough: true}
			op, part, _ := messagePair(spec)
			const ops = 3 * 7
			for i := range ops {
				require.NoError(t, op.Post())
				if !kind.OneWay() || i%5 == 4 || i == ops-1 {
					require.NoError(t, op.Flush())
				}
			}
			n, err := part.Finish()
			require.NoError(t, err)
			assert.EqualValues(t, ops, n, "%v, window %d", kind, window)
			assert.Zero(t, op.Result())
		}
	}
}

func TestMessenger_WindowLimitsOutstandingMessages(t *testing.T) {
	op, _, near := messagePair(Spec{Kind: AM, Size: 8, Window: 4})
	for range 4 {
		require.NoError(t, op.Post())
	}
	why := errors.New("the target does nothing")
	near.before = func() error { return why }
	assert.ErrorIs(t, op.Post(), why, "the fifth message must wait for an acknowledgement")
}

func TestMessenger_FailureEndsWait(t *testing.T) {
	for _, kind := range []Kind{AM, AMPing} {
		op, _, near := messagePair(Spec{Kind: kind, Size: 8, Window: 4})
		require.NoError(t, op.Post())
		near.failed = errors.New("broken")
		near.before = func() error { return nil }
		assert.ErrorIs(t, op.Flush(), near.failed)
	}
}

func TestMessenger_LoopbackReceivesOwnMessages(t *testing.T) {
	spec := Spec{Kind: AM, Size: 8, Window: 4}
	in := NewInbox(spec)
	s := &memMessenger{spec: spec, in: &in, note: &Note{}, before: func() error { return nil }}
	s.peer = s
	op := NewMessageOp(s, spec, s.in, s.note, Idle{}, true)
	for range 10 {
		require.NoError(t, op.Post())
	}
	require.NoError(t, op.Flush())
	assert.EqualValues(t, 10, in.Count)
}

func TestNote_RejectsOtherLengths(t *testing.T) {
	n := &Note{}
	n.Receive(binary.LittleEndian.AppendUint64(nil, 9))
	assert.EqualValues(t, 9, n.Value)
	n.Receive(make([]byte, 7))
	assert.ErrorIs(t, n.Err, ErrData)
	assert.EqualValues(t, 9, n.Value)
}
