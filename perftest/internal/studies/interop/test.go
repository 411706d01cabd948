package interop

import (
	"fmt"
	"strings"
)

// Test is an operation that is measured.
type Test struct {
	Name string `json:"name"`
	// PingPong: each operation is a message there and one back, and half of its time counts.
	PingPong bool `json:"ping_pong"`
	// Width: as many operations are in flight as the study says, else one.
	Width bool `json:"width"`
	// FromTarget: data arrive at the initiator alone.
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

// Tests are all of them.
func Tests() []Test { return tests }

// Names are those of all tests.
func Names() (names []string) {
	for _, t := range tests {
		names = append(names, t.Name)
	}
	return names
}

// ParseTest finds a test by its name.
func ParseTest(name string) (Test, error) {
	for _, t := range tests {
		if t.Name == name {
			return t, nil
		}
	}
	return Test{}, fmt.Errorf("%s does not run with UCX; there are %s", name, strings.Join(Names(), ", "))
}

// hops is by how many messages the time of an operation is divided.
func (t Test) hops() int {
	if t.PingPong {
		return 2
	}
	return 1
}
