package ucplayer

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
)

// exchange is the common part of all types of messages: sends, and notes, which are active messages. While a send is
// outstanding its buffer is in use, so later messages have the same number.
type exchange struct {
	op
	in      *layer.Inbox
	note    *layer.Note
	post    func() (*ucp.Request, error) // sends the buffer
	sends   requests
	written bool // the data is written to the buffer before each message, which otherwise contains it already

	noteOut  [layer.NoteLen]byte
	noteSend *ucp.Request // of the latest note, while it is outstanding
	noteIn   [layer.NoteLen]byte
	noteRecv *ucp.Request // of a note received by RTS
}

// init prepares for messages of s, with at most one window outstanding. in and note receive the data of the peer.
func (x *exchange) init(o op, s layer.Spec, in *layer.Inbox, note *layer.Note) {
	*x = exchange{op: o, in: in, note: note, sends: newRequests(s.Window), written: s.Written}
	o.worker.OnActive(idNote, x.onNote)
}

// onNote receives a note. A peer without credit sends an RTS for a note. The data of such a note and the next eager
// note may arrive in one call of Progress. So onNote takes the earlier note first: the latest value counts.
func (x *exchange) onNote(a *ucp.ActiveMessage) {
	if x.noteRecv != nil {
		x.finishNote()
	}
	if a.Length == len(a.Data) {
		x.note.Receive(a.Data)
		return
	}
	r, err := a.Recv(x.noteIn[:], nil)
	switch {
	case err != nil || x.noteRecv != nil:
		x.failed = errors.Join(err, fmt.Errorf("%w: a note that did not come whole", layer.ErrData))
	case r != nil:
		x.noteRecv = r
	default:
		x.note.Receive(x.noteIn[:])
	}
}

// Send implements layer.Messenger.
func (x *exchange) Send(number uint64) (bool, error) {
	if !x.sends.empty() && !x.room() {
		return false, nil
	}
	if x.sends.empty() {
		if x.written {
			x.in.Fill(x.buf)
		}
		layer.PutNumber(x.buf, number)
	}
	r, err := x.post()
	if r != nil {
		x.sends.add(r)
	}
	return err == nil, err
}

// room releases completed sends, and reports whether another send may be posted.
func (x *exchange) room() bool {
	x.sends.reap()
	return !x.sends.full()
}

// SendNote implements layer.Messenger. It returns false while the latest note is outstanding.
func (x *exchange) SendNote(v uint64) (_ bool, err error) {
	if x.noteSend != nil {
		if !x.noteSend.Done() {
			return false, nil
		}
		x.noteSend.Release()
	}
	binary.LittleEndian.PutUint64(x.noteOut[:], v)
	x.noteSend, err = x.ep.SendActive(idNote, nil, x.noteOut[:], nil)
	return err == nil, err
}

// after ends a Progress with n events: it takes a note received by RTS, and returns the failure if there were no events.
func (x *exchange) after(n int) error {
	if x.noteRecv != nil {
		x.finishNote()
	}
	if n > 0 {
		return nil
	}
	return x.failed
}

// finishNote takes the note received by RTS when its data has arrived.
func (x *exchange) finishNote() {
	if x.noteRecv.Done() {
		x.noteRecv.Release()
		x.noteRecv = nil
		x.note.Receive(x.noteIn[:])
	}
}

// Drained implements layer.Messenger.
func (x *exchange) Drained() bool {
	x.sends.reap()
	return x.sends.empty()
}
