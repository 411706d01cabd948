package base

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct"
)

func TestAMTable(t *testing.T) {
	var table AMTable
	var got []byte
	keep := uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool { got = data; return true })
	for _, tc := range []struct {
		name string
		set  uint8
		want error
	}{
		{"first", 0, nil},
		{"last", uct.MaxAMID, nil},
		{"one too many", uct.MaxAMID + 1, uct.ErrInvalidParam},
		{"largest", 255, uct.ErrInvalidParam},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, table.Set(tc.set, keep))
			before := table.dropped.Load()
			kept := table.Handle(tc.set, []byte{tc.set}, nil)
			assert.Equal(t, tc.want == nil, kept)
			if tc.want == nil {
				assert.Equal(t, []byte{tc.set}, got)
				assert.Equal(t, before, table.dropped.Load())
			} else {
				assert.Equal(t, before+1, table.dropped.Load())
			}
		})
	}
	require.NoError(t, table.Set(0, nil))
	assert.False(t, table.Handle(0, nil, nil))
	assert.EqualValues(t, 3, table.dropped.Load())
}

// refuser is an EP without any variant.
type refuser struct {
	NoAMShort
	NoAMBcopy
	NoAMZcopy
	NoPutShort
	NoPutBcopy
	NoPutZcopy
	NoGetShort
	NoGetBcopy
	NoGetZcopy
	NoAtomicPost
	NoAtomicFetch
}

var (
	_ uct.AMSender = refuser{}
	_ uct.Putter   = refuser{}
	_ uct.Getter   = refuser{}
	_ uct.Atomics  = refuser{}
)

func TestRefusals(t *testing.T) {
	var e refuser
	second := func(_ any, err error) error { return err }
	for i, err := range []error{
		e.AMShort(0, 0, nil), second(e.AMBcopy(0, nil)), second(e.AMZcopy(0, nil, nil, nil)),
		e.PutShort(nil, 0, 0), e.PutBcopy(nil, 0, 0),
		second(e.PutZcopy(nil, 0, 0, nil)),
		e.GetShort(nil, 0, 0), second(e.GetBcopy(nil, 0, 0, nil)),
		second(e.GetZcopy(nil, 0, 0, nil)),
		e.AtomicPost(0, 8, 0, 0, 0), second(e.AtomicFetch(0, 8, 0, nil, 0, 0, nil)),
		second(e.AtomicCSwap(8, 0, 0, nil, 0, 0, nil)),
	} {
		assert.True(t, errors.Is(err, uct.ErrUnsupported), "method %d: %v", i, err)
	}
}

type item struct {
	Slot
	id int
}

func TestList_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l List[*item]
		items := make([]*item, 10)
		for i := range items {
			items[i] = &item{id: i}
		}
		in := map[*item]bool{}
		for range rapid.IntRange(0, 50).Draw(t, "steps") {
			e := items[rapid.IntRange(0, len(items)-1).Draw(t, "item")]
			if rapid.Bool().Draw(t, "add") {
				l.Add(e)
				in[e] = true
			} else {
				require.Equal(t, in[e], l.Remove(e))
				delete(in, e)
			}
			require.Equal(t, len(in), l.Len())
			seen := map[*item]bool{}
			for _, e := range l.All() {
				seen[e] = true
			}
			require.Equal(t, in, seen)
		}
	})
}
