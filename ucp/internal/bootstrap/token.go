package bootstrap

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/gucx/gucx/ucs"
)

// With a token, each side, the dialer first, proves that it has the token before it sends other messages.
// A proof follows every later message: docs/design/0011-bootstrap.md.
//
//	dialer                            listener
//	CHALLENGE  random  ------------->
//	           <--------------------- CHALLENGE  random
//	PROOF      -------------------->  or REJECT
//	           <--------------------- PROOF
//	HELLO, PROOF ------------------>  and so on

const (
	// MinTokenLen is the minimum length of a token in bytes, because an eavesdropper can test tokens against a proof.
	MinTokenLen = 16

	nonceLen = 32
	proofLen = sha256.Size
)

// session authenticates the messages of one socket. A nil session does not authenticate.
type session struct {
	key            []byte // derived from the token and both random numbers
	dialer         bool   // this side is the dialer
	sent, received uint64 // numbers of messages
}

// newSession returns a session for a token and the random numbers of both sides.
func newSession(token string, dialer bool, dialerNonce, listenerNonce []byte) *session {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write(dialerNonce)
	mac.Write(listenerNonce)
	return &session{key: mac.Sum(nil), dialer: dialer}
}

// proof returns the code that authenticates a message, its sender and its number, so that reflected and replayed
// messages are detected.
func (s *session) proof(byDialer bool, number uint64, msg []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	var head [9]byte
	if byDialer {
		head[0] = 1
	}
	binary.LittleEndian.PutUint64(head[1:], number)
	mac.Write(head[:])
	mac.Write(msg)
	return mac.Sum(nil)
}

// seal returns a message with its proof.
func (s *session) seal(msg []byte) []byte {
	if s == nil {
		return msg
	}
	proof := s.proof(s.dialer, s.sent, msg)
	s.sent++
	return appendMessage(msg[:len(msg):len(msg)], kindProof, 0, func(b []byte) []byte { return append(b, proof...) })
}

// receive reads a message of one of the wanted types, and its proof if the session requires one. ErrInvalidParam for
// another type, whose body may be much longer and is not read. ErrUnauthenticated if the proof is wrong or missing.
func (s *session) receive(conn net.Conn, wanted ...kind) (header, []byte, error) {
	h, msg, err := receiveHead(conn)
	if err == nil && !slices.Contains(wanted, h.kind) {
		err = malformed("message of kind %d", h.kind)
	}
	if err == nil {
		msg, err = receiveBody(conn, h, msg)
	}
	if err != nil || s == nil {
		return h, bodyOf(msg), err
	}
	proof, err := receiveKind(conn, kindProof)
	if err == nil && !hmac.Equal(proof, s.proof(!s.dialer, s.received, msg)) {
		err = errWrongProof
	}
	s.received++
	return h, bodyOf(msg), err
}

// Errors of authentication.
var (
	errWrongProof    = fmt.Errorf("it does not have the same token: %w", ErrUnauthenticated)
	errNoToken       = fmt.Errorf("it has no token: %w", ErrUnauthenticated)
	errRequiresToken = fmt.Errorf("it requires a token, and this side has none: %w", ErrUnauthenticated)
)

// challenge returns a CHALLENGE with a random number.
func challenge() (msg, nonce []byte) {
	nonce = make([]byte, nonceLen)
	_, _ = rand.Read(nonce) // never fails: it crashes the process instead
	return appendMessage(nil, kindChallenge, 0, func(b []byte) []byte { return append(b, nonce...) }), nonce
}

// authenticate performs the token handshake of a dialer, if there is a token.
func (c *Conn) authenticate(token string) error {
	if token == "" {
		return nil
	}
	msg, mine := challenge()
	if _, err := c.socket.Write(msg); err != nil {
		return reset(err)
	}
	theirs, err := receiveKind(c.socket, kindChallenge)
	if err != nil {
		return err
	}
	s := newSession(token, true, mine, theirs)
	if _, err = c.socket.Write(s.seal(nil)); err != nil {
		return reset(err)
	}
	proof, err := receiveKind(c.socket, kindProof)
	if err != nil {
		return err
	}
	if !hmac.Equal(proof, s.proof(false, s.received, nil)) {
		return errWrongProof
	}
	s.received++
	c.session = s
	return nil
}

// authenticate performs the token handshake of a listener, if there is a token. Errors: errNoToken,
// errWrongProof, and those of receive.
func (r *Request) authenticate() error {
	token := r.l.cfg.Token
	if token == "" {
		return nil
	}
	theirs, err := receiveKind(r.secret, kindChallenge)
	if err != nil {
		return err
	}
	msg, mine := challenge()
	if _, err = r.secret.Write(msg); err != nil {
		return reset(err)
	}
	s := newSession(token, false, theirs, mine)
	proof, err := receiveKind(r.secret, kindProof)
	if err != nil {
		return err
	}
	if !hmac.Equal(proof, s.proof(true, s.received, nil)) {
		return errWrongProof
	}
	s.received++
	r.session = s
	if _, err = r.secret.Write(s.seal(nil)); err != nil {
		return reset(err)
	}
	return nil
}

// receiveKind reads a message of a type and returns its body. If a REJECT arrives instead, it returns a
// *RejectedError, and for a HELLO errNoToken.
func receiveKind(conn net.Conn, want kind) ([]byte, error) {
	h, msg, err := receiveHead(conn)
	switch {
	case err != nil:
		return nil, reset(err)
	case h.kind == kindHello:
		return nil, errNoToken // the body is not read
	case h.kind != want && h.kind != kindReject:
		return nil, malformed("message of kind %d, not %d", h.kind, want)
	}
	if msg, err = receiveBody(conn, h, msg); err != nil {
		return nil, reset(err)
	}
	if h.kind == kindReject {
		return nil, parseRejection(h, bodyOf(msg))
	}
	return bodyOf(msg), nil
}

// receiveHead reads a header.
func receiveHead(conn net.Conn) (header, []byte, error) {
	b := make([]byte, headerLen)
	if err := readFull(conn, b); err != nil {
		return header{}, nil, err
	}
	h, err := parseHeader((*[headerLen]byte)(b))
	return h, b, err
}

// receiveBody reads the body after a header, appends it to msg and returns the message.
func receiveBody(conn io.Reader, h header, msg []byte) ([]byte, error) {
	msg = append(msg, make([]byte, h.bodyLen)...)
	if err := readFull(conn, msg[headerLen:]); err != nil {
		return nil, err
	}
	return msg, nil
}

// bodyOf returns the body of a complete message.
func bodyOf(msg []byte) []byte {
	if len(msg) < headerLen {
		return nil
	}
	return msg[headerLen:]
}

// CheckToken returns ErrInvalidParam for a token that is too short.
func CheckToken(token string) error {
	if token != "" && len(token) < MinTokenLen {
		return fmt.Errorf("%w: a token of %d bytes, want %d or more", ucs.ErrInvalidParam, len(token), MinTokenLen)
	}
	return nil
}
