// Package perf is the command perftest for programs with transports of their own: its
// tests, tables, probes and two processes, with more to choose from. The main
// function of such a program is one line:
//
//	func main() { perf.Main(mine.New()) }
//
// Then "PROGRAM info" lists the transport, "PROGRAM -x NAME" measures it through UCT and,
// if it has one-sided operations, through UCP, and "PROGRAM -x NAME,sm" puts it beside one
// of package all. All tests that the transport claims no capability for
// are left out. The program starts itself again as the target of a measurement; the
// child has the argument "peer" (or another hidden command), the same environment, and
// must come to Main or Run as its parent did.
package perf

import (
	"io"
	"os"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/perftest/internal/cli"
	"github.com/gucx/gucx/uct"
)

// Program is perftest with more transports. The zero value is perftest itself.
type Program struct {
	// Name of the program in help and messages; "" means perftest.
	Name string
	// Own are the transports, as for gucx.FromEnv: "info -c" prints their tables. Its
	// Components is called in each process, perhaps more than once, from any goroutine.
	// Of two transports with one name that of package all is measured.
	Own gucx.Own
}

// Main runs perftest with the arguments of the process, and ends the process with its
// exit status. Without components it measures those of package all; the components
// given come besides. They are opened by several goroutines and more than once.
func Main(components ...uct.Component) {
	p := Program{Own: gucx.Own{Components: func() []uct.Component { return components }}}
	os.Exit(p.Run(os.Args[1:], os.Stdout, os.Stderr))
}

// Run runs perftest with arguments, without the name of the program, and returns its
// exit status: 0 well, 1 failed, 2 wrong usage, 3 data was wrong, 77 skipped, 128 plus a
// signal. It takes SIGINT and SIGTERM while it runs. Call it once in a process.
func (p Program) Run(args []string, stdout, stderr io.Writer) int {
	return cli.Program(p).Run(args, stdout, stderr)
}
