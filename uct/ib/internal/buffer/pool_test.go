package buffer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestPool(t *testing.T) {
	list := func() ([]*verbs.Device, error) {
		d, err := softhca.NewDevice(softhca.Config{Name: "loop0", Fabric: softhca.FabricLoop})
		return []*verbs.Device{d}, err
	}
	md, err := ib.New(list).OpenMD("loop0")
	require.NoError(t, err)
	defer func() { require.NoError(t, md.Close()) }()
	p, err := NewPool(md.(*ib.MD), 3, 100)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	for want := range uint32(3) {
		i, ok := p.Get()
		require.True(t, ok)
		assert.Equal(t, want, i)
		assert.Len(t, p.Bytes(i), 100)
		assert.Equal(t, 100, cap(p.Bytes(i)), "does not extend into the next buffer")
		p.Bytes(i)[99] = byte(i)
		assert.Zero(t, p.SGE(i, 0, 100).Addr%64)
		assert.Equal(t, p.SGE(i, 0, 1).Addr+9, p.SGE(i, 9, 1).Addr)
	}
	_, ok := p.Get()
	assert.False(t, ok)
	p.Put(1)
	assert.Equal(t, 1, p.Free())
	assert.Equal(t, byte(1), p.Bytes(1)[99])
	if invariants.Enabled {
		assert.PanicsWithValue(t, "broken invariant: buffer 1 is not in use", func() { p.Put(1) })
	}
}
