// Command perftest measures what each layer of gucx costs: the same operations
// through verbs, UCT and UCP on the same device, between two processes. Run it
// without arguments; see --help and docs/perftest.md.
package main

import (
	"os"

	"github.com/gucx/gucx/perftest/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
