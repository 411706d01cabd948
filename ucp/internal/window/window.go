// Package window computes the credit of a connection for messages.
//
// A peer may have only so many bytes of messages sent and not received: each message is charged its data and
// what its record costs, and the charge returns when the message is received. A Window has both sides of a
// connection: the credit that the peer granted us, and what we granted the peer. See
// docs/design/0010-limits.md.
package window

import "math"

const (
	// Least is the window of each connection at least, in bytes. Both sides know it. With its reserve, and
	// without what the receiver has not returned yet, it has room for the longest header of an active message.
	Least = 2304
	// MaxReserve is the largest reserve of a window, in bytes: some 40 announcements.
	MaxReserve = 16 << 10
	// MessageCharge is charged for each message besides its data, in bytes: its record and the shortest
	// buffer. A buffer is at most twice as long as its data.
	MessageCharge = 400
	// LongestHeader is the longest header of an active message that a window has room for, in bytes.
	LongestHeader = 2 << 10
)

// Charge is what a message of n bytes is charged.
func Charge(n int) int64 { return int64(n) + MessageCharge }

// Reserve is the credit in bytes that only announcements may use beside a window of a size.
func Reserve(size int64) int64 { return min(size/3, MaxReserve) }

// Beyond is how many bytes a window of a size and its reserve have beyond Least.
func Beyond(size int64) int64 { return size + Reserve(size) - Least - Reserve(Least) }

// Window is the credit of a connection, as sender and as receiver, in bytes. Calls that send or receive a
// message change the fields themselves. One goroutine at a time may use it.
type Window struct {
	Credit int64 // may be sent yet, without the reserve; negative if the reserve is in use
	Most   int64 // the greatest Credit so far: no more than the peer takes in all

	Size  int64 // what the peer may have unreceived here, without the reserve
	Held  int64 // what it has unreceived
	Due   int64 // received and not returned to the peer, as of Settle
	Batch int64 // as much Due as is worth a message that returns it

	// Room is how long a message may be that nothing else has to be done for, in bytes; negative while there
	// is something to be done for each. See Admit.
	Room int64
	// Quota is what may be charged to messages that are not held before Due has to be returned. It was
	// measured once: what it is less since then is due. See Left.
	Quota, measured int64

	granted  int64 // by the peer, in all
	returned int64 // of Due to the peer, in all
	gained   int64 // of that, what the window grew by
}

// noRoom is the Room and Quota of a connection over which no message may come unchecked. What is charged
// and returned meanwhile leaves it negative.
const noRoom = math.MinInt64 / 2

// Closed returns a window that admits no message unchecked, of size Least.
func Closed() Window {
	a := Window{Room: noRoom, Quota: noRoom, measured: noRoom}
	a.Resize(Least)
	return a
}

// Resize sets Size. Half of it is worth a message that returns it, or less if a peer without the rest could
// not send the longest header.
func (a *Window) Resize(size int64) {
	a.Size, a.Batch = size, min(size/2, size+Reserve(size)-Charge(LongestHeader))
}

// Enlarge is Resize of an admitted window: what it gains is due to the peer.
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

// Measure sets Quota. Each message that is not held consumes it by as much as it adds to Due, so that Quota is
// never too large between two calls.
func (a *Window) Measure() {
	a.Settle()
	a.Quota = min(a.Room+MessageCharge, a.Batch-a.Due-1)
	a.measured = a.Quota
}

// Settle brings Due up to date.
func (a *Window) Settle() {
	a.Due += a.measured - a.Quota
	a.measured = a.Quota
}

// TotalDue is what Due will be after Settle.
func (a *Window) TotalDue() int64 { return a.Due + a.measured - a.Quota }

// Left is what is left of Quota after a message of n bytes. If it is not negative, setting Quota to it returns
// the charge of the message, and nothing else has to be done for that.
func (a *Window) Left(n int) int64 { return a.Quota - Charge(n) }

// Hold charges n bytes that are held; a negative n takes that back.
func (a *Window) Hold(n int64) {
	a.Held += n
	a.Room -= n
	a.Quota -= n
	a.measured -= n
}

// Overdrawn reports that the peer has more unreceived than it was granted.
func (a *Window) Overdrawn() bool { return a.Held > a.Size+Reserve(a.Size) }

// Grant takes what is due, but for n bytes, and returns it.
func (a *Window) Grant(but int64) (n int64) {
	n = a.Due - but
	a.Due = but
	a.returned += n
	return n
}

// Sent is what was charged to all messages that were sent. It is derived from the credit that was granted and
// the credit that is left: sending a message costs nothing for it.
func (a *Window) Sent() int64 { return a.granted - a.Credit }

// Received is what was charged to all messages of the peer: those that are held, and those whose charge was
// returned or is due.
func (a *Window) Received() int64 { return a.Held + a.TotalDue() + a.returned - a.gained }

// Granted adds what the peer has granted.
func (a *Window) Granted(n int64) {
	a.Credit += n
	a.granted += n
	a.Most = max(a.Most, a.Credit)
}

// Afford takes n bytes of credit if there are as many, with below bytes of the reserve. It reports whether it did.
func (a *Window) Afford(n, below int64) bool {
	if a.Credit+below < n {
		return false
	}
	a.Credit -= n
	return true
}

// Piece is how many of rest bytes of a stream may go now; 0 if there is too little credit. A piece of a longer send
// is as long as limit, since a short one costs as much. It is shorter only if the peer may be waiting for it: a peer
// that has read everything has returned at least half of what it takes.
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
