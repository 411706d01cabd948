package softhca

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// inUse returns the bytes that the process has allocated, on the Go heap and off it.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // completes the sweep of the first
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) + offheap.InUse()
}

// many is the number of objects of each type: so many that allocations of the test are negligible, and
// as many as a context has thread domains.
const many = 512

// The footprint of an object is the memory that the process allocates for it.
func TestFootprint_EqualsAllocation(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector, off-heap memory is on the heap")
	}
	dev, err := NewDevice(Config{Fabric: FabricLoop})
	require.NoError(t, err)
	ctx, err := dev.Open()
	require.NoError(t, err)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(verbs.CQInitAttr{Depth: 64})
	require.NoError(t, err)
	srq, err := pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 16, MaxSGE: 1})
	require.NoError(t, err)
	buf := make([]byte, many)
	qp := func(srq *verbs.SRQ) func() (io.Closer, error) {
		return func() (io.Closer, error) {
			return pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq,
				Cap: verbs.QPCap{MaxSendWR: 64, MaxSendSGE: 1, MaxRecvWR: 1, MaxRecvSGE: 1}})
		}
	}
	for _, c := range []struct {
		name  string
		open  func() (io.Closer, error)
		bytes func(*verbs.ResourceBytes) int64
	}{
		{"PD", func() (io.Closer, error) { return ctx.AllocPD() },
			func(b *verbs.ResourceBytes) int64 { return b.PDs }},
		{"MR", func() (io.Closer, error) { return pd.RegMR(buf, 0) },
			func(b *verbs.ResourceBytes) int64 { return b.MRs }},
		{"TD", func() (io.Closer, error) { return ctx.AllocTD(verbs.TDInitAttr{}) },
			func(b *verbs.ResourceBytes) int64 { return b.TDs + b.UARs }},
		{"CQ", func() (io.Closer, error) { return ctx.CreateCQ(verbs.CQInitAttr{Depth: 64}) },
			func(b *verbs.ResourceBytes) int64 { return b.CQs }},
		{"SRQ", func() (io.Closer, error) {
			return pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 16, MaxSGE: 1})
		}, func(b *verbs.ResourceBytes) int64 { return b.SRQs }},
		{"QP", qp(nil), func(b *verbs.ResourceBytes) int64 { return b.QPs }},
		{"QP with SRQ", qp(srq), func(b *verbs.ResourceBytes) int64 { return b.QPs }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var counted, used int64
			near := func() bool { return math.Abs(float64(used-counted)) <= tolerance*float64(counted)+noise }
			for try := 0; try == 0 || try < looks && !near(); try++ {
				counted, used = footprints(t, ctx, c.open, c.bytes)
			}
			assert.True(t, near(), "%d counted, %d allocated", counted/many, used/many)
		})
	}
	for _, o := range []io.Closer{srq, cq, pd, ctx} {
		require.NoError(t, o.Close())
	}
}

// footprints opens many objects, and returns their footprint and the memory that the process allocates
// meanwhile.
func footprints(t *testing.T, ctx *verbs.Context, open func() (io.Closer, error), bytes func(*verbs.ResourceBytes) int64) (counted, used int64) {
	t.Helper()
	objects := make([]io.Closer, many)
	used, before := inUse(), resources(t, ctx)
	for i := range objects {
		var err error
		objects[i], err = open()
		require.NoError(t, err)
	}
	used, after := inUse()-used, resources(t, ctx)
	for _, o := range objects {
		require.NoError(t, o.Close())
	}
	return bytes(&after.Bytes) - bytes(&before.Bytes), used
}

// looks is the number of tries, as the rest of the process may allocate more than noise during one of
// them.
const looks = 3

// tolerance is for size classes of the allocator, and tables that grow by doubling.
const tolerance = 0.1

// noise is the limit for what the rest of the process allocates or frees meanwhile: 6 KiB were measured.
const noise = 8 << 10

func resources(t *testing.T, ctx *verbs.Context) verbs.Resources {
	t.Helper()
	r, ok := ctx.Resources()
	require.True(t, ok)
	return r
}

// The footprint of a context is its memory and its reserved address space.
func TestFootprint_Context(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector, off-heap memory is on the heap")
	}
	const contexts = 8
	dev, err := NewDevice(Config{Fabric: FabricLoop})
	require.NoError(t, err)
	used := inUse()
	var sum verbs.Resources
	var open []*verbs.Context
	for range contexts {
		ctx, err := dev.Open()
		require.NoError(t, err)
		open = append(open, ctx)
		sum.Add(resources(t, ctx))
	}
	assert.InEpsilon(t, inUse()-used, sum.Bytes.Total()+sum.Bytes.Reserved, tolerance)
	assert.Greater(t, sum.Bytes.Contexts, contexts*hcaLen)
	for _, ctx := range open {
		require.NoError(t, ctx.Close())
	}
}

// written returns the resident memory of the process in segments of the device.
func written(t *testing.T) (n int64) {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	ours := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib int64
		if strings.Contains(lines.Text(), "-") && !strings.HasPrefix(lines.Text(), "VmFlags") {
			ours = strings.Contains(lines.Text(), "/memfd:gucx-")
		} else if _, err := fmt.Sscanf(lines.Text(), "Rss: %d kB", &kib); err == nil && ours {
			n += kib << 10
		}
	}
	return n
}

// The footprint of published receives, of claims and of the directory of a shared domain is the memory
// of the segments that was written.
func TestFootprint_Segments(t *testing.T) {
	dev, err := NewDevice(Config{})
	require.NoError(t, err)
	ctx, err := dev.Open()
	require.NoError(t, err)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	cq, err := ctx.CreateCQ(verbs.CQInitAttr{Depth: 64})
	require.NoError(t, err)
	mr, err := pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite)
	require.NoError(t, err)
	f, err := os.Create(filepath.Join(t.TempDir(), "domain"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	own := func(b verbs.ResourceBytes) int64 { return b.Contexts + b.XRCDs }
	before, counted := written(t), resources(t, ctx).Bytes
	domain, err := ctx.OpenXRCD(verbs.XRCDInitAttr{FD: int(f.Fd()), Flags: os.O_CREATE})
	require.NoError(t, err)
	var open []io.Closer
	for range many {
		s, err := pd.CreateSRQ(verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, XRCD: domain, CQ: cq, MaxWR: 2 * table.ShownRecvs, MaxSGE: 1})
		require.NoError(t, err)
		for range table.ShownRecvs {
			_, err := s.PostRecv([]verbs.RecvWR{{SGList: []verbs.SGE{mr.SGE(0, 64)}}})
			require.NoError(t, err)
		}
		q, err := domain.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
		require.NoError(t, err)
		open = append(open, s, q)
	}
	used, after := written(t)-before, resources(t, ctx).Bytes
	assert.InEpsilon(t, used, own(after)-own(counted), tolerance)
	assert.Less(t, after.Reserved-counted.Reserved, int64(128<<20), "address space of the directory minus used memory")
	for _, c := range append(open, domain, mr, cq, pd, ctx) {
		require.NoError(t, c.Close())
	}
}
