package ucttest

import (
	"fmt"
	"sync/atomic"
)

// Kind is a rule that [Broken] makes a transport break.
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
	LoseCancel                   // forgets completions when an EP is closed
	FlushEarly                   // says that a flush is complete while it is not
	FenceNothing                 // keeps a put back behind a fence
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
	TrustAddress                 // says that every address is reachable
	TrustKey                     // unpacks any bytes as a key
	CloseInUse                   // lets a domain be closed while an iface is open
	Allocate                     // allocates for each operation
	SpawnGoroutine               // starts a goroutine for each operation
	kindEnd
)

var kindNames = [kindEnd]string{
	"drop", "duplicate", "reorder", "corrupt", "keep-buffer", "truncate", "wrong-id", "lie-claimed",
	"lie-unclaimed", "lose-completion", "double-completion", "lose-cancel", "flush-early",
	"fence-nothing", "ignore-key", "hide-fault", "silent-failure", "repeat-failure",
	"round-atomics", "tear-atomics", "leak-descriptor", "unfair-pending", "pending-lifo",
	"pending-twice", "overtake", "lose-wakeup", "trust-address", "trust-key", "close-in-use",
	"allocate", "spawn-goroutine",
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

// Broken returns h with a transport that breaks one rule: a suite that does not
// fail on it is worth nothing. The transport must claim what the rule is about.
func Broken(h Harness, k Kind) Harness {
	h.OpenMD = wrapped(h.OpenMD, breaking(k, &regions{}))
	return h
}

// breaking returns the wrapping that breaks one rule.
func breaking(k Kind, known *regions) *wrapping {
	switch k {
	case Drop, Duplicate, Reorder, Corrupt, KeepBuffer, Truncate, WrongID:
		return &wrapping{iface: retrying, ep: func(e *epParts) { e.am = newBadAM(k, e) }}
	case LieClaimed:
		return &wrapping{ep: func(e *epParts) { e.put = &refusingPut{e.put} }}
	case LieUnclaimed:
		return &wrapping{iface: func(i *ifaceParts) { i.Iface = &modestIface{i.Iface, modest(i.Iface)} }}
	case LoseCompletion, DoubleCompletion, LoseCancel:
		return &wrapping{ep: func(e *epParts) { newBadCompletions(k, e) }}
	case FlushEarly:
		return &wrapping{ep: func(e *epParts) { e.EP = &hastyEP{e.EP} }}
	case FenceNothing:
		return &wrapping{ep: newLazyPut}
	case IgnoreKey, HideFault:
		return &wrapping{md: known.watch, ep: func(e *epParts) { known.guard(k, e) }}
	case SilentFailure, RepeatFailure:
		return &wrapping{iface: func(i *ifaceParts) { i.onError = badTeller(k, i.onError) }}
	case RoundAtomics:
		return &wrapping{ep: func(e *epParts) { e.atomics = &roundingAtomics{e.atomics} }}
	case TearAtomics:
		return &wrapping{iface: retrying, ep: func(e *epParts) { e.atomics = &tearingAtomics{Atomics: e.atomics, e: e} }}
	case LeakDescriptor:
		return &wrapping{iface: func(i *ifaceParts) { i.Iface = &leakingIface{i.Iface} }}
	case UnfairPending, PendingLIFO, PendingTwice, Overtake:
		return breakingPending(k)
	case LoseWakeup:
		return &wrapping{iface: func(i *ifaceParts) { i.wake = &sleepyWaker{Waker: i.wake} }}
	case TrustAddress:
		return &wrapping{iface: func(i *ifaceParts) { i.addr = &trustingAddresser{i.addr} }}
	case TrustKey:
		return &wrapping{md: func(m *mdParts) { m.unpack = &trustingUnpacker{m.unpack} }}
	case CloseInUse:
		return &wrapping{md: func(m *mdParts) { m.MD = &carelessMD{m.MD} }}
	case Allocate:
		return &wrapping{ep: func(e *epParts) { e.eachPost(func(string) { garbage.Store(new([64]byte)) }) }}
	case SpawnGoroutine:
		return &wrapping{ep: spawning}
	}
	panic("ucttest: " + k.String())
}

// garbage keeps allocations from being optimised away.
var garbage atomic.Pointer[[64]byte]
