package rcwire

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

func nodeAddr() NodeAddr {
	return NodeAddr{EPAddr: addr(), Domain: Domain{0: 1, 15: 0xff}, SRQN: 0x234567, Target: 0xba9876, Number: 0x89ab}
}

func TestNodeAddr_Golden(t *testing.T) {
	b := nodeAddr().Append(nil)
	assert.Len(t, b, NodeAddrLen)
	assert.Equal(t, hex.EncodeToString(addr().Append(nil))+"010000000000000000000000000000ff"+"00234567"+"00ba9876"+"89ab0000",
		hex.EncodeToString(b))
	got, err := ParseNodeAddr(b)
	require.NoError(t, err)
	assert.Equal(t, nodeAddr(), got)
}

func TestParseNodeAddr_RejectsInvalid(t *testing.T) {
	good := nodeAddr().Append(nil)
	edit := testenv.Editor(good)
	many := nodeAddr()
	many.Credits = MaxNodeCredits + 1
	none := nodeAddr()
	none.SRQN = 0
	noNumber := nodeAddr()
	noNumber.Number = 0
	noTarget := nodeAddr()
	noTarget.Target = 0
	for name, b := range map[string][]byte{
		"short": good[:NodeAddrLen-1], "long": append(nodeAddr().Append(nil), 0), "that of a QP": addr().Append(nil),
		"its QPN": edit(4, 1), "SRQN": edit(36, 1), "target": edit(40, 1), "reserved": edit(47, 1),
		"credits": many.Append(nil), "no SRQ": none.Append(nil), "endpoint 0": noNumber.Append(nil), "no target": noTarget.Append(nil),
	} {
		_, err := ParseNodeAddr(b)
		assert.ErrorIs(t, err, uct.ErrInvalidAddr, name)
	}
}

func TestNodeImm_Golden(t *testing.T) {
	for _, tc := range []struct {
		imm    Imm
		number uint16
		want   uint32
	}{
		{AM(31, 0), 1, 0x0000005f},
		{AM(3, MaxNodeCredits), MaxNodeNumber, 0xffffffc3},
		{Credits(5), 0x8000, 0x01600020},
		{Disconnect(), 2, 0x000000a1},
		{Extension(), 3, 0x000000e2},
	} {
		n := tc.imm.WithNumber(tc.number)
		assert.Equal(t, tc.want, uint32(n))
		assert.Equal(t, tc.number, n.Number())
		assert.Equal(t, tc.imm, n.Imm())
	}
}

func FuzzParseNode(f *testing.F) {
	f.Add(nodeAddr().Append(nil), uint32(AM(1, 2).WithNumber(3)))
	f.Add([]byte{}, uint32(Extension().WithNumber(1)))
	f.Fuzz(func(t *testing.T, b []byte, v uint32) {
		if a, err := ParseNodeAddr(b); err == nil {
			assert.Equal(t, b, a.Append(nil))
		}
		n := NodeImm(v)
		assert.Equal(t, n, n.Imm().WithNumber(n.Number()))
	})
}
