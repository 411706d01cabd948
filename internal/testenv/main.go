package testenv

import (
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and fails it if they leak goroutines, file descriptors, mappings of files or shared
// memory, or off-heap blocks. It does not return. If TestMain of a package has other work, such as running a child
// process, it does that first.
func Main(m *testing.M) {
	before := readInventory()
	code := m.Run()
	if code == 0 && !fuzzing() && reportLeaks(os.Stderr, before) {
		code = 1
	}
	os.Exit(code)
}

// reportLeaks writes the resources that have been added since before, and reports whether there are any. goleak waits
// for goroutines that are about to end. They are checked first, because they may use other resources.
func reportLeaks(w io.Writer, before inventory) bool {
	leaked := false
	if err := goleak.Find(); err != nil {
		fmt.Fprintf(w, "leaked goroutines: %v\n", err)
		leaked = true
	}
	for _, what := range readInventory().since(before) {
		fmt.Fprintf(w, "leaked %s\n", what)
		leaked = true
	}
	return leaked
}

// fuzzing reports whether this process coordinates or does fuzzing: it then has pipes and shared memory of package
// testing.
func fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" && f.Value.String() != "false" {
			return true
		}
	}
	return false
}
