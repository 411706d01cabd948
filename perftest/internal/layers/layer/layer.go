// Package layer defines what perftest measures: a connection to a peer process over verbs, UCT or UCP, with the same
// operations for each.
//
// Both processes open a Conn, exchange addresses over a channel of their own, and connect. The initiator then creates
// an Op and calls Post and Flush in a loop. The target owns its memory. While the initiator has it drive the layer, the
// target calls Progress of its Part in the operation, or of the Conn if it has no Part. A Conn belongs to one
// goroutine.
package layer

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Conn is one side of a connection through one layer.
type Conn interface {
	// Address returns the data that the peer passes to Connect: the address of this side and of its memory.
	Address() ([]byte, error)
	// Connect connects to the peer. It checks the address. The peer must connect too.
	Connect(peer []byte) error
	// Memory is the memory that operations of the peer read and write. The Conn owns it.
	Memory() []byte
	// Local is the source of puts and sends, and the destination of gets. The Conn owns it.
	Local() []byte
	// Op prepares an operation. A Conn has at most one Op in use. Errors: ErrNoSuchOp if the layer has no such
	// operation, *LimitError if the transport lacks the variant or the operation exceeds a limit; both are
	// ErrUnsupported.
	Op(Spec) (Op, error)
	// Part prepares the target's part in an operation; nil if it has none. It replaces the previous Part. Errors as Op.
	Part(Spec) (Part, error)
	// Progress makes progress for the peer: while the connection is set up, and during operations that need the
	// progress of the target.
	Progress() int
	// Transport is the transport in use, such as "rc".
	Transport() string
	// Close releases everything. Idempotent.
	Close() error
}

// Op is a prepared operation that can be repeated. Post and Flush do not allocate.
type Op interface {
	// Post starts one operation. If queues are full it waits for room. An error is final.
	Post() error
	// Flush waits until all posted operations are complete at the target; in a ping-pong, until the reply has arrived.
	Flush() error
	// Poll makes progress once and does not wait. It fails if the layer has failed or the context has ended.
	Poll() error
	// Result returns the old value of the last fetching atomic; 0 for other operations. Valid after Flush.
	Result() uint64
}

// Varied is implemented by an Op of a layer that has variants.
type Varied interface {
	// Variant returns the variant in use.
	Variant() Variant
}

// Part is the part of the target in an operation. Progress does not allocate.
type Part interface {
	// Progress does the work that is ready and returns the number of events; 0 means idle. Finish reports wrong data,
	// not Progress, so that the initiator does not wait forever for replies.
	Progress() (int, error)
	// Finish returns the number of received operations, and the first fault in them.
	Finish() (uint64, error)
}

// Kind is the type of an operation.
type Kind uint8

// Types of operation.
const (
	Put         Kind = iota // write Local[:Size] to the peer's Memory
	Get                     // read the peer's Memory[:Size] into Local
	Add                     // add 1 to the 8 bytes at Memory[0], without result
	FAdd                    // add 1 and fetch the old value
	CSwap                   // compare with the number of operations posted before, swap for that number plus 1
	Flush                   // post nothing: Flush with nothing outstanding
	AM                      // send a numbered active message of Size bytes
	AMPing                  // send one, and receive a reply of the same size; with a window, in both directions at once
	PutPing                 // write Local[:Size] to the peer's Memory; the peer does the same
	Tag                     // send a numbered tagged message of Size bytes
	TagPing                 // send one, and receive a reply of the same size
	TagSyncPing             // the same; each send completes only when the message is matched
	Stream                  // send Size numbered bytes of a stream
	StreamPing              // send them, and receive a reply of the same size
	numKinds
)

var kindNames = [numKinds]string{"put", "get", "add", "fadd", "cswap", "flush", "am", "am_pp", "put_pp",
	"tag", "tag_pp", "tag_sync_pp", "stream", "stream_pp"}

// String returns UCX's name.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Atomic reports whether operations of this kind are atomics on 8 bytes.
func (k Kind) Atomic() bool { return k == Add || k == FAdd || k == CSwap }

// TwoSided reports whether the target has a Part in operations of this kind.
func (k Kind) TwoSided() bool { return k.Message() || k == PutPing }

// Message reports whether operations of this kind send messages.
func (k Kind) Message() bool { return k == AM || k == AMPing || k.Tagged() || k.Streamed() }

// Tagged reports whether operations of this kind send tagged messages.
func (k Kind) Tagged() bool { return k == Tag || k == TagPing || k == TagSyncPing }

// Streamed reports whether operations of this kind send bytes of a stream.
func (k Kind) Streamed() bool { return k == Stream || k == StreamPing }

// CanBeEmpty reports whether operations of this kind may have no bytes: messages that are delivered whole.
func (k Kind) CanBeEmpty() bool { return k.Message() && !k.Streamed() }

// OneWay reports whether only the initiator sends messages in operations of this kind, with at most a window of them
// unacknowledged.
func (k Kind) OneWay() bool { return k == AM || k == Tag || k == Stream }

// Varied reports whether operations of this kind have variants.
func (k Kind) Varied() bool {
	return k < numKinds && !k.Atomic() && k != Flush && !k.Tagged() && !k.Streamed()
}

// WordLen is the length of the operand of atomics.
const WordLen = 8

// Spec describes the operation that an Op repeats.
type Spec struct {
	Kind Kind
	// Size in bytes: 1 to MemLen, or 0 if Kind.CanBeEmpty; WordLen for atomics; ignored for Flush.
	Size int
	// Window is the number of operations posted for each Flush, at least 1. A layer that signals completions itself
	// signals the last one. For messages it is the maximum number of unacknowledged ones.
	Window int
	// Variant is the variant that uct must use; other layers ignore it.
	Variant Variant
	// Wildcard: tagged messages are received with a mask that matches any tag. Unexpected: receives are posted only
	// after the messages have arrived.
	Wildcard, Unexpected bool
	// Written: the sender writes the data of a message before it sends it, and the receiver reads all of it. Otherwise
	// the caches of one side contain data of earlier messages that were copied from or to the memory of the other. Only
	// ucp uses it.
	Written bool
	// Layouts are the layouts of messages; only ucp uses them.
	Layouts Layouts
	// Seed is the seed of the pattern in messages and ping-pongs, which Local of both sides contains.
	Seed uint64
	// Thorough: every byte of messages is checked, not only length, number and last byte.
	Thorough bool
}

// Check returns an error if s does not fit a memory of memLen bytes.
func (s Spec) Check(memLen int) error {
	switch {
	case s.Kind >= numKinds:
		return fmt.Errorf("unknown operation %v", s.Kind)
	case s.Window < 1:
		return fmt.Errorf("window of %d operations: at least 1", s.Window)
	case s.Variant >= numVariants:
		return fmt.Errorf("unknown variant %v", s.Variant)
	case s.Layouts.Send >= numLayouts || s.Layouts.Recv >= numLayouts:
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

// Config is the configuration of a Conn. Both sides use the same values, except Context.
type Config struct {
	// Transport is the name of a transport of UCT, such as "rc".
	Transport string
	// Device is the name of a device, such as "softhca0"; empty selects the first.
	Device string
	// Fabric is the fabric of the software HCA, such as "shm".
	Fabric string
	// MemLen is the length in bytes of Memory and of Local.
	MemLen int
	// Memory is the class of both. Layers with only one class ignore it.
	Memory Memory
	// Context cancels waits of Post and Flush, with its cause. Never nil.
	Context context.Context
	// Interrupt interrupts waits; nil if they need not be interrupted.
	Interrupt *Interrupt
	// Loopback: the Conn will be connected to itself. It is its own target, and there is no Part.
	Loopback bool
	// Beside: a goroutine of this process drives the other side. A waiting side yields the CPU to it from time to time.
	Beside bool
	// Sleep: waits sleep at once instead of polling. Only a Sleeper supports it.
	Sleep bool
}

// Opener opens a Conn of one layer.
type Opener func(Config) (Conn, error)

// Set contains the openers of the layers by name, and the order of the layers from the lowest.
type Set struct {
	Names []string
	Open  map[string]Opener
}

// Idle counts polls that found nothing, and checks the context from time to time. The zero value is ready when Context
// is set.
type Idle struct {
	Context context.Context
	// Interrupt is Config.Interrupt.
	Interrupt *Interrupt
	// Beside is Config.Beside.
	Beside bool
	// Sleeper sleeps in each Poll; nil to poll without a pause.
	Sleeper Sleeper
	polls   uint32
}

const (
	// lookInterval is the number of idle polls between two checks of the context. A poll takes 10 to 500 ns, so the end
	// of the context is detected within half a millisecond.
	lookInterval = 1024
	// yieldInterval is the number of idle polls after which a goroutine yields the CPU to the other side in the same
	// process: longer than a message takes if the other side has a CPU of its own.
	yieldInterval = 64
)

// NewIdle returns the Idle of a connection.
func NewIdle(c Config) Idle {
	return Idle{Context: c.Context, Interrupt: c.Interrupt, Beside: c.Beside}
}

// Poll counts a poll without result. It returns the cause if the context has ended. It yields to other goroutines only
// if the other side is one of them: the initiator is locked to its thread, so a yield costs two thread switches.
func (i *Idle) Poll() error {
	i.polls++
	if i.polls%yieldInterval != 0 && i.Sleeper == nil {
		return nil
	}
	return i.look()
}

//go:noinline
func (i *Idle) look() error {
	if i.Sleeper != nil {
		if _, err := i.Sleeper.Sleep(-1); err != nil {
			return err
		}
	} else {
		if i.Beside {
			runtime.Gosched()
		}
		if i.polls%lookInterval != 0 {
			return nil
		}
		YieldThread()
	}
	if c := (Config{Context: i.Context, Interrupt: i.Interrupt}); c.Wait().Err() != nil {
		return c.Interrupted()
	}
	return nil
}

// YieldThread yields the CPU to another thread, in case the other side of the connection waits for it. Otherwise it
// takes some hundred nanoseconds.
func YieldThread() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
