package attach

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// roleEnv makes the test binary a second process instead; see child_test.go.
const roleEnv = "GUCX_ATTACH_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := runChild(role); err != nil {
			fmt.Fprintln(os.Stderr, role, err)
			os.Exit(1)
		}
		return
	}
	startPoller()
	goleak.VerifyTestMain(m)
}

// startPoller makes the runtime open its poller's descriptors, which would count as
// leaks of the first test otherwise.
func startPoller() {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	_, _ = r.Close(), w.Close()
}
