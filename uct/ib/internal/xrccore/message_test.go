package xrccore

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

var (
	request  = message{kind: kindRequest, conn: 3, mtu: verbs.MTU4096, qpn: 0xabcdef, psn: 0x123456}
	reply    = message{kind: kindReply, conn: 3, qpn: 0x1234}
	source   = message{kind: kindSource, qpn: 0x1234}
	offerMsg = message{kind: kindOffer, qpn: 0x1234, psn: 0x567890, failedTarget: 0x1233}
)

func TestMessage_Golden(t *testing.T) {
	for _, tc := range []struct {
		m    message
		want string
	}{
		{request, "01010305" + "00abcdef" + "00123456" + "00000000"},
		{reply, "01020300" + "00001234" + "00000000" + "00000000"},
		{source, "01030000" + "00001234" + "00000000" + "00000000"},
		{offerMsg, "01040000" + "00001234" + "00567890" + "00001233"},
		{message{kind: kindReply}, "01020000" + "00000000" + "00000000" + "00000000"},
	} {
		b := tc.m.encode()
		assert.Equal(t, tc.want, hex.EncodeToString(b))
		got, ok := parseMessage(b)
		require.True(t, ok)
		assert.Equal(t, tc.m, got)
	}
}

func TestParseMessage_RejectsInvalid(t *testing.T) {
	edit := testenv.Editor(request.encode())
	for name, b := range map[string][]byte{
		"short": request.encode()[:15], "long": append(request.encode(), 0), "version": edit(0, 2), "kind": edit(1, 3),
		"connection": edit(2, maxQueueConns), "no mtu": edit(3, 0), "mtu": edit(3, 6), "qpn": edit(4, 1),
		"psn": edit(8, 1), "failed target without offer": edit(15, 1), "reply with psn": edit(1, kindReply),
		"source with psn":       testenv.Editor(offerMsg.encode())(1, kindSource),
		"offer with connection": testenv.Editor(offerMsg.encode())(2, 1), "source with mtu": testenv.Editor(source.encode())(3, 1),
		"offer for no target": (&message{kind: kindOffer, qpn: 1}).encode(), "offer for no qpn": testenv.Editor(offerMsg.encode())(12, 1),
		"unknown kind":        testenv.Editor(offerMsg.encode())(1, 5),
		"request without qpn": (&message{kind: kindRequest, mtu: verbs.MTU256}).encode(),
	} {
		_, ok := parseMessage(b)
		assert.False(t, ok, name)
	}
}

// TestParseMessage_ExactLimits: parseMessage accepts the limits of each field and rejects the next value.
func TestParseMessage_ExactLimits(t *testing.T) {
	for _, m := range []message{
		{kind: kindRequest, mtu: verbs.MTU256, qpn: 1},
		{kind: kindRequest, mtu: verbs.MTU4096, qpn: max24, psn: max24, conn: maxQueueConns - 1},
		{kind: kindReply, qpn: 1},
		{kind: kindReply, qpn: max24, conn: maxQueueConns - 1},
		{kind: kindSource, qpn: 1},
		{kind: kindSource, qpn: max24},
		{kind: kindOffer, qpn: 1, psn: 0, failedTarget: 1},
		{kind: kindOffer, qpn: max24, psn: max24, failedTarget: max24},
	} {
		got, ok := parseMessage(m.encode())
		assert.True(t, ok, "%+v", m)
		assert.Equal(t, m, got)
	}
	for _, m := range []message{
		{kind: kindRequest, mtu: verbs.MTU256, qpn: max24 + 1},
		{kind: kindRequest, mtu: verbs.MTU256, qpn: 1, psn: max24 + 1},
		{kind: kindOffer, qpn: 1, failedTarget: max24 + 1},
		{kind: kindOffer, qpn: 1, failedTarget: 1, mtu: verbs.MTU256},
		{kind: kindSource, qpn: 1, conn: 1},
		{kind: kindSource},
		{kind: kindReply, qpn: 1, mtu: verbs.MTU256},
	} {
		_, ok := parseMessage(m.encode())
		assert.False(t, ok, "%+v", m)
	}
}

// TestProgress_CountsReplies: Progress counts the replies that it sends.
func TestProgress_CountsReplies(t *testing.T) {
	a, _ := connected(t, softhca.FabricLoop, Config{})
	require.True(t, a.ep.Ready())
	a.ep.replies = append(a.ep.replies, reply, reply) // the peer has sent no request, so these fail its EP
	a.it.schedule(&a.ep.task)
	assert.Equal(t, 2, a.it.work(false))
	assert.Zero(t, a.it.work(false))
}

func FuzzParseMessage(f *testing.F) {
	f.Add(request.encode())
	f.Add(reply.encode())
	f.Add(source.encode())
	f.Add(offerMsg.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, ok := parseMessage(b); ok {
			require.Equal(t, b, m.encode())
			require.Less(t, m.conn, uint8(maxQueueConns))
		}
	})
}

func TestTable_NumbersAreNotReused(t *testing.T) {
	var tab table[int]
	a, b := 1, 2
	first := tab.add(&a)
	require.Equal(t, &a, tab.at(first))
	tab.remove(first)
	require.Nil(t, tab.at(first))
	second := tab.add(&b)
	require.NotEqual(t, first, second)
	require.Nil(t, tab.at(first))
	require.Equal(t, &b, tab.at(second))
	require.Equal(t, []*int{&b}, tab.all())
	id := workID(recvID(second, 7))
	assert.True(t, id.isRecv())
	assert.Equal(t, second, id.number())
	assert.EqualValues(t, 7, id.slot())
	assert.False(t, workID(sendID(second)).isRecv())
}
