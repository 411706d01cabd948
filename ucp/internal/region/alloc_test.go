package region

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// memory is a domain that registers all memory and may allocate. It records which memory was closed.
type memory struct {
	uct.MD
	attr   uct.MDAttr
	alloc  bool
	closed *[]string
}

func (d *memory) Attr() *uct.MDAttr { return &d.attr }

func (d *memory) Ext() *uct.MDExt {
	e := &uct.MDExt{Reg: d}
	if d.alloc {
		e.Alloc = d
	}
	return e
}

func (d *memory) Close() error { return nil }

func (d *memory) Reg(buf []byte, _ uct.Access) (uct.Mem, error) { return &piece{d, buf, false}, nil }
func (d *memory) Alloc(n int, _ uct.Access) (uct.Mem, error) {
	return &piece{d, make([]byte, n), true}, nil
}

type piece struct {
	of    *memory
	buf   []byte
	owned bool
}

func (p *piece) Bytes() []byte                     { return p.buf }
func (p *piece) Addr() uint64                      { return 64 }
func (p *piece) PackRKey(b []byte) ([]byte, error) { return b, nil }

func (p *piece) Close() error {
	name := p.of.attr.Component + p.of.attr.Name
	if p.owned {
		name += "!"
	}
	*p.of.closed = append(*p.of.closed, name)
	return nil
}

// TestAlloc_OrderDecidesNothing: the domain with the best remote access allocates, in any order of the domains, and
// frees last.
func TestAlloc_OrderDecidesNothing(t *testing.T) {
	domain := func(component, name string, reach time.Duration, alloc bool) memory {
		return memory{attr: uct.MDAttr{Component: component, Name: name, AllocReach: reach}, alloc: alloc}
	}
	for _, tc := range []struct {
		name    string
		domains []memory
		want    string
	}{
		{"the soonest", []memory{domain("a", "0", 0, true), domain("b", "0", 130, true), domain("c", "0", 15, true), domain("d", "0", 1, false)}, "c0!"},
		{"by name", []memory{domain("b", "0", 0, true), domain("a", "1", 0, true), domain("a", "0", 0, true)}, "a0!"},
		{"the only one", []memory{domain("a", "0", 0, false), domain("b", "0", 0, true)}, "b0!"},
		{"none", []memory{domain("a", "0", 0, false)}, ""},
	} {
		for _, turn := range permutations(len(tc.domains)) {
			var s Set
			var closed []string
			for _, i := range turn {
				d := tc.domains[i]
				d.closed = &closed
				s.Add(&d)
			}
			m, err := s.Alloc(100, uct.AccessAll)
			require.NoError(t, err)
			assert.Len(t, m.Bytes(), 100)
			require.NoError(t, m.Close())
			require.Len(t, closed, len(tc.domains))
			if tc.want != "" {
				assert.Equal(t, tc.want, closed[len(closed)-1], "%s, order %v", tc.name, turn)
			}
			require.NoError(t, s.Close())
			_, err = s.Alloc(1, uct.AccessAll)
			assert.ErrorIs(t, err, ucs.ErrClosed)
		}
	}
}

// permutations lists the orders of n things.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var out [][]int
	for _, p := range permutations(n - 1) {
		for at := range n {
			out = append(out, slices.Insert(slices.Clone(p), at, n-1))
		}
	}
	return out
}
