// Package tlsets has the sets of transports over which tests of package ucp run, and the sizes that these tests use.
package tlsets

import (
	"cmp"
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

// Sizes are lengths of transfers, in bytes, around the limits of all transports that tests use.
var Sizes = []int{0, 1, 7, 8, 31, 32, 33, 64, 255, 256, 257, 1000, 4096, 4097, 8192, 8193, 20000, 64 << 10}

const (
	// MemLen is the length of the memory of each worker of a pair, in bytes.
	MemLen = 64 << 10
	// RndvThresh is Config.RndvThresh of pairs, in bytes, if the test does not set it: large messages use
	// rendezvous from the same length on every machine.
	RndvThresh = 32 << 10
)

// Set is a set of transports.
type Set struct {
	Name string
	// Open returns the components of two processes that can reach each other. Both results may be the same.
	Open func(t testing.TB) (a, b []uct.Component)
	// TLS selects among the transports of the components; the zero value selects all.
	TLS config.List
	// Oneself says that the transports reach only their own worker: both ends of a pair must be one worker.
	Oneself bool
	// MessagesOnly says that the transports have no puts, gets and atomics.
	MessagesOnly bool
	// Like is the name of a set over which most tests do the same; tests over this set are then for sweeps.
	Like string
}

// Run runs a subtest over the set. It skips the test if the set is like another one and this is no sweep.
func (s Set) Run(t *testing.T, f func(t *testing.T)) {
	t.Run(s.Name, func(t *testing.T) {
		if s.Like != "" {
			testenv.SkipSweep(t, "as over "+s.Like)
		}
		f(t)
	})
}

// Real returns a set of the transports of gucx that tls selects; all without names. ib is over the software HCA.
// The components of the two ends share nothing.
func Real(name string, tls ...string) Set {
	s := Set{Name: name, Open: func(testing.TB) (a, b []uct.Component) {
		return Components(all.Config{}), Components(all.Config{})
	}}
	if len(tls) > 0 {
		s.TLS = config.Allow(tls...)
	}
	return s
}

// RealSets returns a set for each transport that can carry all operations, and sets of several transports. With -short under the
// race detector, it returns one set for each way in which goroutines take part: those of tcp, those of the software HCA, by
// verbs and by its queues, and all.
func RealSets() []Set {
	if testenv.RaceEnabled && testing.Short() {
		return []Set{Real("tcp", "tcp"), Real("rc", `\rc`), Real("rc_mlx5", "rc_mlx5"), Real("all")}
	}
	self := Real("self", "self")
	self.Oneself = true
	alike := func(to, name string, tls ...string) Set {
		s := Real(name, tls...)
		s.Like = to
		return s
	}
	return []Set{
		self,
		Real("sm", "sm"),
		Real("tcp", "tcp"),
		Real("rc", `\rc`), // ud carries the handshakes
		Real("rc_mlx5", "rc_mlx5"),
		alike("rc", "xrc", `\xrc`),
		alike("rc_mlx5", "xrc_mlx5", "xrc_mlx5"),
		alike("rc", "rc+ud", `\rc`, `\ud`),
		alike("rc", "rc+tcp", `\rc`, "tcp"),
		alike("all", "sm+self+tcp", "sm", "self", "tcp"),
		Real("all"),
	}
}

// Components returns the components of all transports, with short queues: a worker writes each entry of its
// completion queues when it opens them, and tests open thousands of workers.
func Components(c all.Config) []uct.Component {
	const tx, rx, queues = 512, 256, 4096
	c.RC.TxCQDepth, c.RC.RxDepth = tx, rx
	c.RCMLX5.TxCQDepth, c.RCMLX5.RxDepth = tx, rx
	c.XRC.TxCQDepth, c.XRC.RxDepth, c.XRC.QueueCQDepth = tx, rx, queues
	c.XRCMLX5.TxCQDepth, c.XRCMLX5.RxDepth, c.XRCMLX5.QueueCQDepth = tx, rx, queues
	c.UD.RxDepth = cmp.Or(c.UD.RxDepth, rx)
	c.UDMLX5.RxDepth = rx
	return c.Components()
}
