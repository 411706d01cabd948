package bootstrap

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gucx/gucx/internal/cursor"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// Limits of messages.
const (
	MaxPrivate  = 4096           // bytes of private data
	MaxName     = math.MaxUint8  // bytes of the name of a key, at least 1
	MaxKeyLen   = math.MaxUint16 // bytes of a packed key
	MaxKeysLen  = 1 << 20        // bytes of all keys with their names, encoded
	MaxHelloLen = headerLen + helloFixed + wireup.MaxAddrLen + MaxPrivate
)

// The messages; docs/wire.md, "Bootstrap".
const (
	magic   = 0x53425847 // "GXBS"
	version = 3

	headerLen   = 12
	kindAt      = 6 // offset in the header
	helloFixed  = 8
	acceptFixed = 20
	keyFixed    = 3

	maxHelloBody  = helloFixed + wireup.MaxAddrLen + MaxPrivate
	maxAcceptBody = acceptFixed + wireup.MaxAddrLen + MaxPrivate + MaxKeysLen
)

// kind is the type of a message.
type kind uint8

const (
	kindHello  kind = 1
	kindAccept kind = 2
	kindReject kind = 3
	kindDone   kind = 4 // the EP of the listener is connected

	kindChallenge kind = 5 // a random number
	kindProof     kind = 6 // proves that the sender has the token and has sent the previous message

	kindEnd kind = 7
)

// Limits of the reasons of a REJECT.
const (
	MaxReasons    = 16
	maxWhy        = 512 // bytes
	whyFixed      = 4
	maxRejectBody = 1 + MaxReasons*(whyFixed+2*math.MaxUint8+maxWhy) + MaxPrivate
)

// maxBody is the maximum length of a body, by message type.
var maxBody = [kindEnd]int{kindHello: maxHelloBody, kindAccept: maxAcceptBody, kindReject: maxRejectBody,
	kindChallenge: nonceLen, kindProof: proofLen}

// fixedBody is the length of bodies of fixed length; 0 for other message types.
var fixedBody = [kindEnd]int{kindChallenge: nonceLen, kindProof: proofLen}

// Code is the reason why a dialer is rejected.
type Code uint8

// Codes by their number on the wire.
const (
	CodeRejected    Code = 1  // by the application
	CodeVersion     Code = 2  // the listener does not support the version
	CodeMalformed   Code = 3  // not a HELLO, or with an invalid worker address
	CodeForeignUser Code = 4  // the user is not permitted
	CodeUnreachable Code = 5  // no transport of both workers has active messages
	CodeTooMany     Code = 6  // too many concurrent handshakes
	CodeTLS         Code = 7  // the listener requires TLS, the dialer does not use it
	CodeNoTLS       Code = 8  // the dialer requires TLS, the listener does not use it
	CodeNoFiles     Code = 9  // the listener is out of file descriptors
	CodeToken       Code = 10 // the listener requires a token, the dialer has none
	CodeNoToken     Code = 11 // the dialer requires a token, the listener has none
	CodeWrongToken  Code = 12 // the dialer has another token
	CodeTooManyEPs  Code = 13 // the dialer has reached its limit of EPs

	codeEnd Code = 14
)

// codes has the text of each code, whose subject is the listener, and the errors that it matches.
var codes = [codeEnd]struct {
	text string
	errs []error
}{
	CodeRejected:    {"its application rejects this peer", []error{ucs.ErrRejected}},
	CodeVersion:     {"it uses another version of this protocol", []error{ucs.ErrRejected, ucs.ErrUnsupported}},
	CodeMalformed:   {"the request is malformed", []error{ucs.ErrRejected}},
	CodeForeignUser: {"this user may not connect to it", []error{ucs.ErrRejected, ErrForeignUser}},
	CodeUnreachable: {"no transport of both workers has active messages", []error{ucs.ErrUnreachable}},
	CodeTooMany:     {"it has too many handshakes in progress", []error{ucs.ErrRejected, ErrTryAgain}},
	CodeTLS: {"it demands TLS with a certificate; set GUCX_TCP_TLS_CERT, GUCX_TCP_TLS_KEY and GUCX_TCP_TLS_CA here too",
		[]error{ucs.ErrRejected, ErrUnauthenticated}},
	CodeNoTLS: {"it does not use TLS, which this side requires; set GUCX_TCP_TLS_CERT, GUCX_TCP_TLS_KEY and GUCX_TCP_TLS_CA there too",
		[]error{ucs.ErrRejected, ErrUnauthenticated}},
	CodeToken:      {"it requires a token; set GUCX_AUTH_TOKEN_FILE here too", []error{ucs.ErrRejected, ErrUnauthenticated}},
	CodeNoToken:    {"it has no token, which this side requires; set GUCX_AUTH_TOKEN_FILE there too", []error{ucs.ErrRejected, ErrUnauthenticated}},
	CodeWrongToken: {"it has another token (GUCX_AUTH_TOKEN_FILE)", []error{ucs.ErrRejected, ErrUnauthenticated}},
	CodeTooManyEPs: {"it accepts no more endpoints of this worker (its GUCX_MAX_EPS_PER_PEER)", []error{ucs.ErrRejected}},
	CodeNoFiles:    {"it is out of file descriptors", []error{ucs.ErrRejected, ErrTryAgain}},
}

// String returns the reason as text. Its subject is the listener.
func (c Code) String() string {
	if c < codeEnd && codes[c].text != "" {
		return codes[c].text
	}
	return fmt.Sprintf("unknown reason %d", uint8(c))
}

// errors returns the errors that a rejection with the code matches.
func (c Code) errors() []error {
	if c < codeEnd && codes[c].errs != nil {
		return codes[c].errs
	}
	return []error{ucs.ErrRejected}
}

// header is the header of every message.
type header struct {
	version uint16
	kind    kind
	code    Code // of a REJECT, otherwise 0
	bodyLen int
}

// parseHeader validates and decodes a header. ErrUnsupported for another protocol or
// version, ErrInvalidParam for invalid fields.
func parseHeader(b *[headerLen]byte) (h header, err error) {
	le := binary.LittleEndian
	switch {
	case b[0] == tlsRecord[0] && b[1] == tlsRecord[1]:
		return h, errRequiresTLS
	case le.Uint32(b[:]) != magic:
		return h, errProtocol
	}
	h = header{version: le.Uint16(b[4:]), kind: kind(b[kindAt]), code: Code(b[7])}
	n := le.Uint32(b[8:])
	switch {
	case h.kind == 0 || h.kind >= kindEnd:
		return h, malformed("message of kind %d", h.kind)
	case h.version != version && h.kind != kindReject: // the header and code of a REJECT are the same in all versions
		return h, fmt.Errorf("%w: %d, this side %d", errVersion, h.version, version)
	case (h.kind == kindReject) == (h.code == 0):
		return h, malformed("message of kind %d with code %d", h.kind, h.code)
	case uint64(n) > uint64(maxBody[h.kind]):
		return h, malformed("message of kind %d with %d bytes", h.kind, n)
	}
	h.bodyLen = int(n)
	if fixed := fixedBody[h.kind]; fixed != 0 && h.bodyLen != fixed {
		return h, malformed("message of kind %d with %d bytes", h.kind, n)
	}
	return h, nil
}

// Errors of invalid messages.
var (
	errProtocol    = fmt.Errorf("it does not use this protocol: %w", ucs.ErrUnsupported)
	errVersion     = fmt.Errorf("it uses another version of this protocol: %w", ucs.ErrUnsupported)
	errRequiresTLS = fmt.Errorf("it requires TLS, which this side does not use: %w", ucs.ErrUnsupported)
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("bootstrap: "+format+": %w", append(args, ucs.ErrInvalidParam)...)
}

// appendMessage appends a message; add appends the body.
func appendMessage(b []byte, k kind, c Code, add func(b []byte) []byte) []byte {
	le, start := binary.LittleEndian, len(b)
	b = le.AppendUint32(b, magic)
	b = le.AppendUint16(b, version)
	b = append(b, byte(k), byte(c), 0, 0, 0, 0)
	b = add(b)
	le.PutUint32(b[start+8:], uint32(len(b)-start-headerLen))
	return b
}

// Hello is the HELLO of a dialer.
type Hello struct {
	Addr    []byte // address of its worker
	Private []byte // private data of its application
	// Within is the time limit of the dialer to connect after an ACCEPT, in milliseconds; 0 means
	// that the listener sets the limit.
	Within time.Duration
}

func (h *Hello) append(b []byte) []byte {
	return appendMessage(b, kindHello, 0, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(h.Addr)))
		b = binary.LittleEndian.AppendUint16(b, uint16(len(h.Private)))
		b = appendMillis(b, h.Within)
		return append(append(b, h.Addr...), h.Private...)
	})
}

// parseHello checks and decodes the body of a HELLO. The result refers to b.
func parseHello(b []byte) (h Hello, err error) {
	c := cursor.Cursor{B: b}
	addrLen, privateLen, within := int(c.U16()), int(c.U16()), readMillis(&c)
	h = Hello{c.Take(addrLen), c.Take(privateLen), within}
	if c.Bad || len(c.B) > 0 || addrLen > wireup.MaxAddrLen || privateLen > MaxPrivate {
		return Hello{}, malformed("HELLO with an address of %d bytes and %d of private data in %d", addrLen, privateLen, len(b))
	}
	return h, nil
}

// Answer is the ACCEPT of a listener.
type Answer struct {
	EP      uint64            // the listener's id of the connection, not 0
	Addr    []byte            // address of its worker
	Private []byte            // private data of its application
	Keys    map[string][]byte // packed keys by name
	// Within is the time limit for the dialer to connect, in milliseconds; not 0. Both sides derive
	// their timeouts from it.
	Within time.Duration
}

func (a *Answer) append(b []byte) []byte {
	le := binary.LittleEndian
	return appendMessage(b, kindAccept, 0, func(b []byte) []byte {
		b = le.AppendUint64(b, a.EP)
		b = le.AppendUint16(b, uint16(len(a.Addr)))
		b = le.AppendUint16(b, uint16(len(a.Private)))
		b = le.AppendUint32(b, uint32(len(a.Keys)))
		b = appendMillis(b, a.Within)
		b = append(append(b, a.Addr...), a.Private...)
		for _, name := range slices.Sorted(maps.Keys(a.Keys)) {
			key := a.Keys[name]
			b = append(b, byte(len(name)))
			b = le.AppendUint16(b, uint16(len(key)))
			b = append(append(b, name...), key...)
		}
		return b
	})
}

// parseAnswer checks and decodes the body of an ACCEPT. The result refers to b.
func parseAnswer(b []byte) (*Answer, error) {
	c := cursor.Cursor{B: b}
	a := &Answer{EP: c.U64(), Keys: map[string][]byte{}}
	addrLen, privateLen, count := int(c.U16()), int(c.U16()), c.U32()
	a.Within = readMillis(&c)
	a.Addr, a.Private = c.Take(addrLen), c.Take(privateLen)
	if c.Bad || a.EP == 0 || a.Within == 0 || addrLen > wireup.MaxAddrLen || privateLen > MaxPrivate {
		return nil, malformed("ACCEPT of EP %d with an address of %d bytes and %d of private data in %d", a.EP, addrLen, privateLen, len(b))
	}
	last := ""
	for range count {
		nameLen, keyLen := int(c.U8()), int(c.U16())
		name, key := string(c.Take(nameLen)), c.Take(keyLen)
		if c.Bad || name <= last { // sorted, unique, not empty
			return nil, malformed("key %q after %q", name, last)
		}
		a.Keys[name], last = key, name
	}
	if len(c.B) > 0 {
		return nil, malformed("%d bytes after the last key", len(c.B))
	}
	return a, nil
}

// appendMillis appends a time in milliseconds, at most 49 days.
func appendMillis(b []byte, d time.Duration) []byte {
	return binary.LittleEndian.AppendUint32(b, uint32(min(d.Milliseconds(), math.MaxUint32)))
}

// KeyLen returns the encoded length of a key, for the limit MaxKeysLen.
func KeyLen(name string, key []byte) int { return keyFixed + len(name) + len(key) }

// readMillis reads a time that appendMillis has appended.
func readMillis(c *cursor.Cursor) time.Duration { return time.Duration(c.U32()) * time.Millisecond }
