// Command perftest measures what each layer of gucx costs: the same operations
// through verbs, UCT and UCP on the same device, between two processes. Run it
// without arguments; see --help and docs/perftest.md.
package main

import "github.com/gucx/gucx/perftest/perf"

func main() { perf.Main() }
