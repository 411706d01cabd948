package ucp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// TestRndvChoice_Follows: the cached choice is for one length and one access, and is dropped when lanes change. Large
// data is slower by get over one lane than in fragments, and faster over two lanes; then one lane is lost.
func TestRndvChoice_Follows(t *testing.T) {
	const short, long = 512, tlsets.MemLen
	messages, first, second := faketp.LikeUD(), faketp.LikeRC(), faketp.LikeRC()
	messages.Latency, messages.Bandwidth = time.Microsecond, 3<<29
	for _, k := range []*faketp.Kind{&first, &second} {
		k.Caps, k.Latency, k.Bandwidth = k.Caps&^uct.CapAMBcopy, 0, 1<<30
	}
	second.Device = "b"
	p := newPair(t, faketp.Set("fakes", messages, first, second), Config{MaxRMARails: 2, RndvThresh: 1})
	e := p.ep
	by := func(n int, gettable bool) proto.Scheme {
		s, _ := e.chooseScheme(n, reach{gettable: gettable, unregisteredAccess: true})
		return s
	}
	for range 2 {
		assert.Equal(t, proto.Get, by(short, true))
		assert.Equal(t, proto.Fragments, by(long, true))
		assert.Equal(t, proto.Get, by(short, true))
		assert.Equal(t, proto.Fragments, by(short, false))
	}

	by(long, true)
	require.NoError(t, p.finish(e.Put([]byte{1}, p.key.Addr(), p.key, nil)))
	p.until(func() bool { return e.SharedLanes() == 2 })
	assert.Equal(t, proto.Get, by(long, true), "over two lanes")

	rail := e.RailLanes()[1]
	require.NotSame(t, rail, e.lane(wireup.RMA))
	rail.EP.(*faketp.EP).Fail(ucs.StatusTimedOut)
	p.until(func() bool { return e.SharedLanes() < 2 })
	assert.Equal(t, proto.Fragments, by(long, true), "one of them is lost")
}
