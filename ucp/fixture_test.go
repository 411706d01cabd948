package ucp_test

import (
	"log"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

func init() {
	ucppair.Inside.Opened = ucp.AwaitBuffers
	ucppair.Inside.CheckClosed = ucp.CheckPool
}

func TestMain(m *testing.M) {
	if tls := os.Getenv(childEnv); tls != "" {
		if err := serveAsChild(tls); err != nil {
			log.Fatal(err)
		}
		return
	}
	if roles.Run() {
		return
	}
	testenv.Main(m)
}

// oneGoroutine is the reason why the race detector skips a test.
const oneGoroutine = "one goroutine has both ends"

// exact is the mask of a receive that matches one tag.
const exact = ^uint64(0)

// fakes returns the set of transports in memory with a name.
func fakes(name string) tlsets.Set {
	sets := faketp.Sets()
	return sets[slices.IndexFunc(sets, func(s tlsets.Set) bool { return s.Name == name })]
}

// overAll runs a test over transport sets that differ, in sweeps over all.
func overAll(t *testing.T, f func(t *testing.T, p *ucppair.Pair)) {
	for _, set := range faketp.AllSets() {
		set.Run(t, func(t *testing.T) { f(t, ucppair.New(t, set, ucp.Config{})) })
	}
}

// overEvery runs a test over all transport sets.
func overEvery(t *testing.T, f func(t *testing.T, p *ucppair.Pair)) {
	for _, set := range faketp.AllSets() {
		t.Run(set.Name, func(t *testing.T) { f(t, ucppair.New(t, set, ucp.Config{})) })
	}
}

// counters returns the counters of a worker by name.
func counters(w *ucp.Worker) map[string]uint64 { return maps.Collect(w.Stats().Snapshot().All()) }
