package bootstrap

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

const token = "0123456789abcdef"

// TestToken_Right: both sides have the token, with and without TLS.
func TestToken_Right(t *testing.T) {
	overAll(t, func(t *testing.T, network, address string) {
		a := testenv.NewAuthority(t)
		for _, configs := range []TLSConfigs{nil, policy(t, a.Good(), "")} {
			if network == "unix" && address[0] != '@' && configs != nil {
				continue // the socket file exists already
			}
			l := open(t, network, address, Config{Token: token, TLS: configs})
			l.token, l.tls = token, configs
			result := l.dial(t.Context())
			r := l.next(1)[0]
			assert.Equal(t, *sampleHello(), r.Hello)
			r.Accept(sampleAnswer())
			d := <-result
			require.NoError(t, d.err)
			assert.Equal(t, sampleAnswer(), d.conn.Answer)
			r.Connected()
			assert.NoError(t, d.conn.Wait())
			require.NoError(t, d.conn.Close())

			result = l.dial(t.Context())
			l.next(1)[0].Reject(CodeRejected, []byte("no"))
			var rejected *RejectedError
			require.ErrorAs(t, (<-result).err, &rejected)
			assert.Equal(t, RejectedError{Code: CodeRejected, Private: []byte("no")}, *rejected)
			l.idle()
			require.NoError(t, l.Close())
		}
	})
}

// TestToken_WrongOrMissing: Take does not return the dialer, and both sides get the reason.
func TestToken_WrongOrMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		dials, listens string
		code           Code
	}{
		"wrong":                    {"another token of 16", token, CodeWrongToken},
		"missing at the dialer":    {"", token, CodeToken},
		"missing at the listener":  {token, "", CodeNoToken},
		"a longer one that begins": {token + "0", token, CodeWrongToken},
	} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, network, address string) {
				l := open(t, network, address, Config{Token: tc.listens})
				l.token = tc.dials
				d := <-l.dial(t.Context())
				require.ErrorIs(t, d.err, ErrUnauthenticated)
				require.ErrorIs(t, d.err, ucs.ErrRejected)
				var rejected *RejectedError
				require.ErrorAs(t, d.err, &rejected)
				assert.Equal(t, tc.code, rejected.Code)
				l.idle()
				assert.Empty(t, l.inbox.Take())
				assert.EqualValues(t, 1, l.cfg.Stats.unauthenticated.Load())
			})
		})
	}
}

// recorder is a connection that records the bytes sent.
type recorder struct {
	net.Conn
	sent bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sent.Write(b)
	return r.Conn.Write(b)
}

// TestToken_Replay: messages of a dialer with the token are rejected on another connection.
func TestToken_Replay(t *testing.T) {
	l := open(t, "unix", abstractName(), Config{Token: token})
	socket, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	rec := &recorder{Conn: socket}
	c := &Conn{socket: rec}
	require.NoError(t, c.authenticate(token))
	_, err = rec.Write(c.session.seal(sampleHello().append(nil)))
	require.NoError(t, err)
	l.next(1)[0].Drop()
	require.NoError(t, socket.Close())
	l.idle()

	again := l.raw(rec.sent.Bytes())
	h, _, err := receive(again)
	require.NoError(t, err)
	assert.Equal(t, kindChallenge, h.kind)
	h, _, err = receive(again)
	require.NoError(t, err)
	assert.Equal(t, CodeWrongToken, h.code)
	l.idle()
	assert.Empty(t, l.inbox.Take())
}

// TestToken_Reflection: a peer that reflects the messages of a dialer or a listener is not authenticated.
func TestToken_Reflection(t *testing.T) {
	server, err := net.Listen("unix", abstractName())
	require.NoError(t, err)
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := server.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(onlyConn{conn}, onlyConn{conn})
		_ = conn.Close()
	}()
	_, err = dialAndExchange(t.Context(), "unix", server.Addr().String(), sampleHello(), &DialConfig{Token: token})
	assert.ErrorIs(t, err, ErrUnauthenticated)
	<-done

	l := open(t, "unix", abstractName(), Config{Token: token})
	conn := l.raw(nil)
	msg, _ := challenge()
	_, err = conn.Write(msg)
	require.NoError(t, err)
	_, err = io.CopyN(onlyConn{conn}, onlyConn{conn}, headerLen+nonceLen) // the CHALLENGE of the listener, instead of a PROOF
	require.NoError(t, err)
	got, _ := io.ReadAll(conn)
	assert.Empty(t, got, "hung up")
	l.idle()
	assert.Empty(t, l.inbox.Take())
}

// onlyConn hides ReadFrom and WriteTo of sockets from io.Copy.
type onlyConn struct{ io.ReadWriter }

// TestToken_ManInTheMiddle: a HELLO or an ACCEPT that was modified in transit is rejected, so that the worker
// addresses are from processes with the token.
func TestToken_ManInTheMiddle(t *testing.T) {
	l := open(t, "unix", abstractName(), Config{Token: token})
	socket, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	defer socket.Close()
	c := &Conn{socket: socket}
	require.NoError(t, c.authenticate(token))
	hello := c.session.seal(sampleHello().append(nil))
	hello[headerLen+helloFixed] ^= 1 // the worker address
	_, err = socket.Write(hello)
	require.NoError(t, err)
	h, _, err := receive(socket)
	require.NoError(t, err)
	assert.Equal(t, CodeWrongToken, h.code)
	l.idle()
	assert.Empty(t, l.inbox.Take())

	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	key := newSession(token, false, nil, nil)
	sealed := key.seal(sampleAnswer().append(nil))
	for name, b := range map[string][]byte{
		"changed":       edit(sealed, headerLen+2, 9),
		"repeated":      key.seal(sampleAnswer().append(nil)), // its number is 1
		"another proof": append(bytes.Clone(sampleAnswer().append(nil)), (&session{key: key.key, dialer: true}).seal(nil)...),
	} {
		s := newSession(token, true, nil, nil)
		go func() { _, _ = there.Write(b) }()
		_, _, err := s.receive(here, kindAccept)
		assert.ErrorIs(t, err, ErrUnauthenticated, name)
	}
}

// TestToken_Silence: a dialer that stops after its CHALLENGE loses its place.
func TestToken_Silence(t *testing.T) {
	l := open(t, "unix", abstractName(), Config{Token: token, HelloTimeout: time.Millisecond})
	msg, _ := challenge()
	_, _ = io.ReadAll(l.raw(msg))
	l.counted("silent", 1, l.cfg.Stats.silent.Load)
	l.idle()
}

func TestCheckToken(t *testing.T) {
	assert.NoError(t, CheckToken(""))
	assert.NoError(t, CheckToken(token))
	assert.ErrorIs(t, CheckToken(token[1:]), ucs.ErrInvalidParam)
}

// bytesConn is a connection from which the given bytes arrive.
type bytesConn struct {
	net.Conn
	in io.Reader
}

func (c bytesConn) Read(b []byte) (int, error)  { return c.in.Read(b) }
func (c bytesConn) Write(b []byte) (int, error) { return len(b), nil }

// FuzzToken: no bytes authenticate a dialer or a listener that does not have the token.
func FuzzToken(f *testing.F) {
	msg, _ := challenge()
	f.Add(msg)
	f.Add(append(msg, (&session{key: []byte("k")}).seal(nil)...))
	f.Add(rejection(CodeToken, nil))
	f.Add(sampleHello().append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		conn := bytesConn{in: bytes.NewReader(b)}
		c := &Conn{socket: conn}
		require.Error(t, c.authenticate(token))
		require.Nil(t, c.session)
		conn.in = bytes.NewReader(b)
		r := &Request{l: &Listener{cfg: Config{Token: token}}, secret: conn}
		require.Error(t, r.authenticate())
		require.Nil(t, r.session)
		conn.in = bytes.NewReader(b)
		if len(b) > headerLen {
			_, _, err := newSession(token, true, nil, nil).receive(conn, kindAccept, kindReject)
			require.Error(t, err)
		}
	})
}
