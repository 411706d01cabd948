package bootstrap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

func sampleHello() *Hello {
	return &Hello{Addr: []byte("address"), Private: []byte("private"), Within: time.Minute}
}

func sampleAnswer() *Answer {
	return &Answer{
		EP: 7, Addr: []byte("address"), Private: []byte("private"), Within: 40 * time.Second,
		Keys: map[string][]byte{"a": []byte("first"), "b": {}, "ab": []byte("second")},
	}
}

// split returns the header and body of a complete message.
func split(t testing.TB, b []byte) (header, []byte) {
	t.Helper()
	h, err := parseHeader((*[headerLen]byte)(b))
	require.NoError(t, err)
	require.Len(t, b, headerLen+h.bodyLen)
	return h, b[headerLen:]
}

func TestHello_RoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := Hello{Within: time.Duration(rapid.Uint32().Draw(rt, "within")) * time.Millisecond,
			Addr:    rapid.SliceOfN(rapid.Byte(), 0, wireup.MaxAddrLen).Draw(rt, "addr"),
			Private: rapid.SliceOfN(rapid.Byte(), 0, MaxPrivate).Draw(rt, "private"),
		}
		h, body := split(t, want.append(nil))
		assert.Equal(t, kindHello, h.kind)
		got, err := parseHello(body)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want.Addr, got.Addr) && bytes.Equal(want.Private, got.Private))
		assert.Equal(t, want.Within, got.Within)
	})
}

func TestAnswer_RoundTrip(t *testing.T) {
	want := sampleAnswer()
	h, body := split(t, want.append(nil))
	assert.Equal(t, kindAccept, h.kind)
	got, err := parseAnswer(body)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestRejection(t *testing.T) {
	reasons := []Reason{{"tcp", "lo", "it is on loopback"}, {"sm", "", ""}}
	h, body := split(t, rejection(CodeUnreachable, []byte("no"), reasons...))
	assert.Equal(t, kindReject, h.kind)
	var e *RejectedError
	require.ErrorAs(t, parseRejection(h, body), &e)
	assert.Equal(t, RejectedError{CodeUnreachable, reasons, []byte("no")}, *e)
	assert.EqualError(t, e, "the listener rejects the connection: no transport of both workers has active messages; "+
		"at the listener: tcp lo: it is on loopback; sm: ")
	h.version++
	require.ErrorAs(t, parseRejection(h, []byte{9}), &e)
	assert.Equal(t, RejectedError{Code: CodeUnreachable}, *e, "of another version")
}

// TestRejection_Limits: long texts are truncated, and characters that are not printable are replaced.
func TestRejection_Limits(t *testing.T) {
	long := Reason{strings.Repeat("t", 300), "\x1b[31m\xff", strings.Repeat("é", maxWhy)}
	many := slices.Repeat([]Reason{long}, MaxReasons+1)
	h, body := split(t, rejection(CodeUnreachable, make([]byte, MaxPrivate), many...))
	var e *RejectedError
	require.ErrorAs(t, parseRejection(h, body), &e)
	require.Len(t, e.Reasons, MaxReasons)
	assert.Equal(t, Reason{long.Transport[:255], "?[31m?", long.Why[:maxWhy]}, e.Reasons[0])
	for name, b := range map[string][]byte{
		"nothing":               nil,
		"a reason too few":      {1},
		"half a reason":         {1, 3, 0, 0, 0, 't'},
		"too many reasons":      append([]byte{MaxReasons + 1}, make([]byte, whyFixed*(MaxReasons+1))...),
		"a control character":   {1, 1, 0, 0, 0, 27},
		"a lot of private data": make([]byte, 1+MaxPrivate+1),
	} {
		assert.ErrorIs(t, parseRejection(h, b), ucs.ErrInvalidParam, name)
	}
}

// TestCode_Errors: errors.Is matches the errors of each code.
func TestCode_Errors(t *testing.T) {
	for c, want := range map[Code][]error{
		CodeRejected: {ucs.ErrRejected}, CodeVersion: {ucs.ErrRejected, ucs.ErrUnsupported}, CodeMalformed: {ucs.ErrRejected},
		CodeForeignUser: {ucs.ErrRejected, ErrForeignUser}, CodeUnreachable: {ucs.ErrUnreachable},
		CodeTooMany: {ucs.ErrRejected, ErrTryAgain}, CodeNoFiles: {ucs.ErrRejected, ErrTryAgain},
		CodeToken: {ucs.ErrRejected, ErrUnauthenticated}, CodeNoToken: {ucs.ErrRejected, ErrUnauthenticated}, CodeWrongToken: {ucs.ErrRejected, ErrUnauthenticated},
		CodeTooManyEPs: {ucs.ErrRejected},
		CodeTLS:        {ucs.ErrRejected, ErrUnauthenticated}, CodeNoTLS: {ucs.ErrRejected, ErrUnauthenticated},
		200: {ucs.ErrRejected},
	} {
		for _, err := range []error{ucs.ErrRejected, ucs.ErrUnsupported, ErrForeignUser, ucs.ErrUnreachable, ErrTryAgain, ErrUnauthenticated} {
			assert.Equal(t, slices.Contains(want, err), errors.Is(&RejectedError{Code: c}, err), "%v: %v", c, err)
		}
	}
}

// edit returns a copy of b with a byte changed.
func edit(b []byte, at int, v byte) []byte {
	b = bytes.Clone(b)
	b[at] = v
	return b
}

func TestParseHeader_RejectsMalformed(t *testing.T) {
	hello := sampleHello().append(nil)
	long := bytes.Clone(hello)
	binary.LittleEndian.PutUint32(long[8:], maxHelloBody+1)
	for _, tc := range []struct {
		name string
		in   []byte
		want error
	}{
		{"another magic", edit(hello, 0, 'H'), errProtocol},
		{"another version", edit(hello, 4, 9), errVersion},
		{"no kind", edit(hello, kindAt, 0), ucs.ErrInvalidParam},
		{"an unknown kind", edit(hello, kindAt, 9), ucs.ErrInvalidParam},
		{"the first unknown kind", edit(edit(hello, kindAt, byte(kindEnd)), 8, 0), ucs.ErrInvalidParam},
		{"a TLS record", edit(edit(hello, 0, tlsRecord[0]), 1, tlsRecord[1]), errRequiresTLS},
		{"the first byte of a TLS record", edit(hello, 0, tlsRecord[0]), errProtocol},
		{"the second byte of a TLS record", edit(hello, 1, tlsRecord[1]), errProtocol},
		{"a code without a reject", edit(hello, 7, 1), ucs.ErrInvalidParam},
		{"a reject without a code", edit(hello, kindAt, byte(kindReject)), ucs.ErrInvalidParam},
		{"too long", long, ucs.ErrInvalidParam},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseHeader((*[headerLen]byte)(tc.in))
			assert.ErrorIs(t, err, tc.want)
		})
	}
	later, err := parseHeader((*[headerLen]byte)(edit(rejection(CodeVersion, nil), 4, 9)))
	require.NoError(t, err, "a REJECT is understood whatever the version")
	assert.Equal(t, CodeVersion, later.code)
}

func TestParseHello_RejectsMalformed(t *testing.T) {
	_, good := split(t, sampleHello().append(nil))
	for name, b := range map[string][]byte{
		"nothing":               nil,
		"a short one":           good[:3],
		"a byte too few":        good[:len(good)-1],
		"a byte too many":       append(bytes.Clone(good), 0),
		"a long address":        (&Hello{Addr: make([]byte, wireup.MaxAddrLen+1)}).append(nil)[headerLen:],
		"a lot of private data": (&Hello{Private: make([]byte, MaxPrivate+1)}).append(nil)[headerLen:],
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseHello(b)
			assert.ErrorIs(t, err, ucs.ErrInvalidParam)
		})
	}
}

// TestMessage_ExactLimits: addresses, private data and messages may have exactly the length of their limits, and no more.
func TestMessage_ExactLimits(t *testing.T) {
	bytesOf := func(n int) []byte { return make([]byte, n) }
	for _, tt := range []struct {
		name          string
		addr, private int
		ok            bool
	}{
		{"both at their limits", wireup.MaxAddrLen, MaxPrivate, true},
		{"an address that is too long", wireup.MaxAddrLen + 1, 0, false},
		{"private data that is too long", 0, MaxPrivate + 1, false},
	} {
		hello := Hello{Addr: bytesOf(tt.addr), Private: bytesOf(tt.private)}
		_, err := parseHello(hello.append(nil)[headerLen:])
		assert.Equal(t, tt.ok, err == nil, "HELLO with %s: %v", tt.name, err)
		answer := Answer{EP: 1, Within: time.Second, Addr: hello.Addr, Private: hello.Private}
		_, err = parseAnswer(answer.append(nil)[headerLen:])
		assert.Equal(t, tt.ok, err == nil, "ACCEPT with %s: %v", tt.name, err)
	}
	longest := Hello{Addr: bytesOf(wireup.MaxAddrLen), Private: bytesOf(MaxPrivate)}
	assert.Len(t, longest.append(nil), MaxHelloLen)
	for k := kindHello; k < kindEnd; k++ {
		for _, over := range []int{0, 1} {
			var b [headerLen]byte
			copy(b[:], appendMessage(nil, k, 0, func(b []byte) []byte { return b }))
			if k == kindReject {
				b[7] = byte(CodeRejected)
			}
			binary.LittleEndian.PutUint32(b[8:], uint32(maxBody[k]+over))
			_, err := parseHeader(&b)
			assert.Equal(t, over == 0, err == nil, "message of kind %d, %d bytes over its limit: %v", k, over, err)
		}
	}
}

// TestKeyLen: KeyLen is the encoded length of a key in an ACCEPT.
func TestKeyLen(t *testing.T) {
	a := sampleAnswer()
	without := *a
	without.Keys = nil
	n := 0
	for name, key := range a.Keys {
		n += KeyLen(name, key)
	}
	assert.Equal(t, len(a.append(nil))-len(without.append(nil)), n)
}

// TestRequest_GoneInQueue: when the dialer is gone, a request in the queue is removed, and one that Take has returned is
// queued again.
func TestRequest_GoneInQueue(t *testing.T) {
	l := &Listener{inbox: NewInbox(func() {})}
	request := func() *Request {
		a, b := net.Pipe()
		t.Cleanup(func() { require.NoError(t, errors.Join(a.Close(), b.Close())) })
		return &Request{l: l, inbox: l.inbox, conn: a}
	}
	first, gone, taken := request(), request(), request()
	l.inbox.queue = []*Request{first, gone}
	gone.notifyGone()
	assert.Equal(t, []*Request{first}, l.inbox.queue)
	taken.notifyGone()
	assert.Equal(t, []*Request{first, taken}, l.inbox.queue)
	closed := request()
	closed.closed = true
	closed.notifyGone()
	assert.Equal(t, []*Request{first, taken}, l.inbox.queue)
}

// TestIdentity_String: the text of an identity.
func TestIdentity_String(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:7")
	assert.Equal(t, "process 3 of user 4", Identity{Network: "unix", PID: 3, UID: 4}.String())
	assert.Equal(t, "192.0.2.1:7", Identity{Network: "tcp", Addr: at}.String())
	assert.Equal(t, "worker at 192.0.2.1:7", Identity{Network: "tcp", Addr: at, Name: "worker"}.String())
}

// TestCheckAddress: unknown networks and addresses that are too long are rejected.
func TestCheckAddress(t *testing.T) {
	name := func(n int) string { return "@" + strings.Repeat("x", n-1) }
	for _, tt := range []struct {
		network, address string
		want             error
	}{
		{"unix", name(maxUnixLen), nil},
		{"unix", name(maxUnixLen + 1), ucs.ErrTooLong},
		{"tcp", name(maxUnixLen + 1), nil},
		{"udp", "", ucs.ErrInvalidParam},
	} {
		assert.ErrorIs(t, checkAddress(tt.network, tt.address), tt.want, "%s, %d bytes", tt.network, len(tt.address))
	}
	l, err := net.Listen("unix", fmt.Sprintf("@%0*d", maxUnixLen-1, os.Getpid()))
	require.NoError(t, err, "the kernel has the same limit")
	require.NoError(t, l.Close())
}

func TestParseAnswer_RejectsMalformed(t *testing.T) {
	_, good := split(t, sampleAnswer().append(nil))
	keys := acceptFixed + len("address") + len("private")
	for name, b := range map[string][]byte{
		"nothing":               nil,
		"no EP":                 append(make([]byte, 8), good[8:]...),
		"no time":               slices.Concat(good[:16], make([]byte, 4), good[20:]),
		"a key too few":         edit(good, 12, 4),
		"a key too many":        edit(good, 12, 2),
		"a name that is empty":  edit(good, keys, 0),
		"a name out of order":   edit(good, keys+keyFixed, 'z'),
		"a long key":            edit(good, keys+1, 0xff),
		"a byte too few":        good[:len(good)-1],
		"a byte too many":       append(bytes.Clone(good), 0),
		"millions of keys":      edit(good, 15, 0xff),
		"a lot of private data": edit(good, 11, 0xff),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseAnswer(b)
			assert.ErrorIs(t, err, ucs.ErrInvalidParam)
		})
	}
}

func TestCode_String(t *testing.T) {
	seen := map[string]bool{}
	for c := Code(1); c < codeEnd; c++ {
		assert.NotContains(t, c.String(), "unknown")
		assert.False(t, seen[c.String()], c)
		seen[c.String()] = true
	}
	assert.Equal(t, "unknown reason 200", Code(200).String())
}

// FuzzReceive: each message that is decoded has only one encoding.
func FuzzReceive(f *testing.F) {
	f.Add(sampleHello().append(nil))
	f.Add(sampleAnswer().append(nil))
	f.Add((&Answer{EP: 1}).append(nil))
	f.Add(rejection(CodeVersion, []byte("no")))
	f.Add(rejection(CodeUnreachable, []byte("no"), Reason{"tcp", "lo", "it is on loopback"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerLen {
			return
		}
		h, err := parseHeader((*[headerLen]byte)(b))
		if err != nil {
			assert.True(t, errors.Is(err, ucs.ErrInvalidParam) || errors.Is(err, ucs.ErrUnsupported), err)
			return
		}
		body := b[headerLen:]
		if len(body) != h.bodyLen {
			return
		}
		switch h.kind {
		case kindHello:
			hello, err := parseHello(body)
			requireOneForm(t, b, hello.append(nil), err)
		case kindAccept:
			a, err := parseAnswer(body)
			if a == nil {
				a = &Answer{}
			}
			requireOneForm(t, b, a.append(nil), err)
		case kindReject:
			var e *RejectedError
			err := parseRejection(h, body)
			if errors.As(err, &e) && h.version == version {
				requireOneForm(t, b, rejection(e.Code, e.Private, e.Reasons...), nil)
			}
		}
	})
}

func requireOneForm(t *testing.T, in, again []byte, err error) {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
		return
	}
	require.Equal(t, in, again)
}
