// Package layer is what perftest measures: one connection to a peer process over
// verbs, UCT or UCP, with the same operations on each.
//
// Both processes open a Conn, swap addresses by a channel of their own and
// connect. The initiator then makes an Op and calls Post and Flush in a loop; the
// target does nothing but keep its memory and, while it is told to drive, call
// Progress. A Conn belongs to one goroutine.
package layer

import (
	"context"
	"fmt"
	"runtime"
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
	// Op prepares an operation. One Op of a Conn is in use at a time.
	Op(Spec) (Op, error)
	// Progress lets the layer answer the peer while the connection comes up.
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
	// Flush waits until everything posted before is complete at the target.
	Flush() error
	// Result is the old value that the last fetching atomic returned; 0 for
	// other operations. Valid after Flush.
	Result() uint64
}

// Kind is what an operation does.
type Kind uint8

// Kinds of operation.
const (
	Put   Kind = iota // write Local[:Size] to the peer's Memory
	Get               // read the peer's Memory[:Size] into Local
	Add               // add 1 to the word at Memory[0:8], without result
	FAdd              // add 1 and fetch the old value
	CSwap             // compare with how many were posted before, swap for that plus 1
	Flush             // post nothing: Flush with nothing outstanding
	kindEnd
)

var kindNames = [kindEnd]string{"put", "get", "add", "fadd", "cswap", "flush"}

// String returns UCX's name.
func (k Kind) String() string {
	if k < kindEnd {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Atomic reports whether operations of this kind work on an 8-byte word.
func (k Kind) Atomic() bool { return k == Add || k == FAdd || k == CSwap }

// WordLen is the length of the word that atomics work on.
const WordLen = 8

// Spec says which operation an Op repeats.
type Spec struct {
	Kind Kind
	// Size in bytes, 1..MemLen; WordLen for atomics; ignored for Flush.
	Size int
	// Window is how many operations are posted for each Flush, at least 1. A
	// layer that signals completions itself asks for one at the last of them.
	Window int
}

// Check reports why s does not fit a memory of memLen bytes.
func (s Spec) Check(memLen int) error {
	switch {
	case s.Kind >= kindEnd:
		return fmt.Errorf("unknown operation %v", s.Kind)
	case s.Window < 1:
		return fmt.Errorf("window of %d operations: at least 1", s.Window)
	case s.Kind == Flush:
		return nil
	case s.Kind.Atomic() && s.Size != WordLen:
		return fmt.Errorf("%v of %d bytes: atomics work on %d", s.Kind, s.Size, WordLen)
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
	// Context makes a waiting Post or Flush give up with its cause once it ends.
	// Never nil.
	Context context.Context
}

// Opener opens a Conn of one layer.
type Opener func(Config) (Conn, error)

// Set holds the openers of the layers by name, with their order from the lowest.
type Set struct {
	Names []string
	Open  map[string]Opener
}

// Idle counts polls that found nothing and looks at the context now and then. The
// zero value is ready once Context is set.
type Idle struct {
	Context context.Context
	polls   uint32
}

// lookInterval is how many idle polls go by between two looks at the context: at
// about 10 ns a poll, its end is seen within 10 us.
const lookInterval = 1024

// Poll counts one poll without result. Now and then it yields the processor to
// other goroutines, and returns why the context ended if it has.
func (i *Idle) Poll() error {
	i.polls++
	if i.polls%lookInterval != 0 {
		return nil
	}
	runtime.Gosched()
	if i.Context.Err() != nil {
		return context.Cause(i.Context)
	}
	return nil
}
