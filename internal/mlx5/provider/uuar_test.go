package provider

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// pageCounter allocates UAR pages that are only numbers.
type pageCounter struct{ made, live, limit int }

func (c *pageCounter) pages() *uarPages {
	return &uarPages{
		alloc: func(prm.UARType) (prm.UAR, error) {
			if c.limit > 0 && c.live == c.limit {
				return prm.UAR{}, ucs.ErrNoMemory
			}
			c.made++
			c.live++
			return prm.UAR{Index: uint32(c.made - 1)}, nil
		},
		free: func(prm.UAR) error { c.live--; return nil },
	}
}

func mustConfig(t *testing.T, c mlx5.Config) mlx5.Config {
	t.Helper()
	c, err := c.WithDefaults()
	require.NoError(t, err)
	return c
}

// number of a micro-UAR as the static policy counts them.
func number(u *uuar) int {
	return int(u.uar.Index)*prm.UUARsPerPage + int(u.base-prm.UUAR0)/prm.BFRegLen
}

// 16 QPs get the four low-latency ones, then the medium ones in turn.
func TestStaticUUARs_Order(t *testing.T) {
	var c pageCounter
	s, err := newStaticUUARs(mustConfig(t, mlx5.Config{}), c.pages())
	require.NoError(t, err)
	assert.Equal(t, 8, c.made)
	var got []int
	for range 16 {
		u := s.get()
		got = append(got, number(u))
		assert.Equal(t, number(u) < 12, u.locked, "uUAR %d", number(u))
		assert.True(t, u.blueFlame)
	}
	assert.Equal(t, []int{12, 13, 14, 15, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1}, got)
}

func TestStaticUUARs_Put(t *testing.T) {
	var c pageCounter
	s, err := newStaticUUARs(mustConfig(t, mlx5.Config{}), c.pages())
	require.NoError(t, err)
	taken := make([]*uuar, 8)
	for i := range taken {
		taken[i] = s.get()
	}
	s.put(taken[2])
	assert.Equal(t, 14, number(s.get()), "a low-latency one is free again")
	s.put(taken[4])
	assert.Equal(t, 1, number(s.get()), "least loaded, lowest number")
}

// Without a medium class all that do not get a low-latency one share number 0,
// which has no BlueFlame and needs no lock.
func TestStaticUUARs_NoMediumClass(t *testing.T) {
	var c pageCounter
	s, err := newStaticUUARs(mustConfig(t, mlx5.Config{TotalUUARs: 2, LowLatUUARs: 1}), c.pages())
	require.NoError(t, err)
	assert.Equal(t, 1, number(s.get()))
	for range 3 {
		u := s.get()
		assert.Equal(t, 0, number(u))
		assert.False(t, u.blueFlame)
		assert.False(t, u.locked)
	}
}

func TestStaticUUARs_NoPages(t *testing.T) {
	c := pageCounter{limit: 3}
	_, err := newUUARPolicy(mustConfig(t, mlx5.Config{}), c.pages())
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
}

// The first four QPs are alone on a micro-UAR; the next six bring a page each.
func TestLazyUUARs_Order(t *testing.T) {
	var c pageCounter
	l, err := newLazyUUARs(mustConfig(t, mlx5.Config{UARPolicy: mlx5.UARLazy}), c.pages())
	require.NoError(t, err)
	var pages []int
	var qps []*uuar
	for range 17 {
		qps = append(qps, l.get())
		pages = append(pages, c.made)
	}
	assert.Equal(t, []int{2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 9, 9, 9, 9}, pages)
	for i, u := range qps {
		assert.Equal(t, i >= 4, u.locked, "QP %d", i)
		assert.True(t, u.blueFlame)
	}
	assert.Equal(t, 2, qps[16].users, "12 shared ones, 13 QPs")
	l.put(qps[1])
	assert.Same(t, qps[1], l.get(), "a dedicated one is free again")
	assert.Equal(t, 9, c.made)
}

func TestLazyUUARs_Fallbacks(t *testing.T) {
	c := pageCounter{limit: 1}
	l, err := newLazyUUARs(mustConfig(t, mlx5.Config{UARPolicy: mlx5.UARLazy}), c.pages())
	require.NoError(t, err)
	u := l.get()
	assert.False(t, u.blueFlame, "no page left: the one of the CQs")
	l.put(u)

	c = pageCounter{}
	l, err = newLazyUUARs(mustConfig(t, mlx5.Config{UARPolicy: mlx5.UARLazy, ShutUpBF: true}), c.pages())
	require.NoError(t, err)
	assert.False(t, l.get().blueFlame)
	assert.Equal(t, 1, c.made)

	c = pageCounter{}
	l, err = newLazyUUARs(mustConfig(t, mlx5.Config{UARPolicy: mlx5.UARLazy, SingleThreaded: true}), c.pages())
	require.NoError(t, err)
	for range 10 {
		assert.False(t, l.get().locked)
	}
}

func TestTDUUARs_Sharing(t *testing.T) {
	var c pageCounter
	td := tdUUARs{pages: c.pages(), blueFlame: true}
	a, err := td.get(1)
	require.NoError(t, err)
	b, err := td.get(0)
	require.NoError(t, err)
	assert.NotEqual(t, a.uar.Index, b.uar.Index, "a page each")
	assert.Equal(t, []uint32{prm.UUAR0, prm.UUAR0}, []uint32{a.base, b.base})

	var pair [4]*uuar
	for i := range pair {
		pair[i], err = td.get(2)
		require.NoError(t, err)
	}
	assert.Same(t, pair[0].page, pair[1].page, "an even and an odd one")
	assert.Same(t, pair[2].page, pair[3].page)
	assert.Equal(t, []uint32{prm.UUAR0, prm.UUAR1}, []uint32{pair[0].base, pair[1].base})
	assert.Equal(t, 4, c.live)

	require.NoError(t, td.put(pair[0], 2))
	again, err := td.get(2)
	require.NoError(t, err)
	assert.Same(t, pair[0], again)
	for i, u := range []*uuar{again, pair[1], pair[2], pair[3]} {
		require.NoError(t, td.put(u, 2), i)
	}
	require.NoError(t, td.put(a, 1))
	require.NoError(t, td.put(b, 0))
	assert.Zero(t, c.live)
	assert.Empty(t, td.half)

	for _, level := range []int{-1, 3, 16} {
		_, err = td.get(level)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	}
}

func TestTDUUARs_Limit(t *testing.T) {
	var c pageCounter
	td := tdUUARs{pages: c.pages()}
	var last *uuar
	for range maxDynamicPages {
		u, err := td.get(1)
		require.NoError(t, err)
		last = u
	}
	_, err := td.get(1)
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
	require.NoError(t, td.put(last, 1))
	_, err = td.get(1)
	assert.NoError(t, err)
}

// The resource table of the scalable-endpoints paper for 16 threads, and the same
// categories under the lazy policy.
func TestResources_ScalableEndpoints(t *testing.T) {
	cases := []struct {
		name           string
		ctxs, tds, qps int // tds, qps in each context
		sharing        int
		static, lazy   [2]int // pages, uUARs
	}{
		{"MPI everywhere", 16, 0, 1, 0, [2]int{128, 256}, [2]int{32, 64}},
		{"2xDynamic", 1, 32, 32, 1, [2]int{40, 80}, [2]int{33, 66}},
		{"Dynamic", 1, 16, 16, 1, [2]int{24, 48}, [2]int{17, 34}},
		{"Shared Dynamic", 1, 16, 16, 2, [2]int{16, 32}, [2]int{9, 18}},
		{"Static", 1, 0, 16, 0, [2]int{8, 16}, [2]int{9, 18}},
		{"MPI+threads", 1, 0, 1, 0, [2]int{8, 16}, [2]int{2, 4}},
	}
	for _, c := range cases {
		for policy, want := range map[mlx5.UARPolicy][2]int{mlx5.UARStatic: c.static, mlx5.UARLazy: c.lazy} {
			t.Run(fmt.Sprintf("%s/policy %d", c.name, policy), func(t *testing.T) {
				var sum verbs.Resources
				for range c.ctxs {
					r := newRig(t, mlx5.Config{UARPolicy: policy})
					r.qpsInDomains(c.tds, c.qps, c.sharing)
					got, ok := r.ctx.Resources()
					require.True(t, ok)
					sum.Add(got)
				}
				assert.Equal(t, want, [2]int{sum.UARPages, sum.UUARs})
				assert.Equal(t, c.ctxs*c.qps, sum.QPs)
				assert.Equal(t, c.ctxs*c.tds, sum.TDs)
				assert.Equal(t, sum.UUARs, sum.UUARsUsed+sum.UUARsWasted)
				assert.Positive(t, sum.Bytes.QPs)
				assert.Equal(t, int64(sum.UARPages)*uarLen, sum.Bytes.UARs)
			})
		}
	}
}

// qpsInDomains makes TDs and a QP for each, or QPs without TD.
func (r *rig) qpsInDomains(tds, qps, sharing int) {
	cq := r.cq(verbs.CQInitAttr{})
	var all []*verbs.TD
	for range tds {
		td, err := r.ctx.AllocTD(verbs.TDInitAttr{Sharing: sharing})
		require.NoError(r.t, err)
		r.t.Cleanup(func() { require.NoError(r.t, td.Close()) })
		all = append(all, td)
	}
	for i := range qps {
		attr := verbs.QPInitAttr{SendCQ: cq}
		if tds > 0 {
			attr.TD = all[i]
		}
		r.qp(attr)
	}
}

func TestNew_Refused(t *testing.T) {
	_, err := New(newFakeHW(), mlx5.Config{TotalUUARs: 513})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)

	hw := newFakeHW()
	hw.uarLimit = 5
	_, err = New(hw, mlx5.Config{})
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
	assert.Zero(t, hw.uars, "what was allocated is given back")
	require.NoError(t, hw.Close())
}

// A constructor that does not get to its end leaves nothing behind.
func TestCreate_Unwinds(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	cq := r.cq(verbs.CQInitAttr{})
	before := r.prov.Resources()
	no := errors.New("no")
	create := map[string]func() error{
		"PD":  func() error { _, err := r.ctx.AllocPD(); return err },
		"CQ":  func() error { _, err := r.ctx.CreateCQ(verbs.CQInitAttr{Depth: 4}); return err },
		"SRQ": func() error { _, err := r.pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 4}); return err },
		"QP": func() error {
			_, err := r.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq})
			return err
		},
		"MR": func() error { _, err := r.pd.RegMR(make([]byte, 8), verbs.AccessLocalWrite); return err },
		"AH": func() error { _, err := r.pd.CreateAH(verbs.AHAttr{Port: 1, Global: true}); return err },
	}
	for name, f := range create {
		t.Run(name, func(t *testing.T) {
			r.hw.refuse = no
			assert.ErrorIs(t, f(), no)
			assert.Equal(t, before, r.prov.Resources())
			assert.Zero(t, len(r.prov.events.qps)+len(r.prov.events.srqs))
		})
	}
}
