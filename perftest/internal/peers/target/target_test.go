package target

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/layers/layertest"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a target for one test and returns the side of the initiator, and a channel for the error of the
// target.
func serve(ctx context.Context, t *testing.T, fault layertest.Fault) (c *oob.Conn, ended chan error) {
	a, b, err := oob.Pipe()
	require.NoError(t, err)
	layers := layertest.Set("verbs", "uct")
	layers.Open["uct"] = layertest.Opener(fault)
	ended = make(chan error, 1)
	go func() { ended <- Serve(ctx, b, layers, Options{HelloTimeout: time.Minute, Beside: true}) }()
	c = oob.NewConn(a)
	t.Cleanup(func() { _ = c.Close() })
	return c, ended
}

// exchange is a request and its expected reply.
type exchange struct {
	req  oob.Request
	want string // part of the error; empty for success
}

func open(layer string, memLen int) oob.Request {
	return oob.Request{Verb: oob.Open, Layer: layer, Params: &oob.Params{MemLen: memLen}}
}

func TestServe_RejectsInvalidRequests(t *testing.T) {
	c, ended := serve(t.Context(), t, layertest.RefuseOpen)
	for _, x := range []exchange{
		{oob.Request{Verb: oob.Hello}, ""},
		{oob.Request{Verb: oob.Hello}, "already"},
		{oob.Request{Verb: oob.Fill, Layer: "verbs"}, "not open"},
		{open("tag", 64), "unknown layer"},
		{open("uct", 64), "no such device"},
		{oob.Request{Verb: oob.Open, Layer: "verbs", Params: &oob.Params{MemLen: 64, Sleep: true}}, "cannot sleep"},
		{open("verbs", 64), ""},
		{open("verbs", 64), "open already"},
		{oob.Request{Verb: oob.Connect, Layer: "verbs", Address: []byte{1}}, "address not valid"},
		{oob.Request{Verb: oob.Drive, Layer: "verbs"}, ""},
		{oob.Request{Verb: oob.Fill, Layer: "verbs", Seed: 5, Len: 65}, "65 bytes of a memory of 64"},
		{oob.Request{Verb: oob.Check, Layer: "verbs", Seed: 5, Len: 65}, "65 bytes of a memory of 64"},
		{oob.Request{Verb: oob.Fill, Layer: "verbs", Seed: 5, Len: 60}, ""},
		{oob.Request{Verb: oob.Check, Layer: "verbs", Seed: 5, Len: 60}, ""},
		{oob.Request{Verb: oob.Check, Layer: "verbs", Seed: 6, Len: 60}, "data arrived wrong: byte 0 of 60"},
		{oob.Request{Verb: oob.Check, Layer: "verbs", Seed: 5, Len: 56}, "bytes after the data"},
		{oob.Request{Verb: oob.Close, Layer: "verbs"}, ""},
		{oob.Request{Verb: oob.Close, Layer: "verbs"}, "not open"},
		{open("verbs", 1), ""},
		{oob.Request{Verb: oob.SetWord, Layer: "verbs", Value: 7}, ""},
		{oob.Request{Verb: oob.Bye}, ""},
	} {
		_, err := c.Call(t.Context(), x.req)
		if x.want == "" {
			require.NoError(t, err, "%+v", x.req)
			continue
		}
		require.ErrorContains(t, err, x.want, "%+v", x.req)
	}
	assert.NoError(t, <-ended)
}

func TestServe_RepliesWithValues(t *testing.T) {
	c, ended := serve(t.Context(), t, layertest.None)
	hello, err := c.Call(t.Context(), oob.Request{Verb: oob.Hello})
	require.NoError(t, err)
	assert.Equal(t, uint64(os.Getpid()), hello.Value)
	opened, err := c.Call(t.Context(), open("uct", 64))
	require.NoError(t, err)
	assert.NotEmpty(t, opened.Address)
	_, err = c.Call(t.Context(), oob.Request{Verb: oob.SetWord, Layer: "uct", Value: 1 << 60})
	require.NoError(t, err)
	word, err := c.Call(t.Context(), oob.Request{Verb: oob.Word, Layer: "uct"})
	require.NoError(t, err)
	assert.Equal(t, uint64(1<<60), word.Value)
	require.NoError(t, c.Close())
	assert.ErrorIs(t, <-ended, ErrDisconnected)
}

func TestServe_RequiresHelloFirst(t *testing.T) {
	c, ended := serve(t.Context(), t, layertest.None)
	_, err := c.Call(t.Context(), oob.Request{Verb: oob.Bye})
	assert.Error(t, err, "a reply on a closed connection")
	assert.ErrorIs(t, <-ended, oob.ErrFrame)
}

func TestServe_EndsWithContext(t *testing.T) {
	why := errors.New("signal")
	ctx, cancel := context.WithCancelCause(t.Context())
	c, ended := serve(ctx, t, layertest.None)
	_, err := c.Call(t.Context(), oob.Request{Verb: oob.Hello})
	require.NoError(t, err)
	cancel(why)
	assert.ErrorIs(t, <-ended, why)
}

func TestServe_TimesOutOnSilentPeer(t *testing.T) {
	a, b, err := oob.Pipe()
	require.NoError(t, err)
	defer a.Close()
	err = Serve(t.Context(), b, layertest.Set("uct"), Options{HelloTimeout: time.Millisecond})
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// frameHead returns the header of a request with a payload of n bytes.
func frameHead(version, n byte) []byte {
	return []byte{'g', 'u', 'p', 'x', version, 1, 0, 0, 0, 0, 0, n}
}

// TestServe_Disconnected: an initiator disconnects at any point of the handshake.
func TestServe_Disconnected(t *testing.T) {
	hello := string(frameHead(oob.Version, 16)) + `{"verb":"hello"}`
	for name, sent := range map[string]string{"nothing": "", "half a message": hello[:20], "hello": hello} {
		t.Run(name, func(t *testing.T) {
			a, b, err := oob.Pipe()
			require.NoError(t, err)
			_, err = a.Write([]byte(sent))
			require.NoError(t, err)
			require.NoError(t, a.Close())
			assert.ErrorIs(t, Serve(t.Context(), b, layertest.Set("uct"), Options{}), ErrDisconnected)
		})
	}
}

// TestServe_AnotherVersion: if the versions differ, each side gets an error with the version of the other side.
func TestServe_AnotherVersion(t *testing.T) {
	a, b, err := oob.Pipe()
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- Serve(t.Context(), b, layertest.Set("uct"), Options{}) }()
	_, err = a.Write(append(frameHead(oob.Version+1, 2), "{}"...))
	require.NoError(t, err)
	head := make([]byte, len(frameHead(0, 0)))
	_, err = io.ReadFull(a, head)
	require.NoError(t, err)
	assert.Equal(t, byte(oob.Version), head[len("gupx")])
	require.NoError(t, a.Close())
	assert.ErrorIs(t, <-ended, oob.ErrVersion)
}

// A request within the delay ends it, and the target does not drive the layer; the reply to Rest shows
// that.
func TestServe_DrivesAfterDelay(t *testing.T) {
	c, ended := serve(t.Context(), t, layertest.None)
	call := func(r oob.Request) uint64 {
		t.Helper()
		reply, err := c.Call(t.Context(), r)
		require.NoError(t, err)
		return reply.Value
	}
	call(oob.Request{Verb: oob.Hello})
	call(open("uct", 64))
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { // on a busy machine this process may run late
		call(oob.Request{Verb: oob.Drive, Layer: "uct", Value: uint64(time.Second)})
		return call(oob.Request{Verb: oob.Rest}) == 0
	})
	call(oob.Request{Verb: oob.Drive, Layer: "uct"})
	assert.Equal(t, uint64(1), call(oob.Request{Verb: oob.Rest}))
	assert.Zero(t, call(oob.Request{Verb: oob.Rest}), "the target has driven the layer since the last Rest")
	require.NoError(t, c.Close())
	<-ended
}

// steady is a part that returns the same number of events at each Progress.
type steady struct{ events, polls int }

func (p *steady) Progress() (int, error) {
	p.polls++
	return p.events, nil
}

func (p *steady) Finish() (uint64, error) { return 0, nil }

// TestDrive_ChecksForRequests: a target finds a request, also if it always has work.
func TestDrive_ChecksForRequests(t *testing.T) {
	for events, want := range []int{lookIdle, lookBusy} {
		for _, beside := range []bool{false, true} {
			a, b, err := oob.Pipe()
			require.NoError(t, err)
			_, err = a.Write([]byte{1})
			require.NoError(t, err)
			p := &steady{events: events}
			s := &session{conn: oob.NewConn(b), beside: beside}
			require.NoError(t, s.drive(&side{part: p}, 0))
			assert.Equal(t, want, p.polls, "beside: %v", beside)
			require.NoError(t, a.Close())
			require.NoError(t, s.conn.Close())
		}
	}
}
