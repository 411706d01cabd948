package handle_test

import (
	"fmt"

	"github.com/gucx/gucx/internal/handle"
)

// A peer is given a number for a request and sends it back with the answer. One that comes
// after the request has ended finds nothing, though its place in the table is in use again.
func Example() {
	var requests handle.Table[string]
	first := requests.Add("put")
	fmt.Printf("%q\n", requests.Find(first))

	requests.Remove(first)
	second := requests.Add("get")
	fmt.Printf("%q %q, %d place\n", requests.Find(first), requests.Find(second), requests.Places())
	// Output:
	// "put"
	// "" "get", 1 place
}
