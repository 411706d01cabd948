package layer

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sideConn is one side; its puts copy to the memory of the other side.
type sideConn struct {
	Conn
	memory, local []byte
	put           *copyOp
}

func (c *sideConn) Op(Spec) (Op, error) { return c.put, nil }

func (c *sideConn) Memory() []byte { return c.memory }
func (c *sideConn) Local() []byte  { return c.local }

// copyOp puts n bytes to dst; each Poll runs the other side.
type copyOp struct {
	dst, src []byte
	polled   func() error
}

func (o *copyOp) Post() error      { copy(o.dst, o.src); return nil }
func (o *copyOp) Flush() error     { return nil }
func (o *copyOp) Poll() error      { return o.polled() }
func (o *copyOp) Result() uint64   { return 0 }
func (o *copyOp) Variant() Variant { return Bcopy }

// pingPair connects two sides; the target runs whenever the initiator polls.
func pingPair(t *testing.T, n int) (Op, Part, *sideConn, *sideConn) {
	a := &sideConn{memory: make([]byte, 64), local: make([]byte, 64)}
	b := &sideConn{memory: make([]byte, 64), local: make([]byte, 64)}
	var part Part
	spec := Spec{Kind: PutPing, Size: n}
	a.put = &copyOp{b.memory, a.local[:n], func() error { _, err := part.Progress(); return err }}
	b.put = &copyOp{a.memory, b.local[:n], func() error { return nil }}
	op, err := NewPing(a, spec)
	require.NoError(t, err)
	part, err = NewPong(b, spec)
	require.NoError(t, err)
	return op, part, a, b
}

func TestPing_ReturnsNumbers(t *testing.T) {
	for _, n := range []int{1, 2, 7, 8, 9, 64} {
		op, part, a, b := pingPair(t, n)
		for range 600 { // numbers wrap around
			require.NoError(t, op.Post())
			require.NoError(t, op.Flush())
		}
		count, err := part.Finish()
		require.NoError(t, err)
		assert.Equal(t, uint64(600), count)
		assert.NoError(t, CheckStamp(a.memory[:n], 600%256))
		assert.NoError(t, CheckStamp(b.memory[:n], 600%256))
		assert.Error(t, CheckStamp(b.memory[:n], 1))
		assert.Equal(t, Bcopy, op.(Varied).Variant())
	}
}

func TestPing_IgnoresOldReplies(t *testing.T) {
	a := &sideConn{memory: make([]byte, 16), local: make([]byte, 16)}
	Stamp(a.memory[:9], 1)
	gone := errors.New("gone")
	a.put = &copyOp{make([]byte, 16), a.local[:9], func() error { return gone }}
	op, err := NewPing(a, Spec{Size: 9})
	require.NoError(t, err)
	require.NoError(t, op.Post())
	assert.ErrorIs(t, op.Flush(), gone, "Flush must wait, and return the error of Poll")
}

func TestWatch_WantsBothBytes(t *testing.T) {
	mem := make([]byte, 64)
	for _, n := range []int{2, 8, 9, 33} {
		w, err := newWatch(mem, n)
		require.NoError(t, err)
		mem[0] = 5
		assert.False(t, w.shows(5), "only the first byte, of %d", n)
		mem[n-1] = 5
		assert.True(t, w.shows(5), "both bytes, of %d", n)
		mem[0] = 4
		assert.False(t, w.shows(5), "only the last byte, of %d", n)
	}
}

func TestWatch_RejectsUnsuitableMemory(t *testing.T) {
	for _, c := range []struct {
		mem  []byte
		n    int
		want string
	}{
		{make([]byte, 64), 0, "cannot be watched"},
		{make([]byte, 64), 65, "cannot be watched"},
		{make([]byte, 68), 66, "cannot be watched"},
		{make([]byte, 64)[1:], 8, "not aligned"},
	} {
		_, err := newWatch(c.mem, c.n)
		assert.ErrorContains(t, err, c.want)
	}
}

func TestPing_DoesNotAllocate(t *testing.T) {
	op, _, _, _ := pingPair(t, 8)
	var failed error
	assert.Zero(t, testing.AllocsPerRun(100, func() { failed = errors.Join(failed, op.Post(), op.Flush()) }))
	assert.NoError(t, failed)
}

func TestVariant(t *testing.T) {
	for _, name := range append(Variants(), "") {
		v, err := ParseVariant(name)
		require.NoError(t, err)
		assert.Equal(t, name, v.String())
	}
	_, err := ParseVariant("inline")
	assert.ErrorContains(t, err, "short, bcopy, zcopy")
	assert.Equal(t, "Variant(4)", numVariants.String())
}

func TestIdle_ContinuesUntilContextEnds(t *testing.T) {
	for _, beside := range []bool{false, true} {
		i := NewIdle(Config{Context: context.Background(), Beside: beside})
		for range 2 * lookInterval {
			require.NoError(t, i.Poll())
		}
	}
}
