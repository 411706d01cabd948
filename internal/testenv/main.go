package testenv

import (
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and fails it if they leave behind goroutines,
// file descriptors, mappings of files or shared memory, or off-heap blocks. It does
// not return. A package that has other things to do in TestMain (to become a child
// process, say) does them first.
func Main(m *testing.M) {
	before := takeInventory()
	code := m.Run()
	if code == 0 && !fuzzing() && reportLeaks(os.Stderr, before) {
		code = 1
	}
	os.Exit(code)
}

// reportLeaks writes what is there now and was not before, and whether that is
// anything. Goroutines that are about to end get goleak's patience to do so, which
// is why they are looked at first: they may hold the rest.
func reportLeaks(w io.Writer, before inventory) bool {
	leaked := false
	if err := goleak.Find(); err != nil {
		fmt.Fprintf(w, "leaked goroutines: %v\n", err)
		leaked = true
	}
	for _, what := range takeInventory().since(before) {
		fmt.Fprintf(w, "leaked %s\n", what)
		leaked = true
	}
	return leaked
}

// fuzzing says whether this process coordinates or does fuzzing: it then has pipes
// and shared memory of package testing.
func fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" && f.Value.String() != "false" {
			return true
		}
	}
	return false
}
