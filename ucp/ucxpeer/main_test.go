package ucxpeer_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(asGoPeer) != "" {
		fmt.Fprintln(os.Stderr, runGoPeer(os.Stdin, os.Stdout))
		os.Exit(1)
	}
	testenv.Main(m)
}
