// Package broken has layers around a transport. Each layer breaks one rule of the contract of package uct.
// The tests of package ucttest run the suite over each layer and require that the suite reports the fault.
package broken

import (
	"fmt"
	"sync/atomic"

	"github.com/gucx/gucx/uct/wrap"
)

// Fault is the violation of one rule of the contract.
type Fault uint8

// The faults. Each is a mistake that a transport could make.
const (
	Drop             Fault = iota // drops every 13th message
	Duplicate                     // delivers every 13th message twice
	Reorder                       // delivers every 13th message after its successors
	Corrupt                       // changes the last byte of a message of 512 bytes or more
	KeepBuffer                    // reads the caller's buffer after a short send has returned
	Truncate                      // truncates a short send that exceeds the limit instead of returning ErrTooLong
	WrongID                       // delivers every 13th message to another handler
	LieClaimed                    // claims put bcopy, which returns ErrUnsupported
	LieUnclaimed                  // implements get short, which it does not claim
	LoseCompletion                // does not complete every 13th zero-copy operation
	DoubleCompletion              // calls the completion function twice
	CompleteTwice                 // calls Completion.Complete twice for one operation
	LoseCancel                    // Close of an EP does not complete the outstanding operations
	LoseNested                    // the same, only when a completion function closes the EP
	FlushEarly                    // Flush returns complete while operations are outstanding
	FenceNothing                  // posts a put after the fence that follows it
	FenceLong                     // posts a short put after the fence and the zero-copy put that follow it
	IgnoreKey                     // accepts any key for the region that contains raddr
	HideFault                     // drops an access out of bounds without an error
	SilentFailure                 // does not call OnError
	RepeatFailure                 // calls OnError twice
	RoundAtomics                  // rounds a misaligned address of an atomic down
	TearAtomics                   // executes a fetch-and-add as a read and a later write
	LeakDescriptor                // Release of a descriptor does nothing
	UnfairPending                 // dispatches no other EP until the first one has no pending requests
	PendingLIFO                   // dispatches the newest pending request first
	PendingTwice                  // dispatches a pending request again after its success
	Overtake                      // accepts posts while requests of the EP are pending
	LoseWakeup                    // every third Arm returns nil without arming
	LieArmed                      // StillArmed returns true when a post needs Progress
	TrustAddress                  // Reachable returns true for every address
	TrustKey                      // UnpackRKey accepts any bytes
	CloseInUse                    // Close of a domain returns nil while an iface is open
	KeepMem                       // Mem.Close returns nil while peers can still access the memory
	ForgetMem                     // the same, after an iface was closed
	KeepLocal                     // writes the buffer of a zero-copy get after its completion
	Allocate                      // allocates for each operation
	SpawnGoroutine                // starts a goroutine for each operation
	LieClass                      // implements atomics, which it does not claim
	LieCost                       // declares no cost for a variant that it claims
	ReleaseAll                    // ReleaseRKey releases every unpacked copy of the key
	CompleteEarly                 // fires a completion before the posting call has returned
	BlindCheck                    // Check reports every peer as alive
	LoseCheck                     // does not complete a Check
	KeepCopied                    // writes the buffer of a bcopy get after its completion
	LoseRecall                    // Recall does nothing
	KeepQueue                     // Queue.Stop does nothing
	ShortLength                   // a queue receive reports at most the length of its first IOV
	NotifyEarly                   // delivers a notification before the data of its put
	NotifyTwice                   // delivers a notification twice
	LieGuarded                    // claims that it detects a Progress call inside Progress
	LieMapped                     // GetMapped returns true for memory that it cannot read
	MapBeyond                     // Map returns memory that the key does not permit to read
	MapCopy                       // Map returns a copy of the memory
	LieLimit                      // declares a limit that is one byte too high
	faultCount
)

var faultNames = [faultCount]string{
	"drop", "duplicate", "reorder", "corrupt", "keep-buffer", "truncate", "wrong-id", "lie-claimed",
	"lie-unclaimed", "lose-completion", "double-completion", "complete-twice", "lose-cancel", "lose-nested", "flush-early",
	"fence-nothing", "fence-long", "ignore-key", "hide-fault", "silent-failure", "repeat-failure",
	"round-atomics", "tear-atomics", "leak-descriptor", "unfair-pending", "pending-lifo",
	"pending-twice", "overtake", "lose-wakeup", "lie-armed", "trust-address", "trust-key", "close-in-use",
	"keep-mem", "forget-mem", "keep-local", "allocate", "spawn-goroutine",
	"lie-class", "lie-cost", "release-all", "complete-early", "blind-check", "lose-check", "keep-copied",
	"lose-recall", "keep-queue", "short-length", "notify-early", "notify-twice", "lie-guarded", "lie-mapped",
	"map-beyond", "map-copy", "lie-limit",
}

// String returns the name of the fault.
func (k Fault) String() string {
	if k < faultCount {
		return faultNames[k]
	}
	return fmt.Sprintf("fault %d", uint8(k))
}

// Faults lists all faults.
func Faults() []Fault {
	all := make([]Fault, faultCount)
	for k := range all {
		all[k] = Fault(k)
	}
	return all
}

// Layer returns hooks that add fault k to the domains of one test. The wrapped transport must have the capability that
// the broken rule is about.
func Layer(k Fault) wrap.Hooks {
	known := &regions{}
	switch k {
	case Drop, Duplicate, Reorder, Corrupt, KeepBuffer, Truncate, WrongID:
		return wrap.Hooks{Iface: retrying, EP: func(e *wrap.EP) { e.Has.AM = newBadAM(k, e) }}
	case LieClaimed:
		return wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Put = &refusingPut{e.Has.Put} }}
	case LieUnclaimed:
		return wrap.Hooks{Iface: func(i *wrap.Iface) { i.Iface = &modestIface{i.Iface, modest(i.Iface)} }}
	case LoseCompletion, DoubleCompletion, CompleteTwice, LoseCancel, LoseNested:
		return wrap.Hooks{EP: func(e *wrap.EP) { newBadCompletions(k, e) }}
	case FlushEarly:
		return wrap.Hooks{EP: func(e *wrap.EP) { e.EP = &earlyFlush{e.EP} }}
	case FenceNothing, FenceLong:
		return wrap.Hooks{EP: func(e *wrap.EP) { newLazyPut(k, e) }}
	case IgnoreKey, HideFault:
		return wrap.Hooks{MD: known.watch, EP: func(e *wrap.EP) { known.guard(k, e) }}
	case SilentFailure, RepeatFailure:
		return wrap.Hooks{Iface: func(i *wrap.Iface) { i.OnError = badReporter(k, i.OnError) }}
	case RoundAtomics:
		return wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Atomics = &roundingAtomics{e.Has.Atomics} }}
	case TearAtomics:
		return wrap.Hooks{Iface: retrying, EP: func(e *wrap.EP) { e.Has.Atomics = &tearingAtomics{Atomics: e.Has.Atomics, e: e} }}
	case LeakDescriptor:
		return wrap.Hooks{Iface: func(i *wrap.Iface) { i.Iface = &leakingIface{i.Iface} }}
	case UnfairPending, PendingLIFO, PendingTwice, Overtake:
		return breakingPending(k)
	case LoseWakeup:
		return wrap.Hooks{Iface: func(i *wrap.Iface) { i.Has.Wake = &sleepyWaker{Waker: i.Has.Wake} }}
	case LieArmed:
		return wrap.Hooks{Iface: func(i *wrap.Iface) { i.Has.Armed = alwaysArmed{} }}
	case TrustAddress:
		return wrap.Hooks{Iface: func(i *wrap.Iface) { i.Has.Address = &trustingAddresser{i.Has.Address} }}
	case TrustKey:
		return wrap.Hooks{MD: func(m *wrap.MD) { m.Has.Keys = &trustingUnpacker{m.Has.Keys} }}
	case CloseInUse:
		return wrap.Hooks{MD: func(m *wrap.MD) { m.MD = &carelessMD{m.MD} }}
	case KeepMem, ForgetMem:
		return keepingMem(k)
	case KeepLocal:
		return wrap.Hooks{Iface: retrying, EP: func(e *wrap.EP) { e.Has.Get = &keepingGet{e.Has.Get, e} }}
	case Allocate:
		return wrap.Hooks{EP: func(e *wrap.EP) { e.Intercept(beforeEach(func() { garbage.Store(new([64]byte)) })) }}
	case LieClass:
		return wrap.Hooks{Iface: func(i *wrap.Iface) { i.Iface = &modestIface{i.Iface, withoutAtomics(i.Iface)} }}
	case LieLimit:
		return wrap.Hooks{Iface: func(i *wrap.Iface) { i.Iface = &modestIface{i.Iface, withLongerPut(i.Iface)} }}
	case LieCost:
		return wrap.Hooks{Iface: func(i *wrap.Iface) { i.Iface = &modestIface{i.Iface, withoutCost(i.Iface)} }}
	case ReleaseAll:
		return releasingAll()
	case CompleteEarly:
		return wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Put = &earlyPut{e.Has.Put} }}
	case BlindCheck, LoseCheck:
		return wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Check = &badChecker{e.Has.Check, k} }}
	case KeepCopied:
		return wrap.Hooks{Iface: retrying, EP: func(e *wrap.EP) { e.Has.Get = &keepingCopy{e.Has.Get, e} }}
	case LoseRecall:
		return wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Queues = &forgetfulQueues{e.Has.Queues} }}
	case KeepQueue, ShortLength:
		return breakingQueues(k)
	case NotifyEarly, NotifyTwice:
		return breakingNotify(k)
	case LieGuarded:
		return wrap.Hooks{Iface: func(i *wrap.Iface) { i.Has.Guarded = true }}
	case LieMapped:
		return wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Mapped = &lyingMapped{e.Has.Mapped} }}
	case MapBeyond, MapCopy:
		return wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Map = &badMapper{e.Has.Map, k} }}
	case SpawnGoroutine:
		return wrap.Hooks{EP: spawning}
	}
	panic("broken: " + k.String())
}

// garbage receives the allocations of Allocate, so that the compiler does not remove them.
var garbage atomic.Pointer[[64]byte]
