package region

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// newMemory is a domain that registers and allocates.
func newMemory(component string) *memory {
	return &memory{attr: uct.MDAttr{Component: component, MaxReg: 1 << 20}, alloc: true, closed: new([]string)}
}

// TestSet_CloseWithMemory: a set with open memory is busy.
func TestSet_CloseWithMemory(t *testing.T) {
	var s Set
	s.Add(newMemory("a"))
	var open []*Mem
	for range 2 {
		m, err := s.Alloc(64, uct.AccessAll)
		require.NoError(t, err)
		open = append(open, m)
	}
	for len(open) > 0 {
		assert.Equal(t, len(open), s.Len())
		assert.ErrorIs(t, s.Close(), ucs.ErrBusy, "%d open", len(open))
		require.NoError(t, open[0].Close())
		open = open[1:]
	}
	require.NoError(t, s.Close())
	_, err := s.Alloc(64, uct.AccessAll)
	assert.ErrorIs(t, err, ucs.ErrClosed)
	require.NoError(t, s.Close(), "again")
}

// TestMem_OfAnotherSet: memory of a set has no part for a domain of another one, for any number of domains and any
// order in which they were added.
func TestMem_OfAnotherSet(t *testing.T) {
	var sets [3]Set
	var domains [3][2]*Domain
	for i := range 2 {
		for j := range sets {
			domains[j][i] = sets[j].Add(newMemory(string(rune('a' + i))))
		}
	}
	for i := range sets {
		m, err := sets[i].Alloc(64, uct.AccessAll)
		require.NoError(t, err)
		for j := range domains {
			for _, d := range domains[j] {
				assert.Equal(t, i == j, m.In(d) != nil, "memory of set %d in domain %d of set %d", i, d.Index, j)
			}
			assert.Equal(t, i == j, m.Of(&sets[j]))
		}
		require.NoError(t, m.Close())
	}
}

var errDevice = errors.New("the device refuses")

// refusing is a domain that can register and allocate, but fails.
type refusing struct{ *memory }

func (d refusing) Ext() *uct.MDExt                         { return &uct.MDExt{Reg: d, Alloc: d} }
func (d refusing) Reg([]byte, uct.Access) (uct.Mem, error) { return nil, errDevice }
func (d refusing) Alloc(int, uct.Access) (uct.Mem, error)  { return nil, errDevice }

// unable is a domain that neither registers nor allocates.
type unable struct{ *memory }

func (d unable) Ext() *uct.MDExt { return &uct.MDExt{} }

// TestRegister_NoDomain: the error has the reason why no domain has the memory, and nothing remains open.
func TestRegister_NoDomain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		md    uct.MD
		cause error // nil: there is none
	}{
		{"the domain refuses", refusing{newMemory("a")}, errDevice},
		{"the domain has no memory", unable{newMemory("a")}, nil},
	} {
		var s Set
		s.Add(tt.md)
		_, err := s.Register(make([]byte, 64), uct.AccessAll)
		assert.ErrorIs(t, err, ucs.ErrUnsupported, tt.name)
		if tt.cause != nil {
			assert.ErrorIs(t, err, tt.cause, tt.name)
			_, err = s.Alloc(64, uct.AccessAll)
			assert.ErrorIs(t, err, tt.cause, "%s: alloc", tt.name)
		}
		assert.Zero(t, s.Len(), tt.name)
		require.NoError(t, s.Close(), tt.name)
	}
}
