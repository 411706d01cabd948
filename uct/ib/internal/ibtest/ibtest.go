// Package ibtest is what the tests of the InfiniBand transports and of their cores share:
// memory domains on software devices, the harness of package ucttest over them, and
// a test over each way to post.
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

// Device is the device of all ifaces in these tests: the port of the software device.
const Device = deviceName + ":1"

const deviceName = "dev"

// OpenMD opens an MD on a software device of its own.
func OpenMD(fabric softhca.Fabric, transports ...ib.Transport) (uct.MD, error) {
	dev, err := softhca.NewDevice(softhca.Config{Name: deviceName, Fabric: fabric})
	if err != nil {
		return nil, err
	}
	list := func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }
	return ib.New(list, transports...).OpenMD(deviceName)
}

// NewMD is OpenMD for an MD that is closed with the test.
func NewMD(t testing.TB, fabric softhca.Fabric, transports ...ib.Transport) *ib.MD {
	t.Helper()
	md, err := OpenMD(fabric, transports...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, md.Close()) })
	return md.(*ib.MD)
}

// Poster is a transport, which posts and polls in its own way, with what tests call it.
type Poster struct {
	Label string
	ib.Transport
}

// Each runs a test over all posters.
func Each(t *testing.T, posters []Poster, f func(t *testing.T, over Poster)) {
	require.NotEmpty(t, posters)
	for _, p := range posters {
		t.Run(p.Label, func(t *testing.T) { f(t, p) })
	}
}

// Suite is a transport that package ucttest tests.
type Suite struct {
	ib.Transport
	// Config is the configuration for the queue lengths that the suite wants: short
	// ones.
	Config func(o ucttest.Options) any
	// OneSided: over shm, puts end while the peer is stopped.
	OneSided bool
	// OneSidedAM: so do messages that the peer has receives for.
	OneSidedAM bool
}

// On is the suite over a fabric, within a process.
func (s Suite) On(fabric softhca.Fabric) ucttest.Harness {
	return ucttest.Harness{
		OpenMD:    func() (uct.MD, error) { return OpenMD(fabric, s.Transport) },
		SharedMD:  fabric == softhca.FabricLoop,
		Transport: s.Name(),
		Config:    s.Config,
	}
}

// Peers is the suite over shm, with peers that are processes: runs of the test binary
// in which ucttest.PeerMain knows the name.
func (s Suite) Peers(name string) ucttest.Harness {
	h := s.On(softhca.FabricShm)
	h.StartPeer, h.OneSided, h.OneSidedAM = ucttest.ExecPeer(name), s.OneSided, s.OneSidedAM
	return h
}

// CQDepth is the length of completion queues, for all that the suite sends at a time: each
// entry is written before an iface is open, and the default has 4096.
const CQDepth = 256

// minRxDepth is the least that the configurations of the transports take.
const minRxDepth = 4

// RxDepth is the length of the receive queue for o; 0, which is the default, if o has
// none.
func RxDepth(o ucttest.Options) int {
	if o.RxDepth == 0 {
		return 0
	}
	return max(o.RxDepth, minRxDepth)
}

// dyingTimeout is when a transport that learns by time alone gives up a peer that was
// killed: many times what a busy machine lets a process wait for a processor. These devices
// tell it before.
const dyingTimeout = 20 * time.Second

// UDTimeout is the timeout of an unreliable transport for o; 0, which is the default, if
// the peer lives.
func UDTimeout(o ucttest.Options) time.Duration {
	if o.PeerDies {
		return dyingTimeout
	}
	return 0
}

// likeDynamic are the checks that take long for what no category changes: a timer of the
// device, 300 sleeps, memory that is revoked, and a put of 2 GiB.
var likeDynamic = []string{"close/peer", "wake/race", "revoke/allocated", "revoke/registered", "revoke/local", "revoke/iface", "limit/put"}

// ofTheDevice are the checks of what is the device's alone, whatever a transport posts and
// its ifaces share.
var ofTheDevice = append([]string{"peer/revoke", "atomic/senders", "atomic/linearizable"}, likeDynamic...)

// Brief is a suite beside another one over the same fabric, and leaves out what is of the
// device, unless testenv.Sweep.
func Brief(h ucttest.Harness) ucttest.Harness {
	h.Except = testenv.UnlessSweep(ofTheDevice...)
	return h
}

// sharing are the categories in which ifaces share something. The others, like the
// default, share nothing.
var sharing = []ib.Endpoints{ib.EndpointsStatic, ib.EndpointsSharedDynamic, ib.EndpointsMPIThreads}

// Categories runs the suite for each category of endpoints of sharing, if all, else for
// the first, without likeDynamic; for all but the default, with all checks, if
// testenv.Soak. in is the configuration for one. Each side has a memory domain of its own,
// as categories with one owner want.
func (s Suite) Categories(t *testing.T, all bool, in func(config any, e ib.Endpoints) any) {
	for e := ib.EndpointsMPIEverywhere; e.Valid(); e++ {
		if e == ib.EndpointsDynamic {
			continue // the default
		}
		t.Run(e.String(), func(t *testing.T) {
			if !all && e != sharing[0] {
				t.Skip("a suite for each category; the one whose ifaces share registers stands for them")
			}
			if !slices.Contains(sharing, e) && !testenv.Soak() {
				t.Skip("only with GUCX_TEST_SOAK=1: it shares nothing, as the default")
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
