package softhca_test

import (
	"bufio"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// footprint counts the resources of a process that a peer may use.
type footprint struct{ descriptors, mappings, goroutines int }

func measure(t *testing.T) (f footprint) {
	t.Helper()
	maps, err := os.Open("/proc/self/maps")
	require.NoError(t, err)
	defer func() { require.NoError(t, maps.Close()) }()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if strings.Contains(lines.Text(), "/memfd:") {
			f.mappings++
		}
	}
	f.descriptors, f.goroutines = testenv.OpenFiles(t), runtime.NumGoroutine()
	return f
}

// The resources of peers that were connected and are gone are released: the links in both
// directions. The test posts to the QPs that were connected to them until they fail.
func TestChurn_ReleasesResourcesOfPeers(t *testing.T) {
	for name, c := range map[string]struct {
		role string
		end  func(t *testing.T, n *node, c *child)
	}{
		"close gracefully": {"closer", func(t *testing.T, n *node, c *child) {
			require.NoError(t, c.In.Close())
			n.untilError(c)
			require.NoError(t, n.qp.Close())
		}},
		"killed while they write": {"hammer", func(t *testing.T, n *node, c *child) {
			require.NoError(t, c.Process.Kill())
			n.untilError(c)
			require.NoError(t, n.qp.Close())
		}},
		"closed by the server first": {"closer", func(t *testing.T, n *node, c *child) {
			require.NoError(t, n.qp.Close())
			require.NoError(t, c.In.Close())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := openNode(t, softhca.Config{})
			before := measure(t)
			for range testenv.Rounds(6, 340) {
				require.NoError(t, n.qp.Close())
				n.qp = n.newQP()
				p := startChild(t, n, c.role)
				n.write(p)
				n.succeed(1)
				c.end(t, n, p)
				_ = p.Wait()
			}
			testenv.ProgressWithin(t, patience, func() bool {
				now := measure(t)
				return now.descriptors <= before.descriptors && now.mappings <= before.mappings && now.goroutines <= before.goroutines
			})
			for n.cq.Poll(n.wcs[:]) > 0 {
			}
		})
	}
}

// write posts a write to a child.
func (n *node) write(c *child) {
	n.send(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{n.mr.SGE(0, 64)}, RemoteAddr: c.Addr, RKey: c.RKey})
}

// untilError writes to a child until the QP fails.
func (n *node) untilError(c *child) {
	n.t.Helper()
	testenv.ProgressWithin(n.t, patience, func() bool {
		n.write(c)
		return n.completion().Status != verbs.WCSuccess
	})
	for n.cq.Poll(n.wcs[:]) > 0 {
	}
}
