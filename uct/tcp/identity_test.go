package tcp

import (
	"encoding/hex"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// impostor sends a HELLO to b with the public key of victim, but without its private key, and
// returns the bytes that b sends.
func impostor(t *testing.T, b *end, victim *keypair.PublicKey, other uint64) []byte {
	t.Helper()
	p := newRawPeer(t)
	h := p.good(b)
	h.from, h.other = *victim, other
	c := client(t, b)
	p.say(t, c, b, h)
	answer := make(chan []byte, 1)
	go func() {
		got, _ := io.ReadAll(c)
		answer <- got
	}()
	var got []byte
	until(t, func() bool {
		select {
		case got = <-answer:
			return true
		default:
			return false
		}
	}, b)
	assert.ErrorIs(t, b.it.refused.last, errUnproven)
	return got
}

// TestIdentity_ImpostorRejected: an untrusted peer that knows the addresses of two ifaces, and even
// the id of their connection, gets no bytes and has no effect.
func TestIdentity_ImpostorRejected(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	ep := a.to(b)
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	open := b.it.table[a.it.addr.key]
	assert.Empty(t, impostor(t, b, &a.it.addr.key, 0))
	assert.Empty(t, impostor(t, b, &a.it.addr.key, open.id))
	assert.Same(t, open, b.it.table[a.it.addr.key])
	assert.EqualValues(t, 2, b.it.limits.refused.Load())
	send(t, ep, 2, 64, a, b)
	flush(t, ep, a, b)
	assert.Len(t, b.got, 2)
	assert.Empty(t, append(a.errs, b.errs...))
}

// TestIdentity_EarlyImpostorRejected: an untrusted peer that connects with the public key of an
// iface before that iface does gets no data of that iface.
func TestIdentity_EarlyImpostorRejected(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	assert.Empty(t, impostor(t, b, &a.it.addr.key, 0))
	assert.Empty(t, b.it.table)
	ep := b.to(a)
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	assert.Len(t, a.got, 1)
}

// TestIdentity_WrongListenerGetsNoData: an iface that connects to a port that another process uses
// now sends only its HELLO.
func TestIdentity_WrongListenerGetsNoData(t *testing.T) {
	a, b, p := newEnd(t, Config{}), newEnd(t, Config{}), newRawPeer(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	addr := b.it.addr
	addr.port4 = uint16(l.Addr().(*net.TCPAddr).Port)
	ep, err := a.it.NewEP(uct.EPParams{DeviceAddr: b.it.DeviceAddr(nil), IfaceAddr: addr.append(nil)})
	require.NoError(t, err)
	defer ep.Close()
	require.NoError(t, ep.(*endpoint).AMShort(msgID, 0, []byte("secret")))
	rest := make(chan []byte, 1)
	go func() {
		defer close(rest)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		var b [helloLen]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return
		}
		h, _ := parseHello(&b, msgHello)
		answer := hello{version: helloVersion, msg: msgAnswer, from: addr.key, to: h.from.ID(), conn: h.conn,
			seg: h.seg, replies: h.replies}
		_, _ = c.Write(p.proven(t, &h.from, answer))
		got, _ := io.ReadAll(c)
		rest <- got
	}()
	until(t, func() bool { return len(a.errs) == 1 }, a)
	assert.ErrorIs(t, a.errs[0], ucs.ErrRejected)
	assert.Empty(t, <-rest)
}

// TestIdentity_SameIDDoesNotBlock: an EP to an invented key with the id of an iface does not
// prevent connections with that iface.
func TestIdentity_SameIDDoesNotBlock(t *testing.T) {
	a, b := newEnd(t, Config{}), newEnd(t, Config{})
	near := b.it.addr.key
	near[keypair.Len-1] ^= 1
	a.name(&near)
	ep := b.to(a)
	send(t, ep, 1, 64, a, b)
	flush(t, ep, a, b)
	send(t, a.to(b), 2, 64, a, b)
	until(t, func() bool { return len(b.got) == 1 }, a, b)
	assert.Len(t, a.got, 1)
	assert.Empty(t, append(a.errs, b.errs...))
}

func TestHello_Golden(t *testing.T) {
	h := hello{version: helloVersion, msg: msgAnswer, code: codeOpen, to: 0x1122334455667788, conn: 3, other: 4, seg: 5, replies: 6, rail: 7, number: 8}
	for i := range h.from {
		h.from[i] = byte(i)
	}
	var b [helloLen]byte
	h.put(&b)
	pairKey("secret of a pair").sign(&b, nil)
	assert.Equal(t, "47584350"+"0400"+"02"+"02"+"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"+
		"8877665544332211"+"0300000000000000"+"0400000000000000"+"05000000"+"06000000"+"07000000"+"0800000000000000"+"000000000000000000000000"+
		"80431769a471fff48f5a4c34f14c0bb3b823f68e56ecf3aebad5e913c61d1f51", hex.EncodeToString(b[:]))
}
