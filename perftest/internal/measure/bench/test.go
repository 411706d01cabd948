package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
)

// Mode is the order of operations and flushes.
type Mode uint8

// Modes.
const (
	// Latency flushes each operation before the next.
	Latency Mode = iota
	// Bandwidth posts a window of operations for each flush.
	Bandwidth
	// Rate is Bandwidth, reported as messages per second.
	Rate
	// PingPong waits for a reply to each operation. The result is half of the round trip.
	PingPong
	// Both is Bandwidth in both directions: the target returns each message, and both are counted.
	Both
)

// Test is one measurement.
type Test struct {
	Name string
	Kind layer.Kind
	Mode Mode
	// Help describes the test in one line.
	Help string
}

var tests = []Test{
	{"put_lat", layer.Put, Latency, "put with remote completion, split into Put and Flush"},
	{"put_bw", layer.Put, Bandwidth, "puts, a window of them for each flush"},
	{"put_mr", layer.Put, Rate, "the same, as a message rate"},
	{"get_lat", layer.Get, Latency, "get with completion"},
	{"get_bw", layer.Get, Bandwidth, "gets, a window of them for each flush"},
	{"get_mr", layer.Get, Rate, "the same, as a message rate"},
	{"add_lat", layer.Add, Latency, "atomic add of 8 bytes without result"},
	{"add_mr", layer.Add, Rate, "rate of the same"},
	{"fadd_lat", layer.FAdd, Latency, "atomic fetch-and-add of 8 bytes"},
	{"fadd_mr", layer.FAdd, Rate, "rate of the same"},
	{"cswap_lat", layer.CSwap, Latency, "atomic compare-and-swap of 8 bytes"},
	{"cswap_mr", layer.CSwap, Rate, "rate of the same"},
	{"flush", layer.Flush, Latency, "flush with nothing outstanding"},
	{"am_lat", layer.AMPing, PingPong, "ping-pong of active messages, half the round trip"},
	{"am_bw", layer.AM, Bandwidth, "active messages, at most a window of them unacknowledged"},
	{"am_mr", layer.AM, Rate, "the same, as a message rate"},
	{"am_bibw", layer.AMPing, Both, "active messages in both directions, as osu_bibw: each is returned, at most a window under way"},
	{"put_pp", layer.PutPing, PingPong, "ping-pong of puts, each side watches its memory, half the round trip"},
	{"tag_lat", layer.TagPing, PingPong, "ping-pong of tagged messages, half the round trip"},
	{"tag_bw", layer.Tag, Bandwidth, "tagged messages, at most a window of them unacknowledged"},
	{"tag_mr", layer.Tag, Rate, "the same, as a message rate"},
	{"tag_bibw", layer.TagPing, Both, "tagged messages in both directions, likewise"},
	{"tag_sync_lat", layer.TagSyncPing, PingPong, "tag_lat with synchronous sends"},
	{"stream_lat", layer.StreamPing, PingPong, "ping-pong of bytes of a stream, half the round trip"},
	{"stream_bw", layer.Stream, Bandwidth, "bytes of a stream, at most a window of sends unacknowledged"},
	{"stream_bibw", layer.StreamPing, Both, "bytes of a stream in both directions: each send is returned"},
}

// aliases maps names of ucx_perftest to names of tests.
var aliases = map[string]string{
	"get": "get_lat", "fadd": "fadd_lat", "cswap": "cswap_lat",
	"ucp_put_lat": "put_lat", "ucp_put_bw": "put_bw", "ucp_get": "get_lat",
	"ucp_add": "add_lat", "ucp_fadd": "fadd_lat", "ucp_cswap": "cswap_lat",
	"ucp_am_lat": "am_lat", "ucp_am_bw": "am_bw",
}

// Tests lists all tests.
func Tests() []Test { return slices.Clone(tests) }

// DefaultTests are the tests of a run without selection: the main comparison.
func DefaultTests() []string { return []string{"put_lat", "put_bw", "get_bw"} }

// MessageTests are the tests of a run without selection, on a transport that supports only
// messages.
func MessageTests() []string { return []string{"am_lat", "am_bw"} }

// FindTest returns the test with a name.
func FindTest(name string) (Test, error) {
	if to, ok := aliases[name]; ok {
		name = to
	}
	for _, t := range tests {
		if t.Name == name {
			return t, nil
		}
	}
	return Test{}, fmt.Errorf("unknown test %q; there are %s", name, strings.Join(TestNames(), ", "))
}

// TestNames lists the names of all tests.
func TestNames() []string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = t.Name
	}
	return names
}

// Sizes returns those sizes of a run that are valid for the test.
func (t Test) Sizes(all []int) []int {
	switch {
	case t.Kind == layer.Flush:
		return []int{0}
	case t.Kind.Atomic():
		return []int{layer.WordLen}
	case !t.Kind.CanBeEmpty():
		return slices.DeleteFunc(slices.Clone(all), func(n int) bool { return n == 0 })
	}
	return all
}

// Window returns the number of operations that the test posts for each flush, in a run with this
// window.
func (t Test) Window(window int) int {
	if t.Mode == Latency || t.Mode == PingPong {
		return 1
	}
	return window
}

// Stream reports whether a batch has only one flush, at its end: a window limits the number of
// outstanding operations.
func (t Test) Stream() bool { return t.Kind.OneWay() || t.Mode == Both }

// share is the part of the time between post and the end of the flush that is reported for the
// operation.
func (t Test) share() float64 {
	if t.Mode == PingPong || t.Mode == Both {
		return 0.5
	}
	return 1
}
