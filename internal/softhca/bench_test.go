package softhca_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// putter returns a function that posts an 8-byte inline RDMA write from a to b and polls its completion.
func putter(a, b *node) func(testing.TB) {
	payload := make([]byte, 8)
	wr := []verbs.SendWR{{ID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled | verbs.SendInline,
		Inline: payload, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}}
	wc := make([]verbs.WC, 1)
	return func(t testing.TB) {
		if _, err := a.qp.PostSend(wr); err != nil {
			t.Fatal(err)
		}
		for a.cq.Poll(wc) == 0 {
		}
		if wc[0].Status != verbs.WCSuccess {
			t.Fatal(wc[0].Status)
		}
	}
}

func BenchmarkWriteInline8(b *testing.B) {
	b.Run("loop", func(b *testing.B) {
		x := openNode(b, softhca.Config{Fabric: softhca.FabricLoop})
		y := x.sibling()
		connect(x, y, defaultLink)
		benchPut(b, x, y)
	})
	b.Run("shm", func(b *testing.B) {
		x, y := openNode(b, softhca.Config{}), openNode(b, softhca.Config{})
		connect(x, y, defaultLink)
		benchPut(b, x, y)
	})
}

func benchPut(b *testing.B, x, y *node) {
	put := putter(x, y)
	put(b)
	b.ReportAllocs()
	for b.Loop() {
		put(b)
	}
}

// The data path allocates nothing.
func TestWrite_NoAllocation(t *testing.T) {
	fabrics(t, defaultLink, func(t *testing.T, a, b *node) {
		put := putter(a, b)
		put(t)
		testenv.NoAllocs(t, "write and poll", func() { put(t) })
	})
}

// BenchmarkXRCSend8 measures a send of 8 bytes to an XRC SRQ, its receive and their completions: over
// a private domain, a shared one, and a shared one with two devices that receive alternately.
func BenchmarkXRCSend8(b *testing.B) {
	for name, members := range map[string]int{"private": 0, "shared": 1, "alternating": 2} {
		b.Run(name, func(b *testing.B) {
			i := openNode(b, softhca.Config{}).newInitiator()
			attr := verbs.XRCDInitAttr{FD: verbs.PrivateXRCD}
			if members > 0 {
				attr = sharedDomain(b)
			}
			var xs []*xrcTarget
			var queues []*verbs.SRQ
			for range max(members, 1) {
				x := openNode(b, softhca.Config{}).enterDomain(attr)
				xs, queues = append(xs, x), append(queues, x.newSRQ())
			}
			xs[0].target = xs[0].newTarget()
			b.Cleanup(func() { require.NoError(b, xs[0].target.Close()) })
			connectXRC(i, xs[0], xs[0].target, defaultLink)
			b.ReportAllocs()
			for k := 0; b.Loop(); k++ {
				i.exchange(xs[k%len(xs)], queues[k%len(xs)], 8)
			}
		})
	}
}
