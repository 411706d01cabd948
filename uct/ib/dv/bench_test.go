package dv

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// sender is an iface with an EP to a peer in this process, and memory there.
type sender struct {
	it    uct.Iface
	ep    uct.EP
	put   uct.Putter
	raddr uint64
	key   uct.RKey
}

// open opens an iface with an EP that lives as long as the test.
func open(t testing.TB, md uct.MD, tl string, cfg any) (uct.Iface, uct.EP) {
	t.Helper()
	it, err := md.OpenIface(uct.IfaceParams{Transport: tl, Device: "dev:1", Config: cfg,
		OnError: func(_ uct.EP, err error) { t.Error(err) }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, it.Close()) })
	ep, err := it.NewEP(uct.EPParams{})
	require.NoError(t, err)
	return it, ep
}

func openFabric(t testing.TB, fabric softhca.Fabric) uct.MD {
	t.Helper()
	md, err := openMD(fabric, rc.Transport(rc.Config{}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, md.Close()) })
	return md
}

// newSender connects two devices of a fabric.
func newSender(t testing.TB, fabric softhca.Fabric, tl string, cfg any) *sender {
	t.Helper()
	near := openFabric(t, fabric)
	far := near
	if fabric != softhca.FabricLoop {
		far = openFabric(t, fabric)
	}
	s := &sender{}
	mem, err := far.(uct.Allocator).Alloc(4096, uct.AccessAll)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	packed, err := mem.PackRKey(nil)
	require.NoError(t, err)
	s.key, err = near.(uct.RKeyUnpacker).UnpackRKey(packed)
	require.NoError(t, err)
	s.raddr = mem.Addr()
	var peer uct.EP
	var peerIface uct.Iface
	s.it, s.ep = open(t, near, tl, cfg)
	peerIface, peer = open(t, far, tl, cfg)
	connect := func(ep uct.EP, it uct.Iface, to uct.EP) error {
		return ep.(uct.EPConnector).Connect(it.(uct.IfaceAddresser).DeviceAddr(nil), to.(uct.EPConnector).EPAddr(nil))
	}
	require.NoError(t, errors.Join(connect(s.ep, peerIface, peer), connect(peer, s.it, s.ep)))
	s.put = s.ep.(uct.Putter)
	return s
}

// flush waits until everything posted is complete.
func (s *sender) flush(t testing.TB) {
	for {
		pending, err := s.ep.Flush(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !pending {
			return
		}
		if s.it.Progress() == 0 {
			runtime.Gosched()
		}
	}
}

// BenchmarkPut8 compares the transports over the same kind of device: each put with
// its poll, and bursts of 256 with a flush.
func BenchmarkPut8(b *testing.B) {
	const burst = 256
	for _, fabric := range []softhca.Fabric{softhca.FabricLoop, softhca.FabricShm} {
		for _, tl := range []string{rc.Name, RCName} {
			s := newSender(b, fabric, tl, RCConfig{TxDepth: 2 * burst, Moderation: 64})
			buf := make([]byte, 8)
			put := func() {
				if err := s.put.PutShort(buf, s.raddr, s.key); err != nil {
					b.Fatal(err)
				}
			}
			b.Run(fmt.Sprintf("%s/%s/each", fabric, tl), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					put()
					for s.it.Progress() == 0 {
					}
				}
			})
			b.Run(fmt.Sprintf("%s/%s/burst%d", fabric, tl, burst), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					for range burst {
						put()
					}
					s.flush(b)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/burst, "ns/msg")
			})
		}
	}
}

// BenchmarkPut8_Paired lets the transports take turns, window by window, so that
// both see the same noise of the machine, and reports medians.
func BenchmarkPut8_Paired(b *testing.B) {
	const window = 128
	for _, fabric := range []softhca.Fabric{softhca.FabricLoop, softhca.FabricShm} {
		b.Run(string(fabric), func(b *testing.B) {
			var s [2]*sender
			var took [2][]float64
			for i, tl := range []string{rc.Name, RCName} {
				s[i] = newSender(b, fabric, tl, RCConfig{})
			}
			buf := make([]byte, 8)
			each := func(s *sender) float64 {
				start := time.Now()
				for range window {
					if err := s.put.PutShort(buf, s.raddr, s.key); err != nil {
						b.Fatal(err)
					}
					for s.it.Progress() == 0 {
					}
				}
				return float64(time.Since(start).Nanoseconds()) / window
			}
			for b.Loop() {
				for i := range s {
					took[i] = append(took[i], each(s[i]))
				}
			}
			median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
			over, direct := median(took[0]), median(took[1])
			b.ReportMetric(over, "rc-ns/put")
			b.ReportMetric(direct, "rc_mlx5-ns/put")
			b.ReportMetric(direct/over, "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
