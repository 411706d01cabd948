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
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// sender is an iface with an EP to a peer in this process, and memory of the peer.
type sender struct {
	it    uct.Iface
	ep    uct.EP
	far   uct.Iface // iface of the peer
	back  uct.EP    // EP of the peer to ep
	put   uct.Putter
	raddr uint64
	key   uct.RKey
	reqs  []uct.PendingReq
	left  int // number of reqs that are not posted
}

// open opens an iface, which is closed when the test ends, and makes an EP.
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
	return ibtest.NewMD(t, fabric, RC(RCConfig{}), UD(UDConfig{}), rc.Transport(rc.Config{}), ud.Transport(ud.Config{}))
}

// newSender connects ifaces on two devices of a fabric.
func newSender(t testing.TB, fabric softhca.Fabric, tl string, cfg any) *sender {
	t.Helper()
	near := openFabric(t, fabric)
	far := near
	if fabric != softhca.FabricLoop {
		far = openFabric(t, fabric)
	}
	s := &sender{}
	mem, err := far.Ext().Alloc.Alloc(4096, uct.AccessAll)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	packed, err := mem.PackRKey(nil)
	require.NoError(t, err)
	s.key, err = near.Ext().Keys.UnpackRKey(packed)
	require.NoError(t, err)
	s.raddr = mem.Addr()
	var peer uct.EP
	var peerIface uct.Iface
	s.it, s.ep = open(t, near, tl, cfg)
	peerIface, peer = open(t, far, tl, cfg)
	connect := func(ep uct.EP, it uct.Iface, to uct.EP) error {
		return ep.Ops().Connect.Connect(it.Ext().Address.DeviceAddr(nil), to.Ops().Connect.EPAddr(nil))
	}
	require.NoError(t, errors.Join(connect(s.ep, peerIface, peer), connect(peer, s.it, s.ep)))
	s.far, s.back, s.put = peerIface, peer, s.ep.Ops().Put
	return s
}

// postPending adds n puts of buf as pending requests and calls Progress until they are posted.
func (s *sender) postPending(b *testing.B, buf []byte, n int) {
	if s.reqs == nil {
		s.reqs = make([]uct.PendingReq, n)
		for i := range s.reqs {
			s.reqs[i].Func = func(*uct.PendingReq) error {
				err := s.put.PutShort(buf, s.raddr, s.key)
				if err == nil {
					s.left--
				}
				return err
			}
		}
	}
	s.left = n
	for i := range n {
		if err := s.ep.AddPending(&s.reqs[i]); err != nil {
			b.Fatal(err)
		}
	}
	for s.left > 0 {
		s.it.Progress()
	}
}

// flush waits until all posts have completed.
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

// BenchmarkPut8 compares the transports on the same type of device: with a poll after each put, and
// with bursts of 256 puts and a flush.
func BenchmarkPut8(b *testing.B) {
	const burst = 256
	for _, fabric := range []softhca.Fabric{softhca.FabricLoop, softhca.FabricShm} {
		for _, tl := range []string{rc.Name, RCName} {
			s := newSender(b, fabric, tl, rc.Config{TxDepth: 2 * burst, Moderation: 64})
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

// BenchmarkPut8_Paired alternates between the transports after each window, so that both see the
// same noise of the machine, and reports medians. "each" polls after each put. "flush" flushes
// after each window, so that most puts have no completion. "pending" uses a queue of a quarter of
// the window, so that other puts are pending. "lists" uses lists of a quarter of the window, which
// rc does not have.
func BenchmarkPut8_Paired(b *testing.B) {
	const window = 128
	buf := make([]byte, 8)
	put := func(b *testing.B, s *sender) {
		if err := s.put.PutShort(buf, s.raddr, s.key); err != nil {
			b.Fatal(err)
		}
	}
	flushed := func(b *testing.B, s *sender) {
		for range window {
			put(b, s)
		}
		s.flush(b)
	}
	for name, run := range map[string]func(b *testing.B, s *sender){
		"each": func(b *testing.B, s *sender) {
			for range window {
				put(b, s)
				for s.it.Progress() == 0 {
				}
			}
		},
		"flush": flushed,
		"lists": flushed,
		"pending": func(b *testing.B, s *sender) {
			for i := range window {
				if s.put.PutShort(buf, s.raddr, s.key) != nil {
					s.postPending(b, buf, window-i)
					break
				}
			}
			s.flush(b)
		},
	} {
		for _, fabric := range []softhca.Fabric{softhca.FabricLoop, softhca.FabricShm} {
			cfg := RCConfig{Config: rc.Config{TxDepth: 2 * window}}
			switch name {
			case "pending":
				cfg.TxDepth = window / 4
			case "lists":
				cfg.TxPostlist = window / 4
			}
			b.Run(string(fabric)+"/"+name, func(b *testing.B) { paired(b, fabric, cfg, window, run) })
		}
	}
}

// datagrams is an iface that sends and one that receives, in one process.
type datagrams struct {
	it, far uct.Iface
	am      uct.AMSender
	got     int
}

// HandleAM implements uct.AMHandler.
func (d *datagrams) HandleAM([]byte, uct.Desc) bool { d.got++; return false }

func newDatagrams(t testing.TB, fabric softhca.Fabric, tl string, cfg any) *datagrams {
	near := openFabric(t, fabric)
	far := near
	if fabric != softhca.FabricLoop {
		far = openFabric(t, fabric)
	}
	d := &datagrams{}
	for i, md := range []uct.MD{near, far} {
		it, err := md.OpenIface(uct.IfaceParams{Transport: tl, Device: "dev:1", Config: cfg})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, it.Close()) })
		*[]*uct.Iface{&d.it, &d.far}[i] = it
	}
	require.NoError(t, d.far.SetAMHandler(1, d))
	addr := d.far.Ext().Address
	ep, err := d.it.NewEP(uct.EPParams{DeviceAddr: addr.DeviceAddr(nil), IfaceAddr: addr.IfaceAddr(nil)})
	require.NoError(t, err)
	d.am = ep.Ops().AM
	d.send(t, 1)
	return d
}

// send sends n messages and waits until all have arrived.
func (d *datagrams) send(t testing.TB, n int) {
	buf := make([]byte, 8)
	d.got = 0
	for sent := 0; d.got < n; {
		for sent < n {
			err := d.am.AMShort(1, 0, buf)
			if err == uct.ErrNoResource {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			sent++
		}
		d.it.Progress()
		d.far.Progress()
	}
}

// BenchmarkAM8_Paired compares ud, ud_mlx5 and ud_mlx5 with lists like BenchmarkPut8_Paired: one
// goroutine sends and receives messages of 8 bytes, one at a time and in windows.
func BenchmarkAM8_Paired(b *testing.B) {
	const total = 128
	for _, fabric := range []softhca.Fabric{softhca.FabricLoop, softhca.FabricShm} {
		for _, window := range []int{1, total} {
			b.Run(fmt.Sprintf("%s/%d", fabric, window), func(b *testing.B) {
				cfg := ud.Config{MaxPoll: 64}
				rigs := []*datagrams{newDatagrams(b, fabric, ud.Name, cfg), newDatagrams(b, fabric, UDName, cfg),
					newDatagrams(b, fabric, UDName, UDConfig{Config: cfg, TxPostlist: 32})}
				took := make([][]float64, len(rigs))
				for b.Loop() {
					for i, d := range rigs {
						start := time.Now()
						for range total / window {
							d.send(b, window)
						}
						took[i] = append(took[i], float64(time.Since(start).Nanoseconds())/total)
					}
				}
				base := median(took[0])
				b.ReportMetric(base, "ud-ns/msg")
				for i, name := range []string{"ud_mlx5", "lists"} {
					b.ReportMetric(median(took[i+1]), name+"-ns/msg")
					b.ReportMetric(median(took[i+1])/base, name+"-ratio")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func median(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }

// paired runs windows of n puts on both transports alternately.
func paired(b *testing.B, fabric softhca.Fabric, cfg RCConfig, n float64, run func(b *testing.B, s *sender)) {
	s := [2]*sender{newSender(b, fabric, rc.Name, cfg.Config), newSender(b, fabric, RCName, cfg)}
	var took [2][]float64
	for b.Loop() {
		for i := range s {
			start := time.Now()
			run(b, s[i])
			took[i] = append(took[i], float64(time.Since(start).Nanoseconds())/n)
		}
	}
	over, direct := median(took[0]), median(took[1])
	b.ReportMetric(over, "rc-ns/put")
	b.ReportMetric(direct, "rc_mlx5-ns/put")
	b.ReportMetric(direct/over, "ratio")
	b.ReportMetric(0, "ns/op")
}
