package threads

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Kind is what goroutines do.
type Kind string

// Kinds.
const (
	Active Kind = "am"
	Tag    Kind = "tag"
	Put    Kind = "put"
	Get    Kind = "get"
)

// Test is one thing to measure, under the name that perftest has for it.
type Test struct {
	Kind Kind
	// Latency waits for the end of each operation before the next: of messages for the
	// answer, and half of that is reported. Else a window of operations is posted at once.
	Latency bool
	Name    string
}

// Tests are all that there are.
func Tests() (list []Test) {
	for _, k := range []Kind{Active, Tag, Put, Get} {
		list = append(list, Test{k, true, string(k) + "_lat"}, Test{k, false, string(k) + "_bw"}, Test{k, false, string(k) + "_mr"})
	}
	return list
}

// Names are those of all tests.
func Names() (names []string) {
	for _, t := range Tests() {
		names = append(names, t.Name)
	}
	return names
}

// ParseTest is the test of that name.
func ParseTest(name string) (Test, error) {
	list := Tests()
	i := slices.IndexFunc(list, func(t Test) bool { return t.Name == name })
	if i < 0 {
		return Test{}, fmt.Errorf("%s does not run with threads; there are %s", name, strings.Join(Names(), ", "))
	}
	return list[i], nil
}

// oneSided reports that the target takes no part.
func (t Test) oneSided() bool { return t.Kind == Put || t.Kind == Get }

// hops is how many operations of the same length a reported one consists of.
func (t Test) hops() int {
	if t.Latency && !t.oneSided() {
		return 2
	}
	return 1
}

// windowMemory bounds what a window of messages of a goroutine has of memory, in bytes.
const windowMemory = 8 << 20

// windowOf is how many operations of that size are posted at once.
func (t Test) windowOf(window, size int) int {
	switch {
	case t.Latency:
		return 1
	case t.oneSided():
		return window
	}
	return max(1, min(window, windowMemory/size))
}

// memory is how many bytes a goroutine needs on each side.
func (t Test) memory(window, size int) int {
	if t.oneSided() {
		return size
	}
	return size * t.windowOf(window, size)
}

// step is what a goroutine does for window k.
type step func(ctx context.Context, k int) error

// initiator is the side with the clock.
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

// target is the other side of messages.
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
