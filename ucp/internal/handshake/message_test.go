package handshake

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

func TestMsg_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &Msg{
			Type:    MsgType(rapid.IntRange(1, int(msgTypeEnd)-1).Draw(t, "type")),
			Seq:     rapid.Uint32().Draw(t, "seq"),
			SrcUUID: rapid.Uint64Min(1).Draw(t, "src uuid"), DstUUID: rapid.Uint64().Draw(t, "dst uuid"),
			SrcEP: rapid.Uint64Min(1).Draw(t, "src ep"), DstEP: rapid.Uint64().Draw(t, "dst ep"), Window: rapid.Uint32().Draw(t, "window"),
		}
		for range rapid.IntRange(1, MaxLanes).Draw(t, "lanes") {
			m.Lanes = append(m.Lanes, MsgLane{
				Src: rapid.Byte().Draw(t, "src"), Dst: rapid.Byte().Draw(t, "dst"),
				Roles:  Roles(rapid.IntRange(0, int(laneRoles)).Draw(t, "roles")),
				Status: ucs.Status(rapid.IntRange(0, 19).Draw(t, "status")),
				EPAddr: append([]byte(nil), rapid.SliceOfN(rapid.Byte(), 0, 255).Draw(t, "ep address")...),
			})
		}
		m.Addr = append([]byte(nil), rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "address")...)
		b := m.Append(nil)
		assert.LessOrEqual(t, len(b), MaxMsgLen)
		got, err := UnpackMsg(b)
		require.NoError(t, err)
		assert.Equal(t, m, got)
	})
}

func sampleMsg() *Msg {
	return &Msg{
		Type: Request, SrcUUID: 1, DstUUID: 2, SrcEP: 3, DstEP: 4, Window: 16 << 10, Addr: []byte("address"),
		Lanes: []MsgLane{{Src: 1, Dst: 2, Roles: Set(wireup.RMA, wireup.AM), EPAddr: []byte("ep")}},
	}
}

// TestMsg_Golden: the packed form has not changed.
func TestMsg_Golden(t *testing.T) {
	m := sampleMsg()
	m.Type, m.Seq = Drop, 5
	m.Lanes[0].Roles, m.Lanes[0].Status = Set(wireup.RMA, wireup.AMO, wireup.AM, wireup.RMABW, wireup.AMBW), ucs.StatusTimedOut
	want := "58 04 05 01 05000000 0100000000000000 0200000000000000 0300000000000000 0400000000000000 00400000 07000000" +
		"01 02 1f 0d 02 6570" + "61646472657373"
	assert.Equal(t, strings.ReplaceAll(want, " ", ""), hex.EncodeToString(m.Append(nil)))
}

func TestUnpackMsg_RejectsMalformed(t *testing.T) {
	good := sampleMsg().Append(nil)
	edit := testenv.Editor(good)
	for _, tc := range []struct {
		name string
		in   []byte
	}{
		{"nothing", nil},
		{"a short header", good[:msgHeader-1]},
		{"another magic", edit(0, 0)},
		{"another version", edit(1, 1)},
		{"type 0", edit(2, 0)},
		{"an unknown type", edit(2, byte(msgTypeEnd))},
		{"no lanes", edit(3, 0)},
		{"too many lanes", edit(3, MaxLanes+1)},
		{"more lanes than bytes", edit(3, 2)},
		{"source uuid 0", edit(8, 0)},
		{"source ep 0", edit(24, 0)},
		{"a long address", edit(44, 100)},
		{"a huge address", edit(47, 0xff)},
		{"unknown roles", edit(msgHeader+2, 0xff)},
		{"a negative status", edit(msgHeader+3, 0x80)},
		{"a long ep address", edit(msgHeader+4, 0xff)},
		{"a byte too many", append(bytes.Clone(good), 0)},
		{"a byte too few", good[:len(good)-1]},
		{"too long", append(bytes.Clone(good), make([]byte, MaxMsgLen)...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := UnpackMsg(tc.in)
			assert.ErrorIs(t, err, ucs.ErrInvalidParam)
			assert.Nil(t, m)
		})
	}
}

// TestUnpackMsg_Length: a message whose length is not possible is rejected before anything is read.
func TestUnpackMsg_Length(t *testing.T) {
	for n, rejected := range map[int]bool{msgHeader - 1: true, msgHeader: false, MaxMsgLen: false, MaxMsgLen + 1: true} {
		_, err := UnpackMsg(make([]byte, n))
		require.Error(t, err)
		assert.Equal(t, rejected, strings.Contains(err.Error(), fmt.Sprint("length ", n)), "%d bytes: %v", n, err)
	}
}

func FuzzUnpackMsg(f *testing.F) {
	f.Add(sampleMsg().Append(nil))
	m := sampleMsg()
	m.Type, m.Lanes, m.Addr = Disconnect, nil, nil
	f.Add(m.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := UnpackMsg(b)
		if err != nil {
			assert.ErrorIs(t, err, ucs.ErrInvalidParam)
			return
		}
		assert.Equal(t, b, m.Append(nil), "one message, one form")
	})
}
