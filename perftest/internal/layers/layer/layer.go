// Package layer is what perftest measures: one connection to a peer process over
// verbs, UCT or UCP, with the same operations on each.
//
// Both processes open a Conn, swap addresses by a channel of their own and
// connect. The initiator then makes an Op and calls Post and Flush in a loop. The
// target keeps its memory; while it is told to drive it calls Progress, of the Part
// that it has in the operation or, where it has none, of the Conn. A Conn belongs
// to one goroutine.
package layer

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Conn is one end of a connection through one layer.
type Conn interface {
	// Address is what the peer passes to Connect: how to reach this end and its
	// memory.
	Address() ([]byte, error)
	// Connect joins the peer; its address is checked. The peer must connect too.
	Connect(peer []byte) error
	// Memory is what the peer's operations read and write. Owned by the Conn.
	Memory() []byte
	// Local is the buffer that puts send and gets fill. Owned by the Conn.
	Local() []byte
	// Op prepares an operation. One Op of a Conn is in use at a time. Errors:
	// ErrNoSuchOp if the layer has no such operation, *LimitError if the transport
	// lacks the variant or a limit of it is passed; both are ErrUnsupported.
	Op(Spec) (Op, error)
	// Part prepares what the target does in an operation; nil if that is nothing.
	// It takes the place of the Part before. Errors as Op.
	Part(Spec) (Part, error)
	// Progress lets the layer answer the peer: while the connection comes up, and
	// while operations run that the transport cannot do without the target.
	Progress() int
	// Transport is the transport in use, such as "rc".
	Transport() string
	// Close releases everything. Idempotent.
	Close() error
}

// Op is one operation, ready to be repeated. Neither method allocates.
type Op interface {
	// Post starts one operation. When queues are full it waits for room, so it
	// fails only for good.
	Post() error
	// Flush waits until everything posted before is complete at the target; in a
	// ping-pong, until the answer has come.
	Flush() error
	// Poll makes progress once and does not wait. It fails when something has gone
	// wrong for good, or when the context has ended.
	Poll() error
	// Result is the old value that the last fetching atomic returned; 0 for
	// other operations. Valid after Flush.
	Result() uint64
}

// Varied is implemented by an Op of a layer that has variants.
type Varied interface {
	// Variant is the one in use.
	Variant() Variant
}

// Part is what the target does in an operation that it takes part in. Progress does
// not allocate.
type Part interface {
	// Progress does what there is to do now. It returns how much that was; 0 means
	// idle. Data that is wrong is no error here but in Finish, so that the
	// initiator need not wait for answers for ever.
	Progress() (int, error)
	// Finish returns how many operations have come, and what was wrong with them.
	Finish() (uint64, error)
}

// Kind is what an operation does.
type Kind uint8

// Kinds of operation.
const (
	Put         Kind = iota // write Local[:Size] to the peer's Memory
	Get                     // read the peer's Memory[:Size] into Local
	Add                     // add 1 to the word at Memory[0:8], without result
	FAdd                    // add 1 and fetch the old value
	CSwap                   // compare with how many were posted before, swap for that plus 1
	Flush                   // post nothing: Flush with nothing outstanding
	AM                      // send an active message of Size bytes, numbered
	AMPing                  // send one, and get one of the same size back; in a window of them, in both directions at once
	PutPing                 // write Local[:Size] to the peer's Memory, which does the same
	Tag                     // send a tagged message of Size bytes, numbered
	TagPing                 // send one, and get one of the same size back
	TagSyncPing             // the same, each of which waits until it is matched
	Stream                  // send Size bytes of a stream, numbered
	StreamPing              // send them, and get as many back
	kindEnd
)

var kindNames = [kindEnd]string{"put", "get", "add", "fadd", "cswap", "flush", "am", "am_pp", "put_pp",
	"tag", "tag_pp", "tag_sync_pp", "stream", "stream_pp"}

// String returns UCX's name.
func (k Kind) String() string {
	if k < kindEnd {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Atomic reports whether operations of this kind work on an 8-byte word.
func (k Kind) Atomic() bool { return k == Add || k == FAdd || k == CSwap }

// TwoSided reports whether the target has a Part in operations of this kind.
func (k Kind) TwoSided() bool { return k.Message() || k == PutPing }

// Message reports whether operations of this kind send messages.
func (k Kind) Message() bool { return k == AM || k == AMPing || k.Tagged() || k.Streamed() }

// Tagged reports whether operations of this kind send tagged messages.
func (k Kind) Tagged() bool { return k == Tag || k == TagPing || k == TagSyncPing }

// Streamed reports whether operations of this kind send bytes of a stream.
func (k Kind) Streamed() bool { return k == Stream || k == StreamPing }

// CanBeEmpty reports whether operations of this kind may have no bytes: whole messages, which arrive.
func (k Kind) CanBeEmpty() bool { return k.Message() && !k.Streamed() }

// OneWay reports whether messages of this kind go to the target alone, at most a window of
// them unacknowledged.
func (k Kind) OneWay() bool { return k == AM || k == Tag || k == Stream }

// Varied reports whether operations of this kind come in variants.
func (k Kind) Varied() bool {
	return k < kindEnd && !k.Atomic() && k != Flush && !k.Tagged() && !k.Streamed()
}

// WordLen is the length of the word that atomics work on.
const WordLen = 8

// Spec says which operation an Op repeats.
type Spec struct {
	Kind Kind
	// Size in bytes, 1..MemLen, and 0 where Kind.CanBeEmpty; WordLen for atomics; ignored for Flush.
	Size int
	// Window is how many operations are posted for each Flush, at least 1. A
	// layer that signals completions itself asks for one at the last of them. Of
	// messages it is how many may be on their way unacknowledged.
	Window int
	// Variant of uct that is to be used; other layers do not look at it.
	Variant Variant
	// Wildcard has tagged messages received with a mask that any tag fits, and Unexpected
	// only once they have come.
	Wildcard, Unexpected bool
	// Layouts of messages of a kind that has some; only ucp looks at them.
	Layouts Layouts
	// Seed of the pattern in messages and ping-pongs, which Local of both
	// sides holds.
	Seed uint64
	// Thorough has every byte of messages checked, and not only length,
	// number and last byte.
	Thorough bool
}

// Check reports why s does not fit a memory of memLen bytes.
func (s Spec) Check(memLen int) error {
	switch {
	case s.Kind >= kindEnd:
		return fmt.Errorf("unknown operation %v", s.Kind)
	case s.Window < 1:
		return fmt.Errorf("window of %d operations: at least 1", s.Window)
	case s.Variant >= variantEnd:
		return fmt.Errorf("unknown variant %v", s.Variant)
	case s.Layouts.Send >= layoutEnd || s.Layouts.Recv >= layoutEnd:
		return fmt.Errorf("unknown layout among %v and %v", s.Layouts.Send, s.Layouts.Recv)
	case s.Kind == Flush:
		return nil
	case s.Kind.Atomic() && s.Size != WordLen:
		return fmt.Errorf("%v of %d bytes: atomics work on %d", s.Kind, s.Size, WordLen)
	case s.Size == 0 && s.Kind.CanBeEmpty():
		return nil
	case s.Size < 1 || s.Size > memLen:
		return fmt.Errorf("%v of %d bytes: the memory has 1..%d", s.Kind, s.Size, memLen)
	}
	return nil
}

// Config opens a Conn. Both ends use the same values, except Context.
type Config struct {
	// Transport by UCT's name, such as "rc".
	Transport string
	// Device by name, such as "softhca0"; empty takes the first.
	Device string
	// Fabric of the software HCA, such as "shm".
	Fabric string
	// MemLen is the length in bytes of Memory and of Local.
	MemLen int
	// Memory is the class of both. Layers that have only one ignore it.
	Memory Memory
	// Context makes a waiting Post or Flush give up with its cause once it ends.
	// Never nil.
	Context context.Context
	// Interrupt interrupts waits that Context ends; nil for none.
	Interrupt *Interrupt
	// Loopback says that the Conn will be connected to itself: it is its own target
	// and there is no Part.
	Loopback bool
	// Beside says that the other end is driven by a goroutine of this process, which
	// gets the processor now and then from one that waits.
	Beside bool
	// Sleep has waits sleep at once, where they else poll. Only a Sleeper does so.
	Sleep bool
}

// Opener opens a Conn of one layer.
type Opener func(Config) (Conn, error)

// Set holds the openers of the layers by name, with their order from the lowest.
type Set struct {
	Names []string
	Open  map[string]Opener
}

// Idle counts polls that found nothing, and now and then looks whether to go on. The
// zero value is ready once Context is set.
type Idle struct {
	Context context.Context
	// Interrupt is Config.Interrupt.
	Interrupt *Interrupt
	// Beside is Config.Beside.
	Beside bool
	polls  uint32
}

const (
	// lookInterval is how many idle polls go by between two looks at the context: at
	// 10 to 500 ns a poll, its end is seen within half a millisecond.
	lookInterval = 1024
	// yieldInterval is how many idle polls a goroutine keeps the processor from the
	// other end in the same process: longer than a message takes where that has a
	// processor of its own.
	yieldInterval = 64
)

// NewIdle returns the Idle of a connection.
func NewIdle(c Config) Idle {
	return Idle{Context: c.Context, Interrupt: c.Interrupt, Beside: c.Beside}
}

// Poll counts one poll without result, and returns why the context ended if it has.
// It yields to other goroutines only where the other end is one of them: the
// initiator is locked to its thread, and for it a yield is two switches of threads.
func (i *Idle) Poll() error {
	i.polls++
	if i.polls%yieldInterval != 0 {
		return nil
	}
	return i.look()
}

//go:noinline
func (i *Idle) look() error {
	if i.Beside {
		runtime.Gosched()
	}
	if i.polls%lookInterval != 0 {
		return nil
	}
	YieldThread()
	if c := (Config{Context: i.Context, Interrupt: i.Interrupt}); c.Wait().Err() != nil {
		return c.Interrupted()
	}
	return nil
}

// YieldThread lets another thread have the processor, for the case that the other
// end of the connection waits for it; else it takes some hundred nanoseconds.
func YieldThread() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
