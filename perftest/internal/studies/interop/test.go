package interop

import (
	"fmt"
	"strings"
)

// Test is a measured operation.
type Test struct {
	Name string `json:"name"`
	// PingPong: each operation is a message in each direction, and half of the time is reported.
	PingPong bool `json:"ping_pong"`
	// Width: as many operations are in flight as the study selects, otherwise one.
	Width bool `json:"width"`
	// FromTarget: only the initiator receives data.
	FromTarget bool `json:"from_target"`
}

// Names of tests.
const (
	tagLat = "tag_lat"
	tagBW  = "tag_bw"
	amLat  = "am_lat"
	putLat = "put_lat"
	putBW  = "put_bw"
	getLat = "get_lat"
	getBW  = "get_bw"
)

var tests = []Test{
	{Name: tagLat, PingPong: true},
	{Name: tagBW, Width: true},
	{Name: amLat, PingPong: true},
	{Name: putLat},
	{Name: putBW, Width: true},
	{Name: getLat, FromTarget: true},
	{Name: getBW, Width: true, FromTarget: true},
}

// Tests are all tests.
func Tests() []Test { return tests }

// Names returns the names of all tests.
func Names() (names []string) {
	for _, t := range tests {
		names = append(names, t.Name)
	}
	return names
}

// ParseTest returns the test with a name.
func ParseTest(name string) (Test, error) {
	for _, t := range tests {
		if t.Name == name {
			return t, nil
		}
	}
	return Test{}, fmt.Errorf("%s does not run with UCX; there are %s", name, strings.Join(Names(), ", "))
}

// hops is the number of messages by which the time of an operation is divided.
func (t Test) hops() int {
	if t.PingPong {
		return 2
	}
	return 1
}
