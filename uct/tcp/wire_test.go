package tcp

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/uct"
)

func TestFrame_Golden(t *testing.T) {
	var b [frameLen]byte
	putHeader(b[:], frameAM, 31, 0x010203)
	assert.Equal(t, "0302010001 1f0000", hex.EncodeToString(b[:5])+" "+hex.EncodeToString(b[5:]))
	var body [targetLen]byte
	want := target{addr: 0x1122334455667788, key: wireKey{index: 1, variant: 2, nonce: 0xa1b2c3d4e5f60718}, tag: 9}
	putTarget(body[:], want)
	assert.Equal(t, "8877665544332211"+"01000000"+"02000000"+"1807f6e5d4c3b2a1"+"0900000000000000", hex.EncodeToString(body[:]))
	assert.Equal(t, want, parseTarget(body[:]))
}

func TestFrame_Limits(t *testing.T) {
	const longest = 1000
	for _, tc := range []struct {
		name     string
		kind, id uint8
		n        int
		ok       bool
	}{
		{"empty message", frameAM, 0, 0, true},
		{"longest message", frameAM, 31, longest, true},
		{"message too long", frameAM, 31, longest + 1, false},
		{"shortest put", framePut, 0, targetLen + 1, true},
		{"put of nothing", framePut, 0, targetLen, false},
		{"longest put", framePut, putAck, targetLen + maxRMA, true},
		{"put too long", framePut, putAck, targetLen + maxRMA + 1, false},
		{"put with unknown flag", framePut, 2, targetLen + 1, false},
		{"get", frameGet, 0, getLen, true},
		{"get too short", frameGet, 0, getLen - 1, false},
		{"atomic", frameAtomic, 5, atomicLen, true},
		{"atomic too long", frameAtomic, 5, atomicLen + 1, false},
		{"flush", frameFlush, 0, flushLen, true},
		{"flush without count", frameFlush, 0, 0, false},
		{"data", frameData, 0, 1, true},
		{"no data", frameData, 0, 0, false},
		{"data too long", frameData, 0, maxRMA + 1, false},
		{"done", frameDone, 0, 0, true},
		{"done with value", frameDone, 0, wordLen, true},
		{"done with half a value", frameDone, 0, 4, false},
		{"nak", frameNak, 11, tagLen, true},
		{"nak without tag", frameNak, 11, 0, false},
		{"no type", 0, 0, 0, false},
		{"bye", frameBye, 0, 0, true},
		{"bye with something", frameBye, 0, 8, false},
		{"unused", frameUnused, 0, 0, true},
		{"unused with something", frameUnused, 0, 8, false},
		{"used", frameUsed, 0, 0, true},
		{"used with an id", frameUsed, 1, 0, false},
		{"unknown type", frameUsed + 1, 0, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b [frameLen]byte
			putHeader(b[:], tc.kind, tc.id, tc.n)
			h, ok := parseHeader(b[:], longest)
			assert.Equal(t, tc.ok, ok)
			assert.Equal(t, header{n: tc.n, kind: tc.kind, id: tc.id}, h)
			b[7] = 1
			_, ok = parseHeader(b[:], longest)
			assert.False(t, ok, "reserved bits")
		})
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0}, frameLen))
	f.Add([]byte{8, 0, 0, 0, frameFlush, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, framePut, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < frameLen {
			return
		}
		h, ok := parseHeader(b, 5000)
		if !ok {
			return
		}
		require.GreaterOrEqual(t, h.n, 0)
		require.LessOrEqual(t, h.n, targetLen+maxRMA)
		if h.kind != framePut && h.kind != frameData {
			require.LessOrEqual(t, h.n, 5000, "must fit into the buffer")
		}
		var again [frameLen]byte
		putHeader(again[:], h.kind, h.id, h.n)
		require.Equal(t, b[:frameLen], again[:])
	})
}

func FuzzHello(f *testing.F) {
	var b [helloLen]byte
	(&hello{version: 1, msg: msgHello, from: keypair.PublicKey{1}, to: 2, conn: 3, other: 4, seg: 5, replies: 6}).put(&b)
	f.Add(b[:])
	(&hello{version: 1, msg: msgAnswer, code: codeRefused, from: keypair.PublicKey{1}}).put(&b)
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) != helloLen {
			return
		}
		for _, msg := range []uint8{msgHello, msgAnswer} {
			h, ok := parseHello((*[helloLen]byte)(in), msg)
			if !ok {
				continue
			}
			require.True(t, hasMagic((*[helloLen]byte)(in)))
			require.Less(t, h.code, codeEnd)
			var again [helloLen]byte
			h.put(&again)
			require.Equal(t, in[:helloUnused], again[:helloUnused])
			k := pairKey("secret of a pair")
			require.False(t, k.proves((*[helloLen]byte)(in), nil))
			k.sign(&again, nil)
			require.True(t, k.proves(&again, nil))
		}
	})
}

func FuzzKey(f *testing.F) {
	f.Add(appendKey(nil, wireKey{1, 2, 3}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := parseKey(b)
		if err != nil {
			require.ErrorIs(t, err, uct.ErrInvalidRKey)
			return
		}
		require.Equal(t, b, appendKey(nil, k))
	})
}

func TestDeviceAddr_Golden(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::2")
	for _, tc := range []struct {
		name string
		a    deviceAddr
		want string
	}{
		{"lo", deviceAddr{loopback: true, host: 7, v4: defaultV4, v6: defaultV6}, "270700000000000000"},
		{"lo without IPv6", deviceAddr{loopback: true, host: 7, v4: defaultV4}, "230700000000000000"},
		{"lo with another address", deviceAddr{loopback: true, host: 7, v4: netip.MustParseAddr("127.0.0.9")}, "2b07000000000000007f000009"},
		{"both", deviceAddr{host: 7, v4: v4, v6: v6}, "260700000000000000c0000201fd000000000000000000000000000002"},
		{"IPv6", deviceAddr{host: 7, v6: v6}, "240700000000000000fd000000000000000000000000000002"},
	} {
		b := tc.a.append(nil)
		assert.Equal(t, tc.want, hex.EncodeToString(b), tc.name)
		got, err := parseDeviceAddr(b)
		require.NoError(t, err, tc.name)
		assert.Equal(t, tc.a, got, tc.name)
		for _, bad := range [][]byte{b[:len(b)-1], append(bytes.Clone(b), 0), append([]byte{b[0] ^ 0x10}, b[1:]...)} {
			_, err := parseDeviceAddr(bad)
			assert.ErrorIs(t, err, uct.ErrInvalidAddr, "%s: %x", tc.name, bad)
		}
	}
}

// TestDeviceAddr_RejectsInvalid: the decoder rejects device addresses that no device has.
func TestDeviceAddr_RejectsInvalid(t *testing.T) {
	v4, v6 := []byte{192, 0, 2, 1}, netip.MustParseAddr("fd00::2").AsSlice()
	for _, tc := range []struct {
		name  string
		flags byte
		ips   []byte
	}{
		{"no IP address", 0, nil},
		{"loopback without IP address", flagLoopback, nil},
		{"another loopback address, and none", flagLoopback | flagOther, nil},
		{"another address, but no loopback", flagOther | flagV4, v4},
		{"IPv4 cut off", flagV4, v4[:3]},
		{"IPv6 cut off", flagV4 | flagV6, slices.Concat(v4, v6[:15])},
		{"unspecified", flagV4, make([]byte, 4)},
		{"multicast", flagV4, []byte{224, 0, 0, 1}},
		{"IPv4 in IPv6", flagV6, slices.Concat(make([]byte, 10), []byte{255, 255}, v4)},
	} {
		b := append([]byte{deviceVersion<<4 | tc.flags, 7, 0, 0, 0, 0, 0, 0, 0}, tc.ips...)
		_, err := parseDeviceAddr(b)
		assert.ErrorIs(t, err, uct.ErrInvalidAddr, tc.name)
	}
}

// TestIfaceAddr_RejectsInvalid: the decoder rejects invalid listeners and flags.
func TestIfaceAddr_RejectsInvalid(t *testing.T) {
	good := ifaceAddr{port4: 1, key: keypair.PublicKey{3}, seg: 4}
	flagged := func(flags byte, rest ...byte) []byte {
		b := append(good.append(nil), rest...)
		b[offIfaceFlags] |= flags
		return b
	}
	for name, b := range map[string][]byte{
		"reached without a listener": flagged(flagReached),
		"a listener without address": flagged(flagListener),
		"an address without a flag":  flagged(0, 192, 0, 2, 1, 7, 0),
		"no port":                    flagged(flagListener, 192, 0, 2, 1, 0, 0),
		"cut off":                    flagged(flagListener, 192, 0, 2, 1, 7),
		"a byte":                     flagged(flagListener, 1),
		"unspecified":                flagged(flagListener, 0, 0, 0, 0, 7, 0),
		"multicast":                  flagged(flagListener, 224, 0, 0, 1, 7, 0),
		"another flag":               flagged(flagsEnd),
	} {
		_, err := parseIfaceAddr(b)
		assert.ErrorIs(t, err, uct.ErrInvalidAddr, name)
	}
	_, err := parseIfaceAddr(flagged(flagListener, 192, 0, 2, 1, 7, 0))
	assert.NoError(t, err)
}

func FuzzAddresses(f *testing.F) {
	d := deviceAddr{loopback: true, host: 7, v4: netip.MustParseAddr("127.0.0.1"), v6: netip.IPv6Loopback()}
	i := ifaceAddr{port4: 1, port6: 2, key: keypair.PublicKey{3}, seg: 4}
	f.Add(d.append(nil), i.append(nil))
	i.listener = netip.MustParseAddrPort("192.0.2.1:7")
	f.Add(d.append(nil), i.append(nil))
	i.listener, i.reached, i.port4, i.port6 = netip.MustParseAddrPort("[fd00::2]:7"), true, 0, 0
	f.Add(d.append(nil), i.append(nil))
	f.Add([]byte{}, []byte{1})
	d.v4 = netip.MustParseAddr("127.0.0.9")
	f.Add(d.append(nil), i.append(nil))
	d.loopback, d.v6 = false, netip.Addr{}
	f.Add(d.append(nil), i.append(nil))
	f.Fuzz(func(t *testing.T, dev, iface []byte) {
		if d, err := parseDeviceAddr(dev); err == nil {
			again := d.append(nil)
			back, err := parseDeviceAddr(again)
			require.NoError(t, err)
			require.Equal(t, d, back)
		} else {
			require.ErrorIs(t, err, uct.ErrInvalidAddr)
		}
		if a, err := parseIfaceAddr(iface); err == nil {
			require.Equal(t, iface, a.append(nil))
		} else {
			require.ErrorIs(t, err, uct.ErrInvalidAddr)
		}
	})
}

// FuzzFrames sends frames to a connection after the handshake. The connection may fail, but only
// memory that is registered for writing may change.
func FuzzFrames(f *testing.F) {
	frame := func(kind, id uint8, body ...byte) []byte {
		b := make([]byte, frameLen)
		putHeader(b, kind, id, len(body))
		return append(b, body...)
	}
	f.Add(frame(frameAM, 3, 1, 2, 3), uint16(0))
	f.Add(append(frame(frameFlush, 0, 0, 0, 0, 0, 0, 0, 0, 0), frame(frameDone, 0)...), uint16(3))
	f.Add(frame(frameGet, 0, make([]byte, getLen)...), uint16(1))
	f.Add(frame(frameAtomic, 0, make([]byte, atomicLen)...), uint16(9))
	f.Add(frame(framePut, 1, make([]byte, targetLen+9)...), uint16(5))
	f.Add(frame(frameNak, 11, make([]byte, tagLen)...), uint16(0))
	f.Add(frame(frameData, 0, 1, 2), uint16(0))
	f.Add(append(frame(frameAM, 3, 1, 2, 3), frame(frameUnused, 0)...), uint16(7))
	f.Add(append(frame(frameUsed, 0), frame(frameUnused, 0)...), uint16(6))
	f.Add(append(frame(frameUnused, 0), frame(frameBye, 0)...), uint16(2))
	f.Add(append(frame(frameUsed, 0), frame(frameFlush, 0, 0, 0, 0, 0, 0, 0, 0, 0)...), uint16(8))
	f.Add(append(frame(frameUnused, 0), frame(frameUsed, 0)...), uint16(9))
	e := newEnd(f, Config{SegSize: minSegSize, RxBuf: 1, TxBuf: 1})
	untouched := make([]byte, 64<<10) // a part, because comparing all memory would take most of the time
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(fds[1])
		c := &conn{it: e.it, key: keypair.PublicKey{99}, link: link{fd: -1}}
		l := link{fd: fds[0]}
		require.NoError(t, l.watch(&e.it.poll, unix.EPOLLIN, c))
		c.canClose = cut%4 != 0
		c.open(l, 1)
		if cut%4 == 2 {
			c.startClosing(closeProposed)
			c.sendUnused()
		}
		step := int(cut) + 1 + len(stream)/256 // few steps for long inputs, because each takes two system calls
		for len(stream) > 0 {
			n := min(len(stream), step)
			k, err := unix.Write(fds[1], stream[:n])
			if err != nil {
				break
			}
			stream = stream[k:]
			e.it.Progress()
		}
		c.fail(errNoBye)
		e.it.Progress()
		require.Equal(t, connGone, c.state)
		if !bytes.Equal(untouched, e.mem.buf[:len(untouched)]) {
			t.Fatal("memory was written without a key")
		}
		require.Equal(t, e.it.cfg.TxOps, e.it.ops.left)
	})
}
