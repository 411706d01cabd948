// Package window computes the credit of a connection for messages.
//
// Credit limits the bytes of messages that a peer has sent and that were not received. Each message is charged its data
// and the cost of its record, and the charge is returned when the message is received. A Window tracks both sides of a
// connection: the credit that the peer granted us, and the credit that we granted the peer. See
// docs/design/0010-limits.md.
package window

import "math"

const (
	// Least is the minimum window of each connection, in bytes. Both sides know it. With its reserve, and
	// minus credit that the receiver has not returned yet, it has room for the longest header of an active message.
	Least = 2304
	// MaxReserve is the maximum reserve of a window, in bytes: 40 RTS.
	MaxReserve = 16 << 10
	// MessageCharge is the charge for each message in addition to its data, in bytes: its record and the smallest
	// buffer. A buffer is at most twice as long as its data.
	MessageCharge = 400
	// LongestHeader is the maximum header of an active message for which every window has room, in bytes.
	LongestHeader = 2 << 10
)

// Charge returns the charge of a message of n bytes, in bytes.
func Charge(n int) int64 { return int64(n) + MessageCharge }

// Reserve returns the reserve of a window of size bytes: credit in addition to the window that only RTS may use.
func Reserve(size int64) int64 { return min(size/3, MaxReserve) }

// Beyond returns how many bytes a window of size bytes and its reserve exceed Least and its reserve.
func Beyond(size int64) int64 { return size + Reserve(size) - Least - Reserve(Least) }

// Window tracks the credit of a connection, as sender and as receiver. All fields are in bytes. The fast paths of sends
// and receives change the fields directly. One goroutine at a time may use it.
type Window struct {
	Credit int64 // credit that the peer granted and that is not used, without the reserve; negative if the reserve is in use
	Most   int64 // maximum of Credit so far: a lower bound of the peer's window

	Size  int64 // window of the peer here, without the reserve
	Held  int64 // charge of the messages of the peer that are stored and not received
	Due   int64 // charge of received messages that was not returned to the peer; current after UpdateDue
	Batch int64 // a message returns Due to the peer when Due is at least Batch

	// Room is the maximum length of a message that needs no further check; negative if every message
	// needs one. See Admit.
	Room int64
	// Quota is the charge that messages which are not stored may use before Due must be returned. measured is the
	// value of Quota after the last UpdateDue: the difference must be added to Due. See Left.
	Quota, measured int64

	granted  int64 // sum of the credit that the peer granted
	returned int64 // sum of the credit that was returned to the peer
	gained   int64 // part of Due that is from enlarging the window
}

// noRoom is the Room and Quota of a connection on which every message needs a check. It remains negative whatever is
// charged and returned.
const noRoom = math.MinInt64 / 2

// Closed returns a window of size Least in which every message needs a check.
func Closed() Window {
	a := Window{Room: noRoom, Quota: noRoom, measured: noRoom}
	a.Resize(Least)
	return a
}

// Resize sets Size and Batch. Batch is half of Size, or less, so that a peer without this credit can still send the
// longest header.
func (a *Window) Resize(size int64) {
	a.Size, a.Batch = size, min(size/2, size+Reserve(size)-Charge(LongestHeader))
}

// Enlarge is Resize of an admitted window: the difference is due to the peer.
func (a *Window) Enlarge(size int64) {
	a.Due += size - a.Size
	a.gained += size - a.Size
	a.Room += size + Reserve(size) - a.Size - Reserve(a.Size)
	a.Resize(size)
}

// Admit sets Room and Quota. If open is false, each message needs a check.
func (a *Window) Admit(open bool) {
	a.Room = noRoom
	if open {
		a.Room = a.Size + Reserve(a.Size) - a.Held - MessageCharge
	}
	a.Measure()
}

// Measure sets Quota. A message that is not stored subtracts its charge from Quota, and UpdateDue adds it to Due, so
// Quota is never too large between two calls.
func (a *Window) Measure() {
	a.UpdateDue()
	a.Quota = min(a.Room+MessageCharge, a.Batch-a.Due-1)
	a.measured = a.Quota
}

// UpdateDue adds the charge that was subtracted from Quota to Due.
func (a *Window) UpdateDue() {
	a.Due += a.measured - a.Quota
	a.measured = a.Quota
}

// TotalDue returns the value that Due would have after UpdateDue.
func (a *Window) TotalDue() int64 { return a.Due + a.measured - a.Quota }

// Left returns Quota minus the charge of a message of n bytes. If the result is not negative, assigning it to Quota
// accounts for the message completely.
func (a *Window) Left(n int) int64 { return a.Quota - Charge(n) }

// Hold adds n bytes to the charge of stored messages; a negative n subtracts them.
func (a *Window) Hold(n int64) {
	a.Held += n
	a.Room -= n
	a.Quota -= n
	a.measured -= n
}

// Overdrawn reports whether the unreceived messages of the peer exceed the credit that it was granted.
func (a *Window) Overdrawn() bool { return a.Held > a.Size+Reserve(a.Size) }

// Grant sets Due to remainder bytes. It returns the difference, which the caller must grant to the peer.
func (a *Window) Grant(remainder int64) (n int64) {
	n = a.Due - remainder
	a.Due = remainder
	a.returned += n
	return n
}

// Sent returns the sum of the charges of all sent messages. It is derived from the granted credit and
// the remaining credit, so a send needs no counter.
func (a *Window) Sent() int64 { return a.granted - a.Credit }

// Received returns the sum of the charges of all messages of the peer: stored messages, and those whose charge was
// returned or is due.
func (a *Window) Received() int64 { return a.Held + a.TotalDue() + a.returned - a.gained }

// Granted adds n bytes of credit that the peer has granted.
func (a *Window) Granted(n int64) {
	a.Credit += n
	a.granted += n
	a.Most = max(a.Most, a.Credit)
}

// Withhold makes n bytes of credit unavailable until the same call with -n. Credit may become negative. Sent does not count
// them.
func (a *Window) Withhold(n int64) {
	a.Credit -= n
	a.granted -= n
}

// Afford uses n bytes of credit if the credit and below bytes of the reserve suffice. It returns false if not.
func (a *Window) Afford(n, below int64) bool {
	if a.Credit+below < n {
		return false
	}
	a.Credit -= n
	return true
}

// Piece returns how many of rest bytes of a stream may be sent now; 0 if there is too little credit. A piece of a longer
// send has limit bytes, since a shorter one costs as much. It is shorter only if the peer may be waiting for it: a peer
// that has read everything has returned at least half of its window.
func (a *Window) Piece(rest, limit int) int {
	n := min(rest, limit)
	switch {
	case a.Credit >= Charge(n):
		return n
	case a.Credit < a.Most/2:
		return 0
	}
	return int(a.Credit - MessageCharge)
}
