package bootstrap

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// silentRequest is a connection that was admitted, and says nothing.
func silentRequest(t *testing.T, l *listener, since time.Time) *Request {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() {
		require.NoError(t, here.Close())
		require.NoError(t, there.Close())
	})
	r := newRequest(l.Listener, here, Identity{})
	t.Cleanup(r.cancel)
	r.since = since
	l.enter(r)
	return r
}

// TestListener_ShortenedBeforeItReads: the time for a HELLO stays short if it was shortened before
// the goroutine that reads it has begun.
func TestListener_ShortenedBeforeItReads(t *testing.T) {
	l := open(t, "tcp", ":0", Config{HelloTimeout: 2 * time.Hour})
	r := silentRequest(t, l, time.Now().Add(-time.Hour))
	l.shortenHellos()
	assert.False(t, r.readHello())
	assert.NoError(t, r.ctx.Err())
}

// TestListener_EndedBeforeItIsShortened: nor does shortening give time to one that is to end.
func TestListener_EndedBeforeItIsShortened(t *testing.T) {
	l := open(t, "tcp", ":0", Config{HelloTimeout: 2 * time.Hour})
	r := silentRequest(t, l, time.Now().Add(time.Hour))
	r.cancel()
	ended := make(chan struct{})
	context.AfterFunc(r.ctx, func() { l.hangUp(r); close(ended) })
	<-ended
	l.shortenHellos()
	assert.False(t, r.readHello())
}
