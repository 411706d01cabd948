package region

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// picky is a domain without room, or with other addresses for peers.
type picky struct {
	memory
	full bool
}

func (d *picky) Ext() *uct.MDExt { return &uct.MDExt{Reg: d} }

func (d *picky) Reg(buf []byte, _ uct.Access) (uct.Mem, error) {
	if d.full {
		return nil, ucs.ErrNoMemory
	}
	return &elsewhere{piece{&d.memory, buf, false}}, nil
}

type elsewhere struct{ piece }

func (p *elsewhere) Addr() uint64 { return 128 }

// TestGroup_Register: all domains have the memory, or none has. Other domains of the set have not.
func TestGroup_Register(t *testing.T) {
	for name, tc := range map[string]struct {
		second uct.MD
		want   error
	}{
		"all":             {nil, nil},
		"no room":         {&picky{full: true}, ucs.ErrNoMemory},
		"another address": {&picky{memory: memory{closed: new([]string)}}, ucs.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			var s Set
			closed := []string{}
			a := s.Add(&memory{attr: uct.MDAttr{Component: "x", Name: "a"}, closed: &closed})
			md := tc.second
			if md == nil {
				md = &memory{attr: uct.MDAttr{Component: "x", Name: "b"}, closed: &closed}
			}
			b := s.Add(md)
			other := s.Add(&memory{attr: uct.MDAttr{Component: "x", Name: "c"}, closed: &closed})
			m, err := Group{a, b}.Register(make([]byte, 10), uct.AccessAll)
			if tc.want != nil {
				require.ErrorIs(t, err, tc.want)
				assert.Equal(t, []string{"xa"}, closed, "the others were deregistered")
				assert.Zero(t, s.Len())
				return
			}
			require.NoError(t, err)
			assert.NotNil(t, m.In(a))
			assert.NotNil(t, m.In(b))
			assert.Nil(t, m.In(other))
			require.NoError(t, m.Close())
			assert.Equal(t, []string{"xa", "xb"}, closed)
			_, err = Group{a, b}.Register(nil, uct.AccessAll)
			require.ErrorIs(t, err, ucs.ErrInvalidParam)
		})
	}
}

// TestRegister_Refused: the error has the result of each domain, and no more.
func TestRegister_Refused(t *testing.T) {
	var s Set
	for _, name := range []string{"a", "b"} {
		s.Add(&picky{memory: memory{attr: uct.MDAttr{Component: "x", Name: name}}, full: true})
	}
	_, err := s.Register(make([]byte, 10), uct.AccessAll)
	assert.ErrorIs(t, err, ucs.ErrUnsupported, "it can go without")
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
	assert.EqualError(t, err, "ucp: register memory: out of memory; out of memory")
}
