package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQuery(t *testing.T) {
	want := Query{EP: 1, Number: 2, Kind: QueryProbe, Returned: true, Tag: 3, Mask: 4, Limit: 5}
	b := want.Append(nil)
	assert.Equal(t, []byte{
		1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 1, 0, 0,
		3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
	}, b)
	require.Len(t, b, QueryLen)
	var got Query
	require.True(t, got.Unpack(b))
	assert.Equal(t, want, got)
	assert.False(t, got.Unpack(b[1:]), "a byte too few")
	assert.False(t, got.Unpack(append(b, 0)), "a byte too many")
	b[12] = 4
	assert.False(t, got.Unpack(b), "unknown kind")
}

func TestReply(t *testing.T) {
	want, pair := Reply{EP: 1, Number: 2, Kind: ReplyList, Value: 3}, Pair{First: 4, Second: 5}
	b := pair.Append(want.Append(nil))
	assert.Equal(t, []byte{
		1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
		4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
	}, b)
	var got Reply
	pairs, ok := got.Unpack(b)
	require.True(t, ok)
	assert.Equal(t, want, got)
	gotPair, rest := UnpackPair(pairs)
	assert.Equal(t, pair, gotPair)
	assert.Empty(t, rest)
	refused := func(b []byte) {
		t.Helper()
		_, ok := got.Unpack(b)
		assert.False(t, ok)
	}
	refused(b[:len(b)-1])
	refused(b[:ReplyLen-1])
	refused(b[:ReplyLen]) // a list without messages
	for range MaxPairs {
		b = pair.Append(b)
	}
	refused(b) // too many
	for _, kind := range []ReplyKind{0, ReplyBlocked, ReplyNone, ReplyProbe + 1} {
		want.Kind = kind
		refused(pair.Append(want.Append(nil)))
	}
}

func TestOffer(t *testing.T) {
	want := Offer{EP: 1, Query: 2, Message: 3, Tag: 4}
	b := want.Append(nil)
	require.Len(t, b, OfferLen)
	var got Offer
	rest, ok := got.Unpack(append(b, 9))
	require.True(t, ok)
	assert.Equal(t, []byte{9}, rest)
	assert.Equal(t, want, got)
	_, ok = got.Unpack(b[1:])
	assert.False(t, ok)
}

func FuzzQuery(f *testing.F) {
	f.Add((&Query{EP: 1, Number: 2, Kind: QueryMatch, Tag: 3}).Append(nil))
	f.Add((Pair{1, 2}).Append((&Reply{EP: 1, Number: 2, Kind: ReplyList}).Append(nil)))
	f.Add((&Offer{EP: 1, Query: 2, Message: 3}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var q Query
		if q.Unpack(b) {
			var again Query
			assert.True(t, again.Unpack(q.Append(nil)))
			assert.Equal(t, q, again)
		}
		var r Reply
		if pairs, ok := r.Unpack(b); ok {
			for len(pairs) > 0 {
				_, pairs = UnpackPair(pairs)
			}
		}
		var o Offer
		if rest, ok := o.Unpack(b); ok {
			assert.Len(t, rest, len(b)-OfferLen)
		}
	})
}
