package instr

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// standinEnv makes the traced child use rigs with a few calls into each layer instead of the data paths of the
// layers. Its value selects the fault.
const standinEnv = "GUCX_INSTR_TEST_STANDIN"

// TestMain makes this test binary the program that the command traces.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != childName {
		// The race detector sleeps a second at exit, and a test starts many children.
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	set := openers
	if fault, ok := os.LookupEnv(standinEnv); ok {
		set = map[Part]opener{
			Verbs: func(string, string) (rig, error) { return standin{Verbs, fault}, nil },
			UCT:   func(string, string) (rig, error) { return standin{UCT, fault}, nil },
		}
	}
	cmd := newCommand(set)
	cmd.SetArgs(os.Args[1:])
	if cmd.Execute() != nil {
		os.Exit(1)
	}
}

type standin struct {
	api   Part
	fault string
}

var (
	errStandin = errors.New("broken on purpose")
	sinkText   string
	sinkLen    int
	state      = verbs.QPStateRTS
	iov        = []uct.IOV{{Buf: make([]byte, 3)}, {Buf: make([]byte, 4)}}
)

func (s standin) steps(c Case) (steps, error) {
	if c.Op == Get {
		return steps{}, fmt.Errorf("stand-in has no %v: %w", c.Op, errors.ErrUnsupported)
	}
	fail := func(when string) func() error {
		return func() error {
			if s.fault == when {
				return errStandin
			}
			return nil
		}
	}
	op := verbsCall
	if s.api == UCT {
		op = uctCall
	}
	if s.fault == "op" {
		op = func() error { return errStandin }
	}
	if s.fault == "void" {
		op = func() error { return errVoid }
	}
	return steps{before: fail("before"), op: op, after: fail("after")}, nil
}

func (s standin) Close() error {
	if s.fault == "close" {
		return errStandin
	}
	return nil
}

// verbsCall is not inlined, so that both APIs execute the same code.
//
//go:noinline
func verbsCall() error {
	sinkText = state.String()
	return nil
}

func uctCall() error {
	sinkLen = uct.IOVLen(iov)
	return verbsCall()
}

// fullDisk is a writer without room.
type fullDisk struct{}

var errDiskFull = errors.New("no space left on device")

func (fullDisk) Write([]byte) (int, error) { return 0, errDiskFull }
