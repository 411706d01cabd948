package ib_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// category names e as the library of endpoints does.
func category(t *testing.T, e uct.Endpoints) endpoint.Category {
	t.Helper()
	c, err := endpoint.ParseCategory(e.String())
	require.NoError(t, err)
	return c
}

// categories are all that an iface can be told.
func categories() (list []uct.Endpoints) {
	for e := uct.EndpointsMPIEverywhere; e.Valid(); e++ {
		list = append(list, e)
	}
	return list
}

// openSharing opens a memory domain of the loop device with ifaces in category e.
func openSharing(t *testing.T, e uct.Endpoints) *ib.MD {
	t.Helper()
	path := ib.PathConfig{Endpoints: e}
	c := ib.New(loop, rc.Transport(rc.Config{IB: path}), ud.Transport(ud.Config{IB: path}))
	md, err := c.OpenMD("loop0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, md.Close()) })
	return md.(*ib.MD)
}

func openIface(t *testing.T, md *ib.MD, tl string) uct.Iface {
	t.Helper()
	iface, err := md.OpenIface(uct.IfaceParams{Transport: tl, Device: md.PortName(1)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, iface.Close()) })
	return iface
}

// What one endpoint of rc takes is what the plan of the category says for one thread,
// and the same as the library makes.
func TestSharing_IsThePlan(t *testing.T) {
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

// objects are the counts of a category: thread domains, CQs, QPs, UAR pages.
func objects(r verbs.Resources) [4]int { return [4]int{r.TDs, r.CQs, r.QPs, r.UARPages} }

// What three ifaces take of a context, by category: thread domains and UAR pages.
func TestSharing_Ifaces(t *testing.T) {
	for e, want := range map[uct.Endpoints][4]int{
		uct.EndpointsAuto:          {3, 3, 1, 8 + 3},
		uct.EndpointsDynamic:       {3, 3, 1, 8 + 3},
		uct.Endpoints2xDynamic:     {6, 6, 2, 8 + 6},
		uct.EndpointsSharedDynamic: {3, 3, 1, 8 + 2},
		uct.EndpointsStatic:        {0, 3, 1, 8},
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

// A closed EP takes its spare QP with it.
func TestSharing_SpareGoesToo(t *testing.T) {
	md := openSharing(t, uct.Endpoints2xDynamic)
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

func TestSharing_OneOwner(t *testing.T) {
	for _, c := range []struct {
		first, second uct.Endpoints
		advice        string // empty: both open
	}{
		{uct.EndpointsMPIEverywhere, uct.EndpointsMPIEverywhere, "a memory domain for each thread"},
		{uct.EndpointsMPIEverywhere, uct.EndpointsDynamic, "a memory domain for each thread"},
		{uct.EndpointsStatic, uct.EndpointsMPIEverywhere, "a memory domain for each thread"},
		{uct.EndpointsMPIThreads, uct.EndpointsMPIThreads, "take turns"},
		{uct.EndpointsMPIThreads, uct.EndpointsAuto, "take turns"},
		{uct.EndpointsDynamic, uct.EndpointsStatic, ""},
	} {
		t.Run(c.first.String()+" "+c.second.String(), func(t *testing.T) {
			md := openSharing(t, uct.EndpointsStatic)
			p := uct.IfaceParams{Transport: "rc", Device: md.PortName(1), Endpoints: c.first}
			a, err := md.OpenIface(p)
			require.NoError(t, err)
			p.Endpoints = c.second
			b, err := md.OpenIface(p)
			if c.advice == "" {
				require.NoError(t, err)
				require.NoError(t, b.Close())
			} else {
				require.ErrorIs(t, err, uct.ErrBusy)
				assert.ErrorContains(t, err, c.advice)
			}
			openIface(t, md, "ud") // another transport has a place of its own
			require.NoError(t, a.Close())
			b, err = md.OpenIface(p)
			require.NoError(t, err)
			require.NoError(t, b.Close())
		})
	}
}

func TestSharing_Config(t *testing.T) {
	require.NoError(t, (&ib.PathConfig{Endpoints: uct.EndpointsMPIThreads}).Validate())
	assert.Error(t, (&ib.PathConfig{Endpoints: 9}).Validate())
	assert.Equal(t, uct.EndpointsStatic, ib.PathConfig{Endpoints: uct.EndpointsStatic}.With(uct.EndpointsAuto).Endpoints)
	assert.Equal(t, uct.EndpointsDynamic, ib.PathConfig{Endpoints: uct.EndpointsStatic}.With(uct.EndpointsDynamic).Endpoints)
}

// Which locks the queues of an iface take.
func TestSharing_Locks(t *testing.T) {
	for e, want := range map[uct.Endpoints]struct{ qp, cq bool }{
		uct.EndpointsMPIEverywhere: {qp: true},
		uct.Endpoints2xDynamic:     {},
		uct.EndpointsDynamic:       {},
		uct.EndpointsSharedDynamic: {},
		uct.EndpointsStatic:        {qp: true},
		uct.EndpointsMPIThreads:    {qp: true, cq: true},
	} {
		t.Run(e.String(), func(t *testing.T) {
			var undo cleanup.Stack
			s, err := openSharing(t, e).OpenSharing("rc", 1, e, &undo)
			require.NoError(t, err)
			cq, err := s.CreateCQ(verbs.CQInitAttr{Depth: 1}, &undo)
			require.NoError(t, err)
			qp, err := s.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
			require.NoError(t, err)
			r, ok := qp.Register()
			require.True(t, ok)
			assert.Equal(t, want.qp, r.QueueLock)
			assert.False(t, r.RegisterLock, "the first has one to itself")
			assert.Equal(t, want.cq, cq.Watch() == nil, "a queue with a lock cannot be watched")
			require.NoError(t, s.CloseQP(qp))
			require.NoError(t, undo.Run())
		})
	}
}
