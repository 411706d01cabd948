package ucpnet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/all"
)

// ledger counts the requests that an HTTP server has begun to handle, and the complete replies.
type ledger struct {
	mu           sync.Mutex
	begun, ended map[string]bool
	enough       chan struct{} // closed when limit have begun
	limit        int
}

func (l *ledger) begin(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun[id] = true; len(l.begun) == l.limit {
		close(l.enough)
	}
}

func (l *ledger) end(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended[id] = true
}

// ServeHTTP replies with the body of the request.
func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.begin(r.URL.Path)
	body, _ := io.ReadAll(r.Body)
	_, _ = w.Write(body) // the client checks whether the reply is complete
}

// post sends requests until one fails because the server has shut down.
func (l *ledger) post(client *http.Client, name int, body []byte) {
	for i := 0; ; i++ {
		id := fmt.Sprintf("/%d-%d", name, i)
		res, err := client.Post("http://gucx"+id, "application/octet-stream", bytes.NewReader(body))
		if err != nil {
			return
		}
		got, err := io.ReadAll(res.Body)
		_ = res.Body.Close() // was read to its end, or is broken
		if err != nil || !bytes.Equal(got, body) {
			return
		}
		l.end(id)
	}
}

// TestConn_ShutdownHTTP: Shutdown of an http.Server loses no request that the server has begun to handle, although the
// worker is closed as soon as Shutdown returns.
func TestConn_ShutdownHTTP(t *testing.T) {
	for _, tls := range []string{"sm", "tcp"} {
		t.Run(tls, func(t *testing.T) {
			client := newWorker(t, tls)
			for round := range testenv.Rounds(10, 500) {
				shutDown(t, client, tls, 1+7*round%50)
			}
		})
	}
}

// shutDown shuts down a server that has begun to handle a number of requests.
func shutDown(t *testing.T, client *ucp.SharedWorker, tls string, requests int) {
	c, err := ucp.NewContext(ucp.Config{TLS: config.Allow(tls)}, all.Components()...)
	require.NoError(t, err)
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	worker := w.Share()
	l, err := Listen(t.Context(), worker, "unix", freshName())
	require.NoError(t, err)
	x := &ledger{begun: map[string]bool{}, ended: map[string]bool{}, enough: make(chan struct{}), limit: requests}
	server := &http.Server{Handler: x}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	var clients sync.WaitGroup
	for name := range 4 {
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return Dial(ctx, client, "unix", l.Addr().String())
		}} // one for each client: Shutdown waits 5 s for a connection without a request
		clients.Go(func() {
			x.post(&http.Client{Transport: transport}, name, pattern(100+9000*name))
			transport.CloseIdleConnections()
		})
	}
	<-x.enough
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
	defer cancel()
	require.NoError(t, server.Shutdown(ctx))
	require.ErrorIs(t, <-served, http.ErrServerClosed)
	require.NoError(t, worker.Close())
	require.NoError(t, c.Close())
	clients.Wait()
	assert.Equal(t, x.begun, x.ended, "%d of %d requests were answered", len(x.ended), len(x.begun))
}
