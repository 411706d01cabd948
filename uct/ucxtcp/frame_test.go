package ucxtcp

import (
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"math"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

//go:embed testdata/captures.txt
var captures string

// TestFrame_Captures: frames that UCX has sent are decoded, and encoded to the same bytes again.
func TestFrame_Captures(t *testing.T) {
	n := 0
	for line := range strings.Lines(captures) {
		f := strings.Fields(line)
		if f[0] == "#" {
			continue
		}
		n++
		want, err := hex.DecodeString(f[2])
		require.NoError(t, err)
		assert.Equal(t, want, recode(t, f[1], want), line)
	}
	assert.Greater(t, n, 15)
}

// recode decodes a frame and encodes the result.
func recode(t *testing.T, what string, b []byte) []byte {
	if what == "magic" {
		return binary.LittleEndian.AppendUint64(nil, magic)
	}
	id, n, ok := parseFrame(b, defaultMaxFrame)
	require.True(t, ok)
	require.Len(t, b, frameLen+n)
	body := b[frameLen:]
	switch id {
	case idCM:
		if e := binary.LittleEndian.Uint32(body); e != eventRequest {
			return event(e)
		}
		r, ok := parseRequest(body)
		require.True(t, ok)
		out := make([]byte, r.bodyLen())
		r.put(out)
		return frame(idCM, out...)
	case idPut:
		if binary.LittleEndian.Uint64(body[offPutLen:]) > 0 {
			return b // this package sends no such put
		}
		return putFrameOf(0, binary.LittleEndian.Uint32(body[offPutSN:]))
	}
	return putAckFrame(binary.LittleEndian.Uint32(body))
}

func TestParseFrame(t *testing.T) {
	for _, tc := range []struct {
		name string
		id   uint8
		n    uint32
		ok   bool
	}{
		{"empty message", 0, 0, true},
		{"longest message", 31, defaultMaxFrame, true},
		{"message too long", 2, defaultMaxFrame + 1, false},
		{"longest length", 2, math.MaxUint32, false},
		{"event", idCM, eventLen, true},
		{"request", idCM, requestLen4, true},
		{"request, IPv6", idCM, requestLen6, true},
		{"empty event", idCM, 0, false},
		{"request cut short", idCM, requestLen4 - 1, false},
		{"long event", idCM, math.MaxUint32, false},
		{"put", idPut, putLen, true},
		{"long put", idPut, putLen + 1, false},
		{"ack", idPutAck, putAckLen, true},
		{"empty ack", idPutAck, 0, false},
		{"keepalive", idKeepAlive, 0, true},
		{"keepalive with a body", idKeepAlive, 1, false},
		{"unknown id", idKeepAlive + 1, 0, false},
		{"last id", 255, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := []byte{tc.id, 0, 0, 0, 0}
			binary.LittleEndian.PutUint32(b[offLen:], tc.n)
			id, n, ok := parseFrame(b, defaultMaxFrame)
			assert.Equal(t, tc.ok, ok)
			assert.Equal(t, tc.id, id)
			if ok {
				assert.Equal(t, int(tc.n), n)
			}
		})
	}
}

// sink accepts all writes and has nothing to read.
type sink struct{}

func (sink) Send(_ int, b []byte) (int, syscall.Errno) { return len(b), 0 }

func (sink) Sendv(_ int, iov []unix.Iovec) (n int, _ syscall.Errno) {
	for i := range iov {
		n += int(iov[i].Len)
	}
	return n, 0
}

func (sink) Recv(int, []byte) (int, syscall.Errno) { return 0, unix.EAGAIN }

func (sink) Recvv(int, []unix.Iovec) (int, syscall.Errno) { return 0, unix.EAGAIN }

// FuzzConn sends bytes to accepted connections in pieces: the buffers are bounded for any bytes,
// and messages are delivered only after a connection request.
func FuzzConn(f *testing.F) {
	e := newEnd(f, Config{MaxFrame: 1 << 10, AnySource: true, sys: sink{}})
	good := first(4242, false, 0)
	f.Add(good, uint8(7))
	f.Add(append(good, message("hello")...), uint8(200))
	f.Add(append(append(good, event(eventFin)...), message("late")...), uint8(3))
	f.Add(append(good, putFrameOf(0, 1)...), uint8(64))
	f.Add(append(good, putFrameOf(8, 1)...), uint8(64))
	f.Add(append(first(4242, true, 9), event(eventAck)...), uint8(255))
	f.Add(append(good, idKeepAlive, 0xff, 0xff, 0xff, 0xff), uint8(1))
	it := e.it
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		c := &Conn{it: it, fd: -1, state: connMagic}
		c.rx.buf = make([]byte, smallRx)
		c.unnamed = it.unnamed.add(c, time.Time{})
		delivered := false
		_ = it.SetAMHandler(msgID, uct.AMHandlerFunc(func(b []byte, _ uct.Desc) bool {
			delivered = true
			if !c.handshaken || it.Source() != c || len(b) > it.maxAM {
				t.Errorf("message of %d bytes on a connection in state %d", len(b), c.state)
			}
			return false
		}))
		for rest := data; len(rest) > 0 && c.state < connBroken; {
			n := copy(c.rx.buf[c.rx.tail:], rest[:min(len(rest), int(piece)+1)])
			require.Positive(t, n, "no room to read")
			c.rx.tail += n
			rest = rest[n:]
			c.parse()
			require.LessOrEqual(t, len(c.rx.buf), int(it.cfg.RxBuf))
			require.LessOrEqual(t, len(c.tx.buf), controlRoom)
		}
		if delivered {
			require.Greater(t, len(data), len(good))
		}
		it.broken, it.dirty = it.broken[:0], it.dirty[:0]
		c.discard()
		require.Empty(t, it.unnamed.all)
		require.Empty(t, it.unexpected)
	})
}

// TestMaxZcopy: the largest zcopy message fills packets of the device, so that no write has a small
// last packet.
func TestMaxZcopy(t *testing.T) {
	v4, v6 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
	for _, c := range []struct {
		mtu   int
		ip    netip.Addr
		frame config.MemSize
		want  int
	}{
		{65536, v4, 65536, 65483 - frameLen}, // the segment of loopback, as ss -ti shows it
		{65536, v6, 65536, 65463 - frameLen},
		{1500, v4, 65536, 45*1448 - frameLen},
		{9000, v4, 65536, 7*8948 - frameLen},
		{65536, v4, 8192, 8192}, // smaller than a packet
		{65536, v4, 128 << 10, 2*65483 - frameLen},
		{1500, v4, 2000, 1448 - frameLen},
		{1500, v4, 1448, 1448 - frameLen},
		{0, v4, 65536, 65536}, // unknown MTU
	} {
		it := &Iface{dev: device{ip: c.ip, mtu: c.mtu}, cfg: Config{MaxFrame: c.frame}}
		assert.Equal(t, c.want, it.maxZcopy(), "%+v", c)
	}
}
