package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/layertest"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
	"github.com/gucx/gucx/perftest/internal/peers/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newSession returns a session whose target is a goroutine, with one layer.
func newSession(t *testing.T, fault layertest.Fault) *Session {
	return newSessionOf(t, layertest.Opener(fault))
}

// newSessionOf is newSession with the given opener of the layer.
func newSessionOf(t *testing.T, open layer.Opener) *Session {
	a, b, err := oob.Pipe()
	require.NoError(t, err)
	layers := layertest.Set("uct")
	layers.Open["uct"] = open
	served := make(chan error, 1)
	go func() { served <- target.Serve(context.Background(), b, layers, target.Options{Beside: true}) }()
	s, err := New(t.Context(), a, layers, Options{Beside: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		assert.NoError(t, <-served)
	})
	return s
}

var params = oob.Params{Transport: "copy", MemLen: 8192}

func TestOpen_DetectsWhetherTargetIsNeeded(t *testing.T) {
	for _, c := range []struct {
		fault layertest.Fault
		want  bool
	}{{layertest.None, false}, {layertest.NeedDrive, true}, {layertest.RefuseOp, false}} {
		s := newSession(t, c.fault)
		assert.False(t, s.NeedsTarget("uct"), "not open yet")
		_, err := s.Open(t.Context(), "uct", params)
		require.NoError(t, err)
		assert.Equal(t, c.want, s.NeedsTarget("uct"))
	}
}

func TestSession_TargetRunsItsPart(t *testing.T) {
	s := newSession(t, layertest.None)
	c, err := s.Open(t.Context(), "uct", params)
	require.NoError(t, err)
	_, err = s.Finish(t.Context(), "uct")
	assert.ErrorContains(t, err, "nothing was prepared")
	spec := layer.Spec{Kind: layer.AM, Size: 8, Window: 4}
	require.NoError(t, s.Prepare(t.Context(), "uct", spec))
	require.NoError(t, s.Drive(t.Context(), "uct"))
	op, err := c.Op(spec)
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, op.Post())
	}
	require.NoError(t, s.Rest(t.Context()))
	n, err := s.Finish(t.Context(), "uct")
	require.NoError(t, err)
	assert.Equal(t, uint64(3), n)

	spec.Size = 1 << 20
	assert.ErrorContains(t, s.Prepare(t.Context(), "uct", spec), "1048576 bytes of a memory of 8192")
}

// noting records the parts that are requested.
type noting struct {
	layer.Conn
	parts chan layer.Spec
}

func (n noting) Part(s layer.Spec) (layer.Part, error) {
	n.parts <- s
	return n.Conn.Part(s)
}

// TestPrepare_SendsCompleteSpec: both sides run the same operation.
func TestPrepare_SendsCompleteSpec(t *testing.T) {
	parts := make(chan layer.Spec, 1)
	open := layertest.Opener(layertest.None)
	s := newSessionOf(t, func(c layer.Config) (layer.Conn, error) {
		conn, err := open(c)
		return noting{conn, parts}, err
	})
	_, err := s.Open(t.Context(), "uct", params)
	require.NoError(t, err)
	for _, want := range []layer.Spec{
		{Kind: layer.Tag, Size: 8, Window: 4, Wildcard: true, Seed: 7, Layouts: layer.Layouts{Send: layer.IOV, Recv: layer.Generic}},
		{Kind: layer.AM, Size: 9, Window: 1, Variant: layer.Zcopy, Unexpected: true, Written: true, Thorough: true},
	} {
		require.NoError(t, s.Prepare(t.Context(), "uct", want))
		assert.Equal(t, want, <-parts)
	}
	beyond := layer.Spec{Kind: layer.Tag, Size: 8, Window: 1, Layouts: layer.Layouts{Recv: 200}}
	assert.ErrorContains(t, s.Prepare(t.Context(), "uct", beyond), "unknown layout")
}

func TestLoopback_IsItsOwnTarget(t *testing.T) {
	s := NewLoopback(t.Context(), layertest.Set("uct"))
	defer func() { assert.NoError(t, s.Close()) }()
	assert.True(t, s.Loopback())
	assert.Zero(t, s.PID())
	c, err := s.Open(t.Context(), "uct", params)
	require.NoError(t, err)
	require.NoError(t, s.SetWord(t.Context(), "uct", 41))
	op, err := c.Op(layer.Spec{Kind: layer.FAdd, Size: layer.WordLen, Window: 1})
	require.NoError(t, err)
	require.NoError(t, op.Post())
	w, err := s.Word(t.Context(), "uct")
	require.NoError(t, err)
	assert.Equal(t, uint64(42), w)
	require.NoError(t, s.Fill(t.Context(), "uct", 5, 100))
	require.NoError(t, s.Check(t.Context(), "uct", 5, 100, nil))
	c.Memory()[7]++
	var wrong *oob.RemoteError
	assert.ErrorAs(t, s.Check(t.Context(), "uct", 5, 100, nil), &wrong)
	assert.ErrorContains(t, s.Fill(t.Context(), "ucp", 5, 100), "not open")
	assert.False(t, s.NeedsTarget("uct"))
}

func TestSession_EndsWithTarget(t *testing.T) {
	why := errors.New("a good reason")
	for _, c := range []struct {
		why  func() error
		want error
	}{{nil, ErrEnded}, {func() error { return why }, why}} {
		a, b, err := oob.Pipe()
		require.NoError(t, err)
		peer := oob.NewConn(b)
		go func() {
			_, _ = peer.Receive(0) // hello
			_ = peer.Reply(oob.Reply{Value: 1}, nil)
		}()
		s, err := New(t.Context(), a, layertest.Set("uct"), Options{Beside: true, Why: c.why})
		require.NoError(t, err)
		assert.NoError(t, s.Context().Err())
		require.NoError(t, peer.Close())
		<-s.Context().Done()
		assert.Equal(t, c.want, context.Cause(s.Context()))
		lost := errors.New("connection reset")
		err = s.Explain(lost)
		assert.ErrorIs(t, err, c.want)
		assert.ErrorIs(t, err, lost)
		assert.Equal(t, layer.ErrData, s.Explain(layer.ErrData), "an error that the target does not explain")
		assert.NoError(t, s.Close())
		assert.NoError(t, s.Close(), "again")
	}
}

func TestNew_ReturnsExitReasonOfTarget(t *testing.T) {
	a, b, err := oob.Pipe()
	require.NoError(t, err)
	require.NoError(t, b.Close())
	_, err = New(t.Context(), a, layertest.Set("uct"), Options{})
	assert.ErrorIs(t, err, ErrEnded)
}

func TestCheck_Stamp(t *testing.T) {
	s := newSession(t, layertest.None)
	_, err := s.Open(t.Context(), "uct", params)
	require.NoError(t, err)
	stamp := byte(9)
	require.NoError(t, s.Fill(t.Context(), "uct", 5, 100))
	assert.ErrorContains(t, s.Check(t.Context(), "uct", 5, 100, &stamp), "a sequence number")
}

// TestExplain_QueriesLivingTarget: Explain does not wait for a timeout, as the target replies.
func TestExplain_QueriesLivingTarget(t *testing.T) {
	s := newSession(t, layertest.None)
	own := errors.New("no such thing")
	assert.Equal(t, own, s.Explain(own))
	assert.NoError(t, s.Rest(t.Context()), "the session still works")
}

// TestExplain_AnotherVersion: a target of another version hangs up; the reason is the version, and not the
// hang-up.
func TestExplain_AnotherVersion(t *testing.T) {
	a, b, err := oob.Pipe()
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- target.Serve(context.Background(), b, layertest.Set("uct"), target.Options{}) }()
	s, err := New(t.Context(), a, layertest.Set("uct"), Options{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, <-served)
	<-s.Context().Done()
	refused := fmt.Errorf("hello: %w", oob.ErrVersion)
	assert.Equal(t, refused, s.Explain(refused))
}

// A call to a target on this host has no time limit, as the target may only wait for a CPU.
func TestCall_WaitsForLocalTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		peer := oob.NewConn(b)
		go func() {
			for {
				if _, err := peer.Receive(0); err != nil {
					return
				}
				time.Sleep(time.Hour)
				_ = peer.Reply(oob.Reply{}, nil)
			}
		}()
		s, err := New(t.Context(), a, layertest.Set("uct"), Options{})
		require.NoError(t, err)
		require.NoError(t, s.Rest(t.Context()))
		require.NoError(t, s.Close())
	})
}

func TestCall_TimesOutOnSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		go func() { _, _ = io.Copy(io.Discard, b) }()
		_, err := New(t.Context(), a, layertest.Set("uct"), Options{Patience: time.Minute})
		assert.ErrorContains(t, err, "no answer within 1m0s")
		assert.ErrorIs(t, err, ErrSilent)
	})
}
