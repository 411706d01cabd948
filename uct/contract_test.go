package uct

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucs"
)

func TestCaps_EveryBitHasAName(t *testing.T) {
	seen := map[string]bool{}
	for i := range capNames {
		name := Caps(1 << i).String()
		assert.NotEmpty(t, name)
		assert.False(t, seen[name], "name %q twice", name)
		seen[name] = true
	}
}

// TestNumbers: numbers that processes exchange do not change their meaning,
// and numbers that were removed are not used again.
func TestNumbers(t *testing.T) {
	for i, c := range []Caps{
		CapAMShort, CapAMBcopy, CapAMZcopy, CapPutShort, CapPutBcopy, CapPutZcopy, CapGetShort, CapGetBcopy, CapGetZcopy,
		CapAtomic32, CapAtomic64, CapPending, CapConnectIface, CapConnectEP, CapErrPeer, CapErrRemoteMem, CapEventFD,
		CapInterNode, CapLossy, CapErrPeerIdle, CapQueue, CapNotify,
	} {
		assert.Equal(t, Caps(1)<<i, c, "%v", c)
	}
	for i, op := range []AtomicOp{AtomicAdd, AtomicAnd, AtomicOr, AtomicXor, AtomicSwap, AtomicCSwap} {
		assert.Equal(t, AtomicOp(i), op, "%v", op)
		assert.Equal(t, AtomicOps(1)<<i, AtomicSet(op), "%v", op)
	}
	for i, d := range []AtomicDomain{AtomicNone, AtomicDevice, AtomicCPU} {
		assert.Equal(t, AtomicDomain(i), d, "%v", d)
	}
	for i, a := range []Access{AccessLocalWrite, AccessRemoteRead, AccessRemoteWrite, AccessRemoteAtomic} {
		assert.Equal(t, Access(1)<<i, a, "%v", a)
	}
}

func TestStrings(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{Caps(0).String(), ""},
		{CapAMShort.String(), "am_short"},
		{(CapAMShort | CapLossy).String(), "am_short|lossy"},
		{(CapPutBcopy | 1<<63).String(), "put_bcopy|0x8000000000000000"},
		{AtomicCSwap.String(), "cswap"},
		{AtomicOp(200).String(), "unknown"},
		{AtomicSet(AtomicAdd, AtomicSwap).String(), "add|swap"},
		{AccessAll.String(), "local_write|remote_read|remote_write|remote_atomic"},
		{(EventSendComp | EventRecv).String(), "send_comp|recv"},
		{AtomicCPU.String(), "cpu"},
		{AtomicDomain(9).String(), "unknown"},
		{DeviceShm.String(), "shm"},
		{DeviceKind(9).String(), "unknown"},
	} {
		assert.Equal(t, tc.want, tc.in)
	}
}

func TestCaps_GroupsAreDisjoint(t *testing.T) {
	groups := []Caps{CapAM, CapPut, CapGet, CapAtomic}
	n := 0
	var all Caps
	for _, g := range groups {
		n += bits.OnesCount64(uint64(g))
		all |= g
	}
	assert.Equal(t, n, bits.OnesCount64(uint64(all)))
	assert.True(t, all.Has(CapAMShort|CapAtomic64))
	assert.False(t, all.Has(CapAMShort|CapPending))
}

func TestCompletion_FiresAtZeroWithFirstFailure(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   []Status
		want Status
	}{
		{"one", []Status{ucs.StatusOK}, ucs.StatusOK},
		{"all ok", []Status{ucs.StatusOK, ucs.StatusOK, ucs.StatusOK}, ucs.StatusOK},
		{"first failure stays", []Status{ucs.StatusOK, ucs.StatusRemoteAccess, ucs.StatusCanceled}, ucs.StatusRemoteAccess},
		{"success does not clear", []Status{ucs.StatusTimedOut, ucs.StatusOK}, ucs.StatusTimedOut},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fired := 0
			c := &Completion{Count: len(tc.in), Func: func(*Completion) { fired++ }}
			for i, st := range tc.in {
				assert.Equal(t, 0, fired, "before operation %d", i)
				c.Complete(st)
			}
			assert.Equal(t, 1, fired)
			assert.Equal(t, tc.want, c.Status)
		})
	}
}

func TestCompletion_FuncMayReuse(t *testing.T) {
	rounds := 0
	c := &Completion{Count: 1}
	c.Func = func(c *Completion) {
		if rounds++; rounds < 3 {
			c.Count, c.Status = 2, ucs.StatusOK
		}
	}
	for range 5 {
		c.Complete(ucs.StatusOK)
	}
	assert.Equal(t, 3, rounds)
}

func TestAtomicOp_Apply(t *testing.T) {
	for _, tc := range []struct {
		name                string
		op                  AtomicOp
		size                int
		old, compare, value uint64
		want                uint64
	}{
		{"add wraps 64", AtomicAdd, 8, 1<<64 - 1, 0, 2, 1},
		{"add wraps 32", AtomicAdd, 4, 1<<32 - 1, 0, 2, 1},
		{"upper half ignored", AtomicOr, 4, 0xf0, 0, 0xffffffff_0000000f, 0xff},
		{"and", AtomicAnd, 8, 0xff, 0, 0x0f, 0x0f},
		{"xor", AtomicXor, 8, 0xff, 0, 0x0f, 0xf0},
		{"swap", AtomicSwap, 8, 1, 0, 2, 2},
		{"cswap equal", AtomicCSwap, 8, 1, 1, 2, 2},
		{"cswap differs", AtomicCSwap, 8, 3, 1, 2, 3},
		{"cswap compares 4 bytes", AtomicCSwap, 4, 1, 1 | 1<<40, 2, 2},
		{"no such operation", AtomicOp(77), 8, 3, 1, 2, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, tc.op.Apply(tc.size, tc.old, tc.compare, tc.value))
		})
	}
}

func TestAtomicOps_SetMembership(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.Map(rapid.IntRange(0, 5), func(i int) AtomicOp { return AtomicOp(i) })).Draw(t, "ops")
		set := AtomicSet(in...)
		for op := AtomicAdd; op <= AtomicCSwap; op++ {
			want := false
			for _, x := range in {
				want = want || x == op
			}
			assert.Equal(t, want, set.Has(op))
		}
	})
}

func TestIOVLen(t *testing.T) {
	assert.Equal(t, 0, IOVLen(nil))
	assert.Equal(t, 5, IOVLen([]IOV{{Buf: make([]byte, 2)}, {}, {Buf: make([]byte, 3)}}))
}
