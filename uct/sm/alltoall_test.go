package sm

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

// smMappings counts the mappings of this process that belong to this transport.
func smMappings(t testing.TB) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(maps), "gucx-")
}

// meshes are meshes of one process that connect to each other and to themselves.
type meshes []*mesh

func (ms meshes) progress() {
	for _, m := range ms {
		m.progress()
	}
}

// openMeshes opens a mesh of n ifaces for each station, and connects each iface to all ifaces.
func openMeshes(t *testing.T, stations []*station, n int) meshes {
	var ms meshes
	var all []exchangedInfo
	for _, s := range stations {
		m := openMesh(t, s, n)
		ms = append(ms, m)
		for _, it := range m.ifaces {
			all = append(all, exchangedInfo{Device: it.DeviceAddr(nil), Iface: it.IfaceAddr(nil)})
		}
	}
	for _, m := range ms {
		m.open(t, all)
	}
	want := len(all)
	testenv.ProgressWithin(t, watchdog, func() bool {
		for _, m := range ms {
			for _, e := range m.eps {
				if e.state == epIdle {
					_ = e.postError() // dials
				}
			}
		}
		ms.progress()
		for _, m := range ms {
			for _, e := range m.eps {
				if e.state != epUp {
					require.NotEqual(t, epFailed, e.state, "%v", e.reason)
					return false
				}
			}
		}
		return true
	})
	for _, m := range ms {
		for _, e := range m.eps {
			require.NoError(t, e.AMShort(idSink, 0, nil))
		}
	}
	testenv.ProgressWithin(t, watchdog, func() bool {
		ms.progress()
		got := 0
		for _, m := range ms {
			got += m.got
		}
		return got == want*want
	})
	return ms
}

// TestProcess_MapsLinksTogether: the ifaces of a process, in two domains, that all send to all of them have one mapping for many
// links, and two of each arena and table: that of the owner, and one for all peers.
func TestProcess_MapsLinksTogether(t *testing.T) {
	const ifaces, domains = 12, 2
	before := smMappings(t)
	stations := []*station{openStation(t, Config{}), openStation(t, Config{})}
	own := smMappings(t) - before
	require.Equal(t, 2*domains, own, "an arena and a table for each domain")
	ms := openMeshes(t, stations, ifaces)
	const links = (ifaces * domains) * (ifaces * domains)
	assert.LessOrEqual(t, smMappings(t)-before, 2*own+links/64+8)
	for _, m := range ms {
		m.close(t)
	}
	for _, s := range stations {
		s.close(t)
	}
	testenv.ProgressWithin(t, watchdog, func() bool { return smMappings(t) == before })
}

// TestProcess_CloseInAnyOrder: whichever ifaces, EPs and domains of a process close first, the others work, EPs to a
// closed iface fail with ErrPeerClosed, and at the end nothing is mapped.
func TestProcess_CloseInAnyOrder(t *testing.T) {
	const ifaces = 3
	orders := map[string]func(t *testing.T, stations []*station, ms meshes){
		"first domain first": func(t *testing.T, stations []*station, ms meshes) {
			ms[0].close(t)
			stations[0].close(t)
			failedTo(t, ms[1], ifaces)
			ms[1].close(t)
			stations[1].close(t)
		},
		"second domain first": func(t *testing.T, stations []*station, ms meshes) {
			ms[1].close(t)
			stations[1].close(t)
			failedTo(t, ms[0], ifaces)
			ms[0].close(t)
			stations[0].close(t)
		},
		"EPs first": func(t *testing.T, stations []*station, ms meshes) {
			for i := range ms[0].eps {
				require.NoError(t, ms[i%2].eps[i].Close())
				require.NoError(t, ms[1-i%2].eps[len(ms[0].eps)-1-i].Close())
				ms.progress()
			}
			ms[0].close(t)
			ms[1].close(t)
			stations[0].close(t)
			stations[1].close(t)
		},
		"ifaces in turn": func(t *testing.T, stations []*station, ms meshes) {
			for i := range ifaces {
				require.NoError(t, ms[0].ifaces[i].Close())
				ms[1].progress()
				require.NoError(t, ms[1].ifaces[ifaces-1-i].Close())
			}
			stations[1].close(t)
			stations[0].close(t)
		},
		"no progress": func(t *testing.T, stations []*station, ms meshes) {
			for i := range ifaces {
				require.NoError(t, ms[0].ifaces[i].Close())
				require.NoError(t, ms[1].ifaces[i].Close())
			}
			stations[0].close(t)
			stations[1].close(t)
		},
	}
	before := smMappings(t)
	for name, closeAll := range orders {
		t.Run(name, func(t *testing.T) {
			for range testenv.Rounds(2, 100) {
				stations := []*station{openStation(t, Config{}), openStation(t, Config{})}
				closeAll(t, stations, openMeshes(t, stations, ifaces))
				testenv.ProgressWithin(t, watchdog, func() bool { runtime.Gosched(); return smMappings(t) == before })
			}
		})
	}
}

// failedTo waits until the EPs of m to the first or the last n ifaces have failed, as these ifaces have closed. The other EPs
// of m are up.
func failedTo(t *testing.T, m *mesh, n int) {
	t.Helper()
	count := func() (failed int) {
		for _, e := range m.eps {
			if e.state == epFailed {
				failed++
			}
		}
		return failed
	}
	want := len(m.ifaces) * n
	testenv.ProgressWithin(t, watchdog, func() bool { m.progress(); return count() >= want })
	require.Equal(t, want, count())
	for _, e := range m.eps {
		if e.state == epFailed {
			require.ErrorIs(t, e.reason, ucs.ErrPeerClosed)
		} else {
			require.NoError(t, e.AMShort(idSink, 0, nil))
		}
	}
	got := m.got
	testenv.ProgressWithin(t, watchdog, func() bool { m.progress(); return m.got == got+len(m.eps)-want })
}
