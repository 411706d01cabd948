package layers

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/perftest/internal/measure/pattern"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
	"github.com/gucx/gucx/perftest/internal/peers/session"
	"github.com/gucx/gucx/uct"
)

// everyTransport runs f for each transport, but calls alike, which may skip, for a transport whose protocol
// another one has too.
func everyTransport(t *testing.T, alike func(t testing.TB, why string), f func(t *testing.T, tr device.Transport, caps uct.Caps)) {
	list, err := device.Transports(Config{}.Components("shm"))
	require.NoError(t, err)
	require.NotEmpty(t, list)
	for _, tr := range list {
		t.Run(tr.Resource.Transport, func(t *testing.T) {
			switch tr.Resource.Transport {
			case "rc_mlx5", "xrc", "ud_mlx5":
				alike(t, "as rc or ud")
			}
			caps, err := tr.Caps()
			require.NoError(t, err)
			f(t, tr, caps)
		})
	}
}

// shortOver skips a test with -short for transports other than names.
func shortOver(t *testing.T, tr device.Transport, names ...string) {
	t.Helper()
	if !slices.Contains(names, tr.Resource.Transport) {
		testenv.SkipShort(t, "another test uses it")
	}
}

// sessionFor returns a session with a goroutine as its target, or with itself.
func sessionFor(t *testing.T, tr device.Transport) *session.Session {
	if tr.Kind != uct.DeviceSelf {
		return newSession(t, Config{}.Set())
	}
	s := session.NewLoopback(t.Context(), Config{}.Set())
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// claims returns the capability that a variant of an operation needs.
func claims(k layer.Kind, v layer.Variant) uct.Caps {
	first := map[layer.Kind]uct.Caps{
		layer.AM: uct.CapAMShort, layer.AMPing: uct.CapAMShort,
		layer.Put: uct.CapPutShort, layer.PutPing: uct.CapPutShort, layer.Get: uct.CapGetShort,
	}[k]
	return first << (v - layer.Short)
}

func TestClaims(t *testing.T) {
	assert.Equal(t, uct.CapAMZcopy, claims(layer.AM, layer.Zcopy))
	assert.Equal(t, uct.CapPutBcopy, claims(layer.PutPing, layer.Bcopy))
	assert.Equal(t, uct.CapGetShort, claims(layer.Get, layer.Short))
}

// uctTests returns the tests that uct supports.
func uctTests() []bench.Test {
	return slices.DeleteFunc(bench.Tests(), func(t bench.Test) bool { return t.Kind.Tagged() || t.Kind.Streamed() })
}

// messages is the number of operations of a test that only checks that operations work: more than a
// window. Initiator and target spin, so each operation may take a time slice of the scheduler if other
// processes use the CPUs.
const messages = 10

func TestEveryTransport_RunsEveryTestInEachSupportedVariant(t *testing.T) {
	everyTransport(t, testenv.SkipSweep, func(t *testing.T, tr device.Transport, caps uct.Caps) {
		shortOver(t, tr, "sm", "rc")
		for _, v := range variants {
			plan := bench.Plan{Tests: uctTests(), Sizes: []int{3, 8, 3000}, Layers: []string{"uct"},
				Transport: tr.Resource.Transport, Variant: v,
				Iterations: messages, Warmup: 1, Rounds: 1, Window: 4}
			records, skips := measure(t, plan, sessionFor(t, tr))
			assert.Equal(t, plan.Cells(), len(records)+len(skips))
			for _, test := range uctTests() {
				done := false
				for _, r := range records {
					done = done || r.Test == test.Name && (!test.Kind.Varied() || r.Variant == v.String())
				}
				switch {
				case test.Kind.Varied():
					assert.Equal(t, caps.Has(claims(test.Kind, v)), done, "%s %v", test.Name, v)
				case test.Kind.Atomic():
					assert.Equal(t, caps.Has(uct.CapAtomic64), done, test.Name)
				}
			}
			for _, k := range skips {
				assert.ErrorAs(t, k.Why, new(*layer.LimitError), "%+v", k)
			}
		}
	})
}

// TestUCP_LayoutsOfMessages runs all layouts over a transport with RMA and one without, with eager messages
// in one piece and in fragments, and by rendezvous.
func TestUCP_LayoutsOfMessages(t *testing.T) {
	testenv.SkipShort(t, "five sets of layouts; package ucp tests each of them")
	everyTransport(t, testenv.SkipShort, func(t *testing.T, tr device.Transport, _ uct.Caps) {
		if name := tr.Resource.Transport; name != "sm" && name != "ud" && name != "self" {
			t.Skip("its protocols are those of another transport")
		}
		laid := slices.DeleteFunc(bench.Tests(), func(t bench.Test) bool { return !t.Kind.Laid() })
		tagged := slices.DeleteFunc(bench.Tests(), func(t bench.Test) bool { return !t.Kind.Tagged() })
		for _, c := range []struct {
			layouts string
			tests   []bench.Test
		}{{"iov", laid}, {"generic", laid}, {"iov,iov", tagged}, {"generic,generic", tagged}, {"contig,iov", tagged}} {
			layouts, err := layer.ParseLayouts(c.layouts)
			require.NoError(t, err)
			plan := bench.Plan{Tests: c.tests, Sizes: []int{3, 10_000, 70_000}, Layers: []string{"ucp"},
				Transport: tr.Resource.Transport, Layouts: layouts, Strict: true,
				Iterations: messages, Warmup: 1, Rounds: 1, Window: 4}
			records, _ := measure(t, plan, sessionFor(t, tr))
			assert.Len(t, records, plan.Cells(), c.layouts)
		}
	})
}

// TestUCP_ActiveMessagesArriveInOnePiece: other layouts of the receiver are omitted, with the reason.
func TestUCP_ActiveMessagesArriveInOnePiece(t *testing.T) {
	am, err := bench.FindTest("am_lat")
	require.NoError(t, err)
	tag, err := bench.FindTest("tag_lat")
	require.NoError(t, err)
	plan := bench.Plan{Tests: []bench.Test{am, tag}, Sizes: []int{8, 64}, Layers: []string{"ucp"}, Transport: "sm",
		Layouts: layer.Layouts{Send: layer.IOV, Recv: layer.IOV}, Iterations: 4, Rounds: 1, Window: 1}
	records, skips := measure(t, plan, newSession(t, Config{}.Set()))
	assert.Len(t, records, 2, "tag_lat")
	require.Len(t, skips, 2)
	assert.ErrorContains(t, skips[0].Why, "am_pp iov,iov of 8 bytes: the receiver gets an active message in one piece")
}

// TestUCP_VariantsOfTags runs all variants over a transport with RMA and one without.
func TestUCP_VariantsOfTags(t *testing.T) {
	everyTransport(t, testenv.SkipShort, func(t *testing.T, tr device.Transport, _ uct.Caps) {
		if name := tr.Resource.Transport; name != "sm" && name != "ud" {
			t.Skip("its protocols are those of another transport")
		}
		shortOver(t, tr, "ud")
		tagged := slices.DeleteFunc(bench.Tests(), func(t bench.Test) bool { return !t.Kind.Tagged() })
		for _, c := range []struct{ wildcard, unexpected bool }{{true, false}, {false, true}} {
			plan := bench.Plan{Tests: tagged, Sizes: []int{3, 70_000}, Layers: []string{"ucp"},
				Transport: tr.Resource.Transport, Wildcard: c.wildcard, Unexpected: c.unexpected, Strict: true,
				Iterations: messages, Warmup: 1, Rounds: 1, Window: 4}
			records, _ := measure(t, plan, sessionFor(t, tr))
			assert.Len(t, records, plan.Cells())
		}
	})
}

func TestEveryTransport_ComparesItsLayers(t *testing.T) {
	everyTransport(t, testenv.SkipSweep, func(t *testing.T, tr device.Transport, caps uct.Caps) {
		shortOver(t, tr, "self", "tcp", "ud")
		names := Of(&tr, caps)
		plan := bench.Plan{Tests: bench.Tests(), Sizes: []int{8, 64 << 10}, Layers: names, Missing: true,
			Transport: tr.Resource.Transport, Iterations: messages, Warmup: 1, Rounds: 1, Window: 4}
		records, skips := measure(t, plan, sessionFor(t, tr))
		seen := map[string]bool{}
		for _, r := range records {
			seen[r.Layer] = true
			assert.Equal(t, tr.Resource.Transport, r.Transport)
		}
		for _, name := range names {
			assert.True(t, seen[name], name)
		}
		for _, k := range skips {
			assert.ErrorIs(t, k.Why, errors.ErrUnsupported)
		}
	})
}

var variants = []layer.Variant{layer.Short, layer.Bcopy, layer.Zcopy}

// TestEveryTransport_DoesNotAllocate counts the allocations of both sides, as the target is a goroutine of this
// process.
func TestEveryTransport_DoesNotAllocate(t *testing.T) {
	testenv.SkipShort(t, "another build allocates as much, or more")
	everyTransport(t, testenv.SkipShort, func(t *testing.T, tr device.Transport, caps uct.Caps) {
		s := sessionFor(t, tr)
		for _, name := range Of(&tr, caps) {
			c, err := s.Open(t.Context(), name, oob.Params{Transport: tr.Resource.Transport, Fabric: "shm", MemLen: 1 << 16})
			require.NoError(t, err)
			for _, spec := range specsOf(name, caps) {
				checkAllocs(t, s, name, c, spec)
			}
		}
	})
}

// specsOf returns the operations of a layer over a transport with caps, except atomics and flush, which
// TestEveryLayer_DoesNotAllocate checks.
func specsOf(name string, caps uct.Caps) (specs []layer.Spec) {
	if name == "verbs" {
		specs = []layer.Spec{{Kind: layer.AM, Size: 100, Window: 16}, {Kind: layer.AMPing, Size: 200, Window: 16}}
	}
	if name == "ucp" {
		specs = []layer.Spec{
			{Kind: layer.AM, Size: 100, Window: 16}, {Kind: layer.AMPing, Size: 100, Window: 16},
			{Kind: layer.Tag, Size: 100, Window: 16}, {Kind: layer.TagPing, Size: 100, Window: 16},
			{Kind: layer.Tag, Size: 100, Window: 16, Wildcard: true, Unexpected: true},
			{Kind: layer.TagSyncPing, Size: 100, Window: 16},
			{Kind: layer.AM, Size: 100, Window: 16, Layouts: layer.Layouts{Send: layer.IOV}},
			{Kind: layer.AMPing, Size: 100, Window: 16, Layouts: layer.Layouts{Send: layer.Generic}},
			{Kind: layer.Tag, Size: 100, Window: 16, Layouts: layer.Layouts{Send: layer.IOV, Recv: layer.Generic}},
			{Kind: layer.TagPing, Size: 100, Window: 16, Layouts: layer.Layouts{Send: layer.Generic, Recv: layer.IOV}},
			{Kind: layer.Stream, Size: 100, Window: 16}, {Kind: layer.StreamPing, Size: 100, Window: 16},
		}
	}
	if name != "uct" && caps&uct.CapPut != 0 {
		specs = append(specs, layer.Spec{Kind: layer.PutPing, Size: 100, Window: 16})
	}
	if name != "uct" {
		return specs
	}
	for _, kind := range []layer.Kind{layer.AM, layer.AMPing, layer.PutPing, layer.Put, layer.Get} {
		for _, v := range variants {
			if caps.Has(claims(kind, v)) {
				specs = append(specs, layer.Spec{Kind: kind, Size: 100, Window: 16, Variant: v})
			}
		}
	}
	return specs
}

// checkAllocs checks that posts and flushes of an operation do not allocate.
func checkAllocs(t *testing.T, s *session.Session, name string, c layer.Conn, spec layer.Spec) {
	pattern.Fill(c.Local()[:spec.Size], spec.Seed)
	op, err := c.Op(spec)
	require.NoError(t, err)
	require.NoError(t, s.Prepare(t.Context(), name, spec))
	require.NoError(t, s.Drive(t.Context(), name))
	var failed error
	once := func() { failed = errors.Join(failed, op.Post(), op.Flush()) }
	for range 2 * spec.Window {
		once()
	}
	testenv.NoAllocs(t, fmt.Sprintf("%s %v %v", name, spec.Kind, spec.Variant), once)
	require.NoError(t, failed)
	require.NoError(t, s.Rest(t.Context()))
}
