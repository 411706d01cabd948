package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
)

// openStream returns the EPs at both ends of a stream.
func (p *pair) openStream() (from, to *EP) {
	p.t.Helper()
	require.NoError(p.t, p.finish(p.ep.StreamSend([]byte{'!'}, nil)))
	p.until(func() bool {
		to = p.w[1].StreamReady()
		return to != nil
	})
	n := 0
	r, err := to.StreamRecv(make([]byte, 1), true, &n, nil)
	require.NoError(p.t, p.finish(r, err))
	require.Nil(p.t, p.w[1].StreamReady())
	return p.ep, to
}

// TestReplay_BehindOthers: a message that waits for credit is sent when there is credit, also if an operation without a
// lane, and messages, wait before it.
func TestReplay_BehindOthers(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{})
	from, to := p.openStream()
	var first *Request
	sent, data := 0, testenv.Pattern(100, 1)
	send := func() (r *Request) {
		r, err := from.StreamSend(data, nil)
		require.NoError(t, err)
		sent += len(data)
		return r
	}
	for first == nil {
		first = send()
	}
	lane := false
	between := stage{name: "test", role: noRole, post: func(*Request) error { return nil }, admit: func(*Request) bool { return lane }}
	x, err := from.w.newRequest(from, &between).start()
	require.NoError(t, err)
	last := send()
	require.NotNil(t, last)
	r, err := to.StreamRecv(make([]byte, sent), true, new(int), nil)
	require.NoError(t, p.finish(r, err))
	require.NoError(t, p.finish(first, nil))
	require.NoError(t, p.finish(last, nil))
	require.False(t, x.Done())
	lane = true
	from.replay()
	require.NoError(t, p.finish(x, nil))
}

// TestReplay_SendsInside: messages that are sent while waiting operations start are queued behind the waiting messages.
func TestReplay_SendsInside(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{})
	from, to := p.openStream()
	var sent []byte
	send := func() *Request {
		b := byte(len(sent))
		sent = append(sent, b)
		r, err := from.StreamSend([]byte{b}, nil)
		require.NoError(t, err)
		return r
	}
	var reqs []*Request
	lane := false
	inside := func(*Request) error {
		reqs = append(reqs, send())
		return nil
	}
	first := stage{name: "test", role: noRole, post: inside, admit: func(*Request) bool { return lane }}
	x, err := from.w.newRequest(from, &first).start()
	require.NoError(t, err)
	for len(reqs) < 3 {
		if r := send(); r != nil { // there is no more credit
			reqs = append(reqs, r)
		}
	}
	lane = true
	from.replay()
	require.NoError(t, p.finish(x, nil))
	require.Len(t, reqs, 4)
	got := make([]byte, len(sent))
	r, err := to.StreamRecv(got, true, new(int), nil)
	require.NoError(t, p.finish(r, err))
	require.Equal(t, sent, got)
	for _, r := range reqs {
		require.NoError(t, p.finish(r, nil))
	}
}
