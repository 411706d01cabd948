package threads

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Kind is the type of operation of goroutines.
type Kind string

// Kinds.
const (
	Active Kind = "am"
	Tag    Kind = "tag"
	Put    Kind = "put"
	Get    Kind = "get"
)

// Test is a measurement, with the name of perftest for it.
type Test struct {
	Kind Kind
	// Latency waits for each operation before the next; for messages it waits for the reply, and
	// half of the time is reported. Otherwise a window of operations is posted at a time.
	Latency bool
	Name    string
}

// Tests lists all tests.
func Tests() (list []Test) {
	for _, k := range []Kind{Active, Tag, Put, Get} {
		list = append(list, Test{k, true, string(k) + "_lat"}, Test{k, false, string(k) + "_bw"}, Test{k, false, string(k) + "_mr"})
	}
	return list
}

// Names returns the names of all tests.
func Names() (names []string) {
	for _, t := range Tests() {
		names = append(names, t.Name)
	}
	return names
}

// ParseTest returns the test with a name.
func ParseTest(name string) (Test, error) {
	list := Tests()
	i := slices.IndexFunc(list, func(t Test) bool { return t.Name == name })
	if i < 0 {
		return Test{}, fmt.Errorf("%s does not run with threads; there are %s", name, strings.Join(Names(), ", "))
	}
	return list[i], nil
}

// oneSided reports that the target has no work.
func (t Test) oneSided() bool { return t.Kind == Put || t.Kind == Get }

// hops returns the number of operations of equal length in a reported one.
func (t Test) hops() int {
	if t.Latency && !t.oneSided() {
		return 2
	}
	return 1
}

// windowMemory is the maximum memory of a window of messages of a goroutine, in bytes.
const windowMemory = 8 << 20

// windowOf returns the number of operations of a size that are posted at a time.
func (t Test) windowOf(window, size int) int {
	switch {
	case t.Latency:
		return 1
	case t.oneSided():
		return window
	}
	return max(1, min(window, windowMemory/size))
}

// memory returns the number of bytes that a goroutine needs on each side.
func (t Test) memory(window, size int) int {
	if t.oneSided() {
		return size
	}
	return size * t.windowOf(window, size)
}

// step is the function of a goroutine for window k.
type step func(ctx context.Context, k int) error

// initiator returns the step of the side with the clock.
func (t Test) initiator(l *lane) step {
	switch {
	case t.Kind == Put && t.Latency:
		return l.putFlush
	case t.Kind == Put:
		return l.puts
	case t.Kind == Get && t.Latency:
		return l.get
	case t.Kind == Get:
		return l.gets
	case t.Kind == Tag && t.Latency:
		return l.tagPing
	case t.Kind == Tag:
		return l.tagSends
	case t.Latency:
		return l.activePing
	}
	return l.activeSends
}

// target returns the step of the other side.
func (t Test) target(l *lane) step {
	switch {
	case t.Kind == Tag && t.Latency:
		return l.tagPong
	case t.Kind == Tag:
		return l.tagReceives
	case t.Latency:
		return l.activePong
	}
	return l.activeReceives
}
