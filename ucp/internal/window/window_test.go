package window

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// both is a sender and a receiver, with the messages in flight between them.
type both struct {
	sender, receiver Window
	messages         []int   // lengths of messages that have not arrived
	grants           []int64 // in flight to the sender
	held             []int   // lengths of messages that have arrived and were not received
}

// grant returns the credit that is due, if it is worth a message.
func (x *both) grant(least int64) {
	a := &x.receiver
	if a.UpdateDue(); a.Due >= least {
		x.grants = append(x.grants, a.Grant(0))
	}
	a.Measure()
}

// returned is called when a message was received.
func (x *both) returned(n int64) {
	x.receiver.Held -= n
	x.receiver.Room += n
	if x.receiver.Quota -= n; x.receiver.Quota < 0 {
		x.grant(x.receiver.Batch)
	}
}

func (x *both) send(n int, below int64) bool {
	ok := x.sender.Afford(Charge(n), below)
	if ok {
		x.messages = append(x.messages, n)
	}
	return ok
}

// TestWindow_CreditIsConserved: the credit of the sender, the messages in flight, the unreceived messages and the
// credit that is due are the size of the window in any state. Unreceived messages never exceed the granted credit.
func TestWindow_CreditIsConserved(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		x := &both{sender: Closed(), receiver: Closed()}
		first := rapid.Int64Range(Least, 64<<10).Draw(rt, "first window")
		x.receiver.Resize(first)
		x.sender.Granted(first)
		x.receiver.Admit(true)
		lengths := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 8<<10))
		rt.Repeat(map[string]func(*rapid.T){
			"send":     func(rt *rapid.T) { x.send(lengths.Draw(rt, "length"), 0) },
			"announce": func(*rapid.T) { x.send(0, Reserve(x.sender.Most)) },
			"arrive": func(rt *rapid.T) {
				if len(x.messages) == 0 {
					return
				}
				n := x.messages[0]
				x.messages = x.messages[1:]
				if left := x.receiver.Left(n); left >= 0 && rapid.Bool().Draw(rt, "finds its receive") {
					x.receiver.Quota = left
					return
				}
				x.receiver.Hold(Charge(n))
				x.held = append(x.held, n)
			},
			"receive": func(*rapid.T) {
				if len(x.held) == 0 {
					return
				}
				n := Charge(x.held[0])
				x.held = x.held[1:]
				x.returned(n)
			},
			"grant": func(*rapid.T) {
				if len(x.grants) > 0 {
					x.sender.Granted(x.grants[0])
					x.grants = x.grants[1:]
				}
			},
			"grow": func(rt *rapid.T) {
				size := rapid.Int64Range(x.receiver.Size, 256<<10).Draw(rt, "size")
				x.receiver.Enlarge(size)
				x.receiver.Measure()
			},
			"close and open": func(*rapid.T) {
				x.receiver.Admit(false)
				require.Negative(rt, x.receiver.Room)
				require.Negative(rt, x.receiver.Left(0))
				x.receiver.Admit(true)
			},
			"": func(rt *rapid.T) {
				sum := x.sender.Credit + x.receiver.Held + x.receiver.TotalDue()
				for _, n := range x.messages {
					sum += Charge(n)
				}
				for _, n := range x.grants {
					sum += n
				}
				require.Equal(rt, x.receiver.Size, sum)
				require.False(rt, x.receiver.Overdrawn())
				require.LessOrEqual(rt, x.sender.Credit, x.sender.Most)
				require.GreaterOrEqual(rt, x.receiver.TotalDue(), int64(0))
			},
		})
	})
}

// TestWindow_ReceivedReturns: when the receiver has received all messages, the sender has credit for the longest
// header, after any messages.
func TestWindow_ReceivedReturns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		x := &both{sender: Closed(), receiver: Closed()}
		size := rapid.Int64Range(Least, 256<<10).Draw(rt, "size")
		x.receiver.Resize(size)
		x.sender.Granted(size)
		x.receiver.Admit(true)
		for range rapid.IntRange(1, 100).Draw(rt, "messages") {
			n := rapid.IntRange(0, LongestHeader).Draw(rt, "length")
			require.True(rt, x.send(n, Reserve(x.sender.Most)), "credit %d of %d, %d due", x.sender.Credit, size, x.receiver.TotalDue())
			x.messages = x.messages[1:]
			x.receiver.Hold(Charge(n))
			require.False(rt, x.receiver.Overdrawn())
			x.returned(Charge(n))
			for _, g := range x.grants {
				x.sender.Granted(g)
			}
			x.grants = nil
		}
	})
}

// TestWindow_Piece: there is credit for the returned length of a fragment, which is not 0 if the sender has half of its
// credit.
func TestWindow_Piece(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.Int64Range(Least, 256<<10).Draw(rt, "most")
		a := Window{Most: most, Credit: rapid.Int64Range(-Reserve(most), most).Draw(rt, "credit")}
		rest := rapid.IntRange(1, 1<<20).Draw(rt, "rest")
		limit := rapid.IntRange(1, 1<<16).Draw(rt, "limit")
		n := a.Piece(rest, limit)
		require.LessOrEqual(rt, n, min(rest, limit))
		if n > 0 {
			require.LessOrEqual(rt, Charge(n), a.Credit)
		}
		if a.Credit >= most/2 {
			require.Positive(rt, n)
		}
	})
}
