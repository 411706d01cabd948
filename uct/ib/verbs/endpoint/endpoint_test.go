package endpoint_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

func device(t *testing.T, cfg softhca.Config) *verbs.Device {
	t.Helper()
	cfg.Fabric = softhca.FabricLoop
	dev, err := softhca.NewDevice(cfg)
	require.NoError(t, err)
	return dev
}

func open(t *testing.T, dev *verbs.Device, n int, cfg endpoint.Config) *endpoint.Set {
	t.Helper()
	set, err := endpoint.Open(dev, n, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	return set
}

// table lists the objects of 16 threads as in the study, and with a lazy policy for UAR pages. A wasted micro-UAR is one
// in which no thread rings a doorbell.
var table = []struct {
	category               endpoint.Category
	contexts, tds          int
	qps, cqs               int
	pages, uuars, wasted   int // static policy
	lazyPages, lazyWasted  int
	registers, bothLocks   int // distinct registers; QPs whose post and register are locked
	queueLocks, cqsLocked1 int
}{
	{endpoint.MPIEverywhere, 16, 0, 16, 16, 128, 256, 240, 32, 48, 16, 0, 16, 0},
	{endpoint.TwoXDynamic, 1, 32, 32, 32, 40, 80, 64, 33, 50, 16, 0, 0, 0},
	{endpoint.Dynamic, 1, 16, 16, 16, 24, 48, 32, 17, 18, 16, 0, 0, 0},
	{endpoint.SharedDynamic, 1, 16, 16, 16, 16, 32, 16, 9, 2, 16, 0, 0, 0},
	{endpoint.Static, 1, 0, 16, 16, 8, 16, 1, 9, 2, 15, 12, 16, 0},
	{endpoint.MPIThreads, 1, 0, 1, 1, 8, 16, 15, 2, 3, 1, 0, 1, 1},
}

func TestCategories_SixteenThreads(t *testing.T) {
	for _, c := range table {
		t.Run(c.category.String(), func(t *testing.T) {
			set := open(t, device(t, softhca.Config{}), 16, endpoint.Config{Plan: c.category.Plan(16)})
			r, ok := set.Resources()
			require.True(t, ok)
			assert.Equal(t, []int{c.contexts, c.tds, c.qps, c.cqs}, []int{r.Contexts, r.TDs, r.QPs, r.CQs})
			assert.Equal(t, []int{c.pages, c.uuars, c.registers, c.wasted},
				[]int{r.UARPages, r.UUARs, r.UUARsUsed, r.UUARsWasted})
			assert.Positive(t, r.Bytes.Total())
			require.Len(t, set.Endpoints, 16)
			locks := lockedQPs(t, set)
			assert.Equal(t, [2]int{c.queueLocks, c.bothLocks}, locks)
			assert.Equal(t, c.cqsLocked1, lockedCQs(set))
		})
	}
}

// lockedQPs returns the number of distinct QPs with a queue lock, and of those with a register lock too.
func lockedQPs(t *testing.T, set *endpoint.Set) (n [2]int) {
	seen := map[*verbs.QP]bool{}
	for _, e := range set.Endpoints {
		for _, qp := range e.QPs {
			reg, ok := qp.Register()
			require.True(t, ok)
			if seen[qp] {
				continue
			}
			seen[qp] = true
			if reg.QueueLock {
				n[0]++
			}
			if reg.QueueLock && reg.RegisterLock {
				n[1]++
			}
		}
	}
	return n
}

// lockedCQs returns the number of CQs with a lock, which are those without a watch.
func lockedCQs(set *endpoint.Set) int {
	seen := map[*verbs.CQ]bool{}
	for _, e := range set.Endpoints {
		if e.CQ.Watch() == nil {
			seen[e.CQ] = true
		}
	}
	return len(seen)
}

// Contexts use most of the memory, so memory decreases from MPIEverywhere, with a context for each thread, to
// MPIThreads.
func TestCategories_Memory(t *testing.T) {
	var last int64
	for i, c := range table {
		set := open(t, device(t, softhca.Config{}), 16, endpoint.Config{Plan: c.category.Plan(16)})
		r, ok := set.Resources()
		require.True(t, ok)
		if i > 0 {
			assert.LessOrEqual(t, r.Bytes.Total(), last, "%v", c.category)
		}
		last = r.Bytes.Total()
		assert.Positive(t, r.Bytes.Reserved)
	}
}

func TestCategories_LazyPolicy(t *testing.T) {
	for _, c := range table {
		t.Run(c.category.String(), func(t *testing.T) {
			dev := device(t, softhca.Config{Queues: mlx5.Config{UARPolicy: mlx5.UARLazy}})
			set := open(t, dev, 16, endpoint.Config{Plan: c.category.Plan(16)})
			r, ok := set.Resources()
			require.True(t, ok)
			assert.Equal(t, []int{c.lazyPages, 2 * c.lazyPages, c.lazyWasted}, []int{r.UARPages, r.UUARs, r.UUARsWasted})
		})
	}
}

// A QP in a thread domain of its own context uses 18 micro-UARs, so a device has UAR pages for 907 such contexts. The
// test uses a device with a tenth of the pages.
func TestNaiveEndpoints_ExhaustTheDevice(t *testing.T) {
	naive := endpoint.Config{Plan: endpoint.Plan{Domain: 1}}
	set := open(t, device(t, softhca.Config{}), 1, naive)
	r, ok := set.Resources()
	require.True(t, ok)
	assert.Equal(t, []int{9, 18, 1, 17}, []int{r.UARPages, r.UUARs, r.UUARsUsed, r.UUARsWasted})

	small := device(t, softhca.Config{UARPages: 99})
	set = open(t, small, 11, naive)
	_, err := endpoint.Open(small, 1, naive)
	require.ErrorIs(t, err, ucs.ErrNoMemory)
	assert.ErrorContains(t, err, "all 99 UAR pages of the device are in use")
	require.NoError(t, set.Close())
	open(t, small, 11, naive)
}

func TestOpen_DomainsExhausted(t *testing.T) {
	_, err := endpoint.Open(device(t, softhca.Config{}), 513, endpoint.Config{Plan: endpoint.Plan{Context: 513, Domain: 1}})
	require.ErrorIs(t, err, ucs.ErrNoMemory)
	assert.ErrorContains(t, err, "512 dynamic UAR pages")
	open(t, device(t, softhca.Config{}), 513, endpoint.Config{Plan: endpoint.Plan{Context: 513, Domain: 2}})
}

func TestOpen_Refused(t *testing.T) {
	for name, c := range map[string]struct {
		plan endpoint.Plan
		n    int
		text string
	}{
		"no threads":             {endpoint.Plan{}, 0, "0 threads"},
		"level 3":                {endpoint.Plan{Domain: 3}, 1, "sharing level 3"},
		"negative level":         {endpoint.Plan{Domain: -1}, 1, "sharing level -1"},
		"negative ways":          {endpoint.Plan{CQ: -1}, 1, "-1 threads"},
		"PD across contexts":     {endpoint.Plan{PD: 2}, 4, "PD"},
		"CQ across contexts":     {endpoint.Plan{Context: 6, CQ: 4}, 12, "CQ"},
		"QP across CQs":          {endpoint.Plan{Context: 4, PD: 4, QP: 4, CQ: 2}, 4, "QP"},
		"QP across PDs":          {endpoint.Plan{Context: 4, QP: 2, CQ: 2}, 4, "PD"},
		"shared QP in a domain":  {endpoint.Plan{Context: 4, PD: 4, QP: 4, CQ: 4, Domain: 1}, 4, "thread domain"},
		"SharedDynamic and a QP": {endpoint.Plan{Context: 2, PD: 2, QP: 2, CQ: 2, Domain: 2}, 2, "thread domain"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := endpoint.Open(device(t, softhca.Config{}), c.n, endpoint.Config{Plan: c.plan})
			require.ErrorIs(t, err, ucs.ErrInvalidParam)
			assert.ErrorContains(t, err, c.text)
		})
	}
}

// TestOpen_Groups checks which threads share which objects if the number of threads is no multiple of the degrees of
// sharing.
func TestOpen_Groups(t *testing.T) {
	set := open(t, device(t, softhca.Config{}), 5, endpoint.Config{
		Plan: endpoint.Plan{Context: 4, PD: 2, CQ: 2, Domain: 1}, QPs: 2, Cap: verbs.QPCap{MaxSendWR: 8}, CQDepth: 4})
	for i, want := range []endpoint.Shares{
		{Context: 0, PD: 0, CQ: 0, QP: 0, CQUsers: 2, QPUsers: 1},
		{Context: 0, PD: 0, CQ: 0, QP: 1, CQUsers: 2, QPUsers: 1},
		{Context: 0, PD: 1, CQ: 1, QP: 2, CQUsers: 2, QPUsers: 1},
		{Context: 0, PD: 1, CQ: 1, QP: 3, CQUsers: 2, QPUsers: 1},
		{Context: 1, PD: 2, CQ: 2, QP: 4, CQUsers: 1, QPUsers: 1},
	} {
		assert.Equal(t, want, set.Endpoints[i].SharedBy, i)
	}
	e := set.Endpoints
	assert.Len(t, set.Contexts(), 2)
	assert.Same(t, e[0].Context, e[3].Context)
	assert.Same(t, e[0].PD, e[1].PD)
	assert.Same(t, e[2].CQ, e[3].CQ)
	assert.NotSame(t, e[1].PD, e[2].PD)
	assert.Nil(t, e[3].CQ.Watch(), "shared, so locked")
	assert.NotNil(t, e[4].CQ.Watch(), "not shared")
	require.Len(t, e[0].QPs, 2)
	a, _ := e[0].QPs[0].Register()
	b, _ := e[0].QPs[1].Register()
	assert.Equal(t, a, b, "both are in the thread's domain")
	assert.Equal(t, 15, e[0].CQ.Depth())
}

func TestConfig_LockCQ(t *testing.T) {
	set := open(t, device(t, softhca.Config{}), 2, endpoint.Config{LockCQ: true})
	assert.Equal(t, 2, lockedCQs(set))
}

func TestPlan_WithCQ(t *testing.T) {
	assert.Equal(t, 4, endpoint.Dynamic.Plan(16).WithCQ(4).CQ)
	assert.Equal(t, 16, endpoint.MPIThreads.Plan(16).WithCQ(4).CQ, "who shares a QP shares its CQ")
	set := open(t, device(t, softhca.Config{}), 16, endpoint.Config{Plan: endpoint.TwoXDynamic.Plan(16).WithCQ(4)})
	r, _ := set.Resources()
	assert.Equal(t, []int{8, 32}, []int{r.CQs, r.QPs})
}

func TestCategory_Text(t *testing.T) {
	for _, c := range endpoint.Categories() {
		text, err := c.MarshalText()
		require.NoError(t, err)
		var back endpoint.Category
		require.NoError(t, back.UnmarshalText(text))
		assert.Equal(t, c, back)
	}
	c, err := endpoint.ParseCategory("2XDYNAMIC")
	require.NoError(t, err)
	assert.Equal(t, endpoint.TwoXDynamic, c)
	_, err = endpoint.ParseCategory("3xDynamic")
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	assert.ErrorContains(t, err, "2xDynamic, Dynamic")
	assert.Equal(t, "Category(9)", endpoint.Category(9).String())
}
