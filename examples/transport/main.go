// Command transport is perftest with an additional transport, that of package usock:
//
//	go run ./examples/transport -x usock,tcp,sm -t put_lat -s 8,4k
package main

import (
	"github.com/gucx/gucx/examples/transport/usock"
	"github.com/gucx/gucx/perftest/perf"
)

func main() { perf.Main(usock.New()) }
