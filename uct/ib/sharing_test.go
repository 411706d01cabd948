package ib_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// category returns the category of package endpoint for e.
func category(t *testing.T, e ib.Endpoints) endpoint.Category {
	t.Helper()
	c, err := endpoint.ParseCategory(e.String())
	require.NoError(t, err)
	return c
}

// categories returns all categories that an iface can have.
func categories() (list []ib.Endpoints) {
	for e := ib.EndpointsMPIEverywhere; e.Valid(); e++ {
		list = append(list, e)
	}
	return list
}

// openSharing opens a memory domain of the loop device with ifaces of category e.
func openSharing(t *testing.T, e ib.Endpoints) *ib.MD {
	t.Helper()
	c := ib.Config{Endpoints: e}.New(loop, rc.Transport(rc.Config{}), ud.Transport(ud.Config{}))
	md, err := c.OpenMD("loop0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, md.Close()) })
	return md.(*ib.MD)
}

func openIface(t *testing.T, md *ib.MD, tl string) uct.Iface {
	t.Helper()
	iface, err := md.OpenIface(uct.IfaceParams{Transport: tl, Device: "loop0:1"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, iface.Close()) })
	return iface
}

// TestSharing_MatchesPlan: an endpoint of rc uses the resources in the plan of its category for one
// thread, as package endpoint does.
func TestSharing_MatchesPlan(t *testing.T) {
	for _, e := range categories() {
		t.Run(e.String(), func(t *testing.T) {
			devs, err := loop()
			require.NoError(t, err)
			set, err := endpoint.Open(devs[0], 1, endpoint.Config{Plan: category(t, e).Plan(1)})
			require.NoError(t, err)
			want, ok := set.Resources()
			require.True(t, ok)
			require.NoError(t, set.Close())

			md := openSharing(t, e)
			ep, err := openIface(t, md, "rc").NewEP(uct.EPParams{})
			require.NoError(t, err)
			got, ok := md.Context().Resources()
			require.True(t, ok)
			assert.Equal(t, objects(want), objects(got))
			require.NoError(t, ep.Close())
		})
	}
}

// objects returns the numbers of thread domains, CQs, QPs and UAR pages.
func objects(r verbs.Resources) [4]int { return [4]int{r.TDs, r.CQs, r.QPs, r.UARPages} }

// TestSharing_ResourcesOfThreeIfaces: three ifaces use these thread domains and UAR pages in each
// category.
func TestSharing_ResourcesOfThreeIfaces(t *testing.T) {
	for e, want := range map[ib.Endpoints][4]int{
		ib.EndpointsAuto:          {3, 3, 1, 8 + 3},
		ib.EndpointsDynamic:       {3, 3, 1, 8 + 3},
		ib.Endpoints2xDynamic:     {6, 6, 2, 8 + 6},
		ib.EndpointsSharedDynamic: {3, 3, 1, 8 + 2},
		ib.EndpointsStatic:        {0, 3, 1, 8},
	} {
		t.Run(e.String(), func(t *testing.T) {
			md := openSharing(t, e)
			for _, tl := range []string{"rc", "ud", "rc"} {
				openIface(t, md, tl)
			}
			r, ok := md.Context().Resources()
			require.True(t, ok)
			assert.Equal(t, want, objects(r))
		})
	}
}

// TestSharing_NoThreadDomainsLeft: a context has 512 thread domains with a UAR page each. Further
// ifaces use none, unless the configuration requires one.
func TestSharing_NoThreadDomainsLeft(t *testing.T) {
	md := openSharing(t, ib.EndpointsAuto)
	for {
		td, err := md.Context().AllocTD(verbs.TDInitAttr{Sharing: 1})
		if err != nil {
			require.ErrorIs(t, err, ucs.ErrNoMemory)
			break
		}
		t.Cleanup(func() { require.NoError(t, td.Close()) })
	}
	before, ok := md.Context().Resources()
	require.True(t, ok)

	ep, err := openIface(t, md, "rc").NewEP(uct.EPParams{})
	require.NoError(t, err)
	after, _ := md.Context().Resources()
	assert.Equal(t, before.TDs, after.TDs)
	assert.Equal(t, before.QPs+1, after.QPs)
	require.NoError(t, ep.Close())

	_, err = md.OpenIface(uct.IfaceParams{Transport: "rc", Device: "loop0:1", Config: in(ib.EndpointsDynamic)})
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
}

// TestSharing_EPCloseClosesSpare: closing an EP also closes its spare QP.
func TestSharing_EPCloseClosesSpare(t *testing.T) {
	md := openSharing(t, ib.Endpoints2xDynamic)
	iface := openIface(t, md, "rc")
	for range 3 {
		ep, err := iface.NewEP(uct.EPParams{})
		require.NoError(t, err)
		require.NoError(t, ep.Close())
	}
	r, ok := md.Context().Resources()
	require.True(t, ok)
	assert.Zero(t, r.QPs)
}

// in returns a configuration of rc with category e.
func in(e ib.Endpoints) rc.Config { return rc.Config{IB: ib.PathConfig{Endpoints: e}} }

func TestSharing_OneOwner(t *testing.T) {
	for _, c := range []struct {
		first, second ib.Endpoints
		advice        string // empty: both open
	}{
		{ib.EndpointsMPIEverywhere, ib.EndpointsMPIEverywhere, "for each thread"},
		{ib.EndpointsMPIEverywhere, ib.EndpointsDynamic, "for each thread"},
		{ib.EndpointsStatic, ib.EndpointsMPIEverywhere, "for each thread"},
		{ib.EndpointsMPIThreads, ib.EndpointsMPIThreads, "take turns"},
		{ib.EndpointsMPIThreads, ib.EndpointsAuto, "take turns"},
		{ib.EndpointsDynamic, ib.EndpointsStatic, ""},
	} {
		t.Run(c.first.String()+" "+c.second.String(), func(t *testing.T) {
			md := openSharing(t, ib.EndpointsAuto)
			p := uct.IfaceParams{Transport: "rc", Device: "loop0:1", Config: in(c.first)}
			a, err := md.OpenIface(p)
			require.NoError(t, err)
			p.Config = in(c.second)
			b, err := md.OpenIface(p)
			if c.advice == "" {
				require.NoError(t, err)
				require.NoError(t, b.Close())
			} else {
				require.ErrorIs(t, err, uct.ErrBusy)
				assert.ErrorContains(t, err, c.advice)
			}
			openIface(t, md, "ud") // another transport is independent
			require.NoError(t, a.Close())
			b, err = md.OpenIface(p)
			require.NoError(t, err)
			require.NoError(t, b.Close())
		})
	}
}

func TestSharing_Config(t *testing.T) {
	require.NoError(t, (&ib.PathConfig{Endpoints: ib.EndpointsMPIThreads}).Validate())
	assert.Error(t, (&ib.PathConfig{Endpoints: 9}).Validate())
	assert.Equal(t, ib.EndpointsStatic, ib.PathConfig{Endpoints: ib.EndpointsStatic}.With(ib.EndpointsAuto).Endpoints)
	assert.Equal(t, ib.EndpointsDynamic, ib.PathConfig{Endpoints: ib.EndpointsStatic}.With(ib.EndpointsDynamic).Endpoints)
}

// TestSharing_Locks: the queues of an iface use these locks in each category.
func TestSharing_Locks(t *testing.T) {
	for e, want := range map[ib.Endpoints]struct{ qp, cq bool }{
		ib.EndpointsMPIEverywhere: {qp: true},
		ib.Endpoints2xDynamic:     {},
		ib.EndpointsDynamic:       {},
		ib.EndpointsSharedDynamic: {},
		ib.EndpointsStatic:        {qp: true},
		ib.EndpointsMPIThreads:    {qp: true, cq: true},
	} {
		t.Run(e.String(), func(t *testing.T) {
			var undo cleanup.Stack
			s, err := openSharing(t, e).OpenSharing("rc", 1, e, undo.Add)
			require.NoError(t, err)
			cq, err := s.CreateCQ(verbs.CQInitAttr{Depth: 1}, undo.Add)
			require.NoError(t, err)
			qp, err := s.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
			require.NoError(t, err)
			r, ok := qp.Register()
			require.True(t, ok)
			assert.Equal(t, want.qp, r.QueueLock)
			assert.False(t, r.RegisterLock, "the first queue has its own register")
			assert.Equal(t, want.cq, cq.Watch() == nil, "a queue with a lock cannot be watched")
			require.NoError(t, s.CloseQP(qp))
			require.NoError(t, undo.Run())
		})
	}
}
