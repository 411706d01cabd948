// Package broken has layers around a transport, each of which breaks one rule of the contract of package
// uct. The test of package ucttest shows with them that the suite notices: a suite that passes a broken
// transport is worth nothing.
package broken

import (
	"fmt"
	"sync/atomic"

	"github.com/gucx/gucx/uct/wrap"
)

// Kind is a rule that a layer breaks.
type Kind uint8

// The kinds, each a mistake that a transport could make.
const (
	Drop             Kind = iota // loses a message now and then
	Duplicate                    // delivers a message twice
	Reorder                      // lets a message overtake another
	Corrupt                      // changes a byte of a long message
	KeepBuffer                   // reads the caller's buffer after a short send has returned
	Truncate                     // cuts a short send instead of refusing it
	WrongID                      // delivers to another handler
	LieClaimed                   // claims a variant that it refuses
	LieUnclaimed                 // has a variant that it does not claim
	LoseCompletion               // forgets a completion
	DoubleCompletion             // fires a completion twice
	EndTwice                     // tells a completion twice that an operation has ended
	LoseCancel                   // forgets completions when an EP is closed
	LoseNested                   // forgets completions when one of them closes the EP
	FlushEarly                   // says that a flush is complete while it is not
	FenceNothing                 // keeps a put back behind a fence
	FenceLong                    // lets a zero-copy put overtake a short one across a fence
	IgnoreKey                    // takes any key for the region that raddr lies in
	HideFault                    // drops an access that is not allowed, without a word
	SilentFailure                // does not call OnError
	RepeatFailure                // calls OnError twice
	RoundAtomics                 // aligns the address of an atomic by itself
	TearAtomics                  // reads and writes a word in two steps
	LeakDescriptor               // does not take a released buffer back
	UnfairPending                // dispatches one EP until it has no requests left
	PendingLIFO                  // dispatches the newest request first
	PendingTwice                 // dispatches a request again that is done
	Overtake                     // takes direct posts while requests wait
	LoseWakeup                   // forgets to arm
	LieArmed                     // says that it is still armed when a post needs Progress
	TrustAddress                 // says that every address is reachable
	TrustKey                     // unpacks any bytes as a key
	CloseInUse                   // lets a domain be closed while an iface is open
	KeepMem                      // says that memory is closed while peers still reach it
	ForgetMem                    // the same once an iface has closed
	KeepLocal                    // writes the buffer of a get after its completion
	Allocate                     // allocates for each operation
	SpawnGoroutine               // starts a goroutine for each operation
	LieClass                     // has a class of operations that it does not claim
	LieCost                      // declares no cost for a variant that it claims
	ReleaseAll                   // gives back every unpacked form of a key with one
	CompleteEarly                // fires a completion before the posting call has returned
	BlindCheck                   // finds every peer alive
	LoseCheck                    // forgets the completion of a check
	KeepCopied                   // writes the buffer of a copied get after its completion
	LoseRecall                   // recalls nothing
	KeepQueue                    // goes on with a queue that was stopped
	ShortLength                  // tells a receive the length of its first piece
	NotifyEarly                  // brings a word before its data
	NotifyTwice                  // brings a word twice
	LieGuarded                   // says that it finds when Progress is called inside itself
	LieMapped                    // says that it has read memory that it cannot reach
	MapBeyond                    // maps memory that the key does not permit to read
	MapCopy                      // maps a copy of the memory
	LieLimit                     // declares a limit that is one byte above what it takes
	kindEnd
)

var kindNames = [kindEnd]string{
	"drop", "duplicate", "reorder", "corrupt", "keep-buffer", "truncate", "wrong-id", "lie-claimed",
	"lie-unclaimed", "lose-completion", "double-completion", "end-twice", "lose-cancel", "lose-nested", "flush-early",
	"fence-nothing", "fence-long", "ignore-key", "hide-fault", "silent-failure", "repeat-failure",
	"round-atomics", "tear-atomics", "leak-descriptor", "unfair-pending", "pending-lifo",
	"pending-twice", "overtake", "lose-wakeup", "trust-address", "trust-key", "close-in-use",
	"keep-mem", "forget-mem", "keep-local", "allocate", "spawn-goroutine",
	"lie-class", "lie-cost", "release-all", "complete-early", "blind-check", "lose-check", "keep-copied",
	"lose-recall", "keep-queue", "short-length", "notify-early", "notify-twice", "lie-guarded", "lie-mapped",
	"map-beyond", "map-copy", "lie-limit",
}

// String returns the name of the kind.
func (k Kind) String() string {
	if k < kindEnd {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Kinds lists all kinds.
func Kinds() []Kind {
	all := make([]Kind, kindEnd)
	for k := range all {
		all[k] = Kind(k)
	}
	return all
}

// Layer returns a layer that breaks one rule. It is for the domains of one test. The transport below must claim what
// the rule is about.
func Layer(k Kind) wrap.Hooks {
	known := &regions{}
	switch k {
	case Drop, Duplicate, Reorder, Corrupt, KeepBuffer, Truncate, WrongID:
		return wrap.Hooks{Iface: retrying, EP: func(e *wrap.EP) { e.Has.AM = newBadAM(k, e) }}
	case LieClaimed:
		return wrap.Hooks{EP: func(e *wrap.EP) { e.Has.Put = &refusingPut{e.Has.Put} }}
	case LieUnclaimed:
		return wrap.Hooks{Iface: func(i *wrap.Iface) { i.Iface = &modestIface{i.Iface, modest(i.Iface)} }}
	case LoseCompletion, DoubleCompletion, EndTwice, LoseCancel, LoseNested:
		return wrap.Hooks{EP: func(e *wrap.EP) { newBadCompletions(k, e) }}
	case FlushEarly:
		return wrap.Hooks{EP: func(e *wrap.EP) { e.EP = &earlyFlush{e.EP} }}
	case FenceNothing, FenceLong:
		return wrap.Hooks{EP: func(e *wrap.EP) { newLazyPut(k, e) }}
	case IgnoreKey, HideFault:
		return wrap.Hooks{MD: known.watch, EP: func(e *wrap.EP) { known.guard(k, e) }}
	case SilentFailure, RepeatFailure:
		return wrap.Hooks{Iface: func(i *wrap.Iface) { i.OnError = badTeller(k, i.OnError) }}
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

// garbage keeps allocations from being optimised away.
var garbage atomic.Pointer[[64]byte]
