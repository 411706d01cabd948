// Package ibtest has the common fixtures of the tests of the InfiniBand transports and of their cores:
// memory domains on software devices, harnesses of package ucttest for them, and runs of a test over each
// implementation of posting (package verbs or direct verbs).
package ibtest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ucttest"
)

// Device is the device of all ifaces in these tests: port 1 of the software device.
const Device = deviceName + ":1"

const deviceName = "dev"

// OpenMD opens an MD on a new software device.
func OpenMD(fabric softhca.Fabric, transports ...ib.Transport) (uct.MD, error) {
	dev, err := softhca.NewDevice(softhca.Config{Name: deviceName, Fabric: fabric})
	if err != nil {
		return nil, err
	}
	list := func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }
	return ib.New(list, transports...).OpenMD(deviceName)
}

// NewMD is OpenMD for an MD that the clean-up of the test closes.
func NewMD(t testing.TB, fabric softhca.Fabric, transports ...ib.Transport) *ib.MD {
	t.Helper()
	md, err := OpenMD(fabric, transports...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, md.Close()) })
	return md.(*ib.MD)
}

// Poster is a transport with its own implementation of posting and polling, and a label for subtests.
type Poster struct {
	Label string
	ib.Transport
}

// Each runs f as a subtest for each poster.
func Each(t *testing.T, posters []Poster, f func(t *testing.T, over Poster)) {
	require.NotEmpty(t, posters)
	for _, p := range posters {
		t.Run(p.Label, func(t *testing.T) { f(t, p) })
	}
}

// Suite is a transport that package ucttest tests.
type Suite struct {
	ib.Transport
	// Config returns the configuration for the queue lengths of the suite, which are short.
	Config func(o ucttest.Options) any
	// OneSided means that over shm puts complete while the peer is stopped.
	OneSided bool
	// OneSidedAM means that over shm messages for which the peer has receives complete while the peer is stopped.
	OneSidedAM bool
}

// On returns the harness of the transport over a fabric, without peers in other processes.
func (s Suite) On(fabric softhca.Fabric) ucttest.Harness {
	return ucttest.Harness{
		OpenMD:    func() (uct.MD, error) { return OpenMD(fabric, s.Transport) },
		SharedMD:  fabric == softhca.FabricLoop,
		Transport: s.Name(),
		Config:    s.Config,
	}
}

// Peers returns the harness of the transport over shm, with peers that are child processes. TestMain must call
// ucttest.PeerMain with a harness of that name.
func (s Suite) Peers(name string) ucttest.Harness {
	h := s.On(softhca.FabricShm)
	h.StartPeer, h.OneSided, h.OneSidedAM = ucttest.ExecPeer(name), s.OneSided, s.OneSidedAM
	return h
}

// CQDepth is the length of completion queues in entries, enough for the suite. It is smaller than the default of 4096,
// because opening an iface writes each entry.
const CQDepth = 256

// minRxDepth is the minimum receive-queue length of the transports' configurations.
const minRxDepth = 4

// RxDepth returns the length of the receive queue for o. It returns 0, which means the default, if o.RxDepth is 0.
func RxDepth(o ucttest.Options) int {
	if o.RxDepth == 0 {
		return 0
	}
	return max(o.RxDepth, minRxDepth)
}

// dyingTimeout is the timeout after which a transport that detects a dead peer only by time fails an EP. It is many
// times longer than a busy machine delays a process. The devices of these tests report the death earlier.
const dyingTimeout = 20 * time.Second

// UDTimeout returns the timeout of an unreliable transport for o. It returns 0, which means the default, unless
// o.PeerDies is set.
func UDTimeout(o ucttest.Options) time.Duration {
	if o.PeerDies {
		return dyingTimeout
	}
	return 0
}

// likeDynamic lists slow checks whose result does not depend on the category: they wait for a timer of the device, sleep
// 300 times, revoke memory, or put 2 GiB.
var likeDynamic = []string{"close/peer", "wake/race", "revoke/allocated", "revoke/registered", "revoke/local", "revoke/iface", "limit/put"}

// ofTheDevice lists checks of the device, whose result depends neither on the transport nor on the category.
var ofTheDevice = append([]string{"peer/revoke", "atomic/senders", "atomic/linearizable"}, likeDynamic...)

// Brief returns h for a second suite over a fabric: without the checks of the device, unless testenv.Sweep is set.
func Brief(h ucttest.Harness) ucttest.Harness {
	h.Except = testenv.UnlessSweep(ofTheDevice...)
	return h
}

// sharing lists the categories in which ifaces share objects or registers. In the others, as in the default, they do
// not.
var sharing = []ib.Endpoints{ib.EndpointsStatic, ib.EndpointsSharedDynamic, ib.EndpointsMPIThreads}

// Categories runs the suite for the categories in sharing (only for the first of them unless all is set), without
// likeDynamic. With testenv.Soak it also runs the categories without sharing other than the default, and all checks. in
// returns a configuration with category e. Each side has its own memory domain, because some categories allow only one
// owner.
func (s Suite) Categories(t *testing.T, all bool, in func(config any, e ib.Endpoints) any) {
	for e := ib.EndpointsMPIEverywhere; e.Valid(); e++ {
		if e == ib.EndpointsDynamic {
			continue // the default
		}
		t.Run(e.String(), func(t *testing.T) {
			if !all && e != sharing[0] {
				t.Skip("the suite of Static represents all categories")
			}
			if !slices.Contains(sharing, e) && !testenv.Soak() {
				t.Skip("only with GUCX_TEST_SOAK=1: ifaces share nothing, as in the default")
			}
			h := s.On(softhca.FabricShm)
			h.Config = func(o ucttest.Options) any { return in(s.Config(o), e) }
			if !testenv.Soak() {
				h.Except = likeDynamic
			}
			ucttest.Test(t, h)
		})
	}
}
