package ucpdebug_test

import (
	"context"
	"encoding/json"
	"expvar"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpdebug"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/all"
)

func newContext(t *testing.T) *ucp.Context {
	c, err := ucp.NewContext(ucp.Config{TLS: config.Allow("sm"), LatencyStats: true}, all.Config{}.Components()...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func newWorker(t *testing.T, c *ucp.Context) *ucp.Worker {
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.Close()) })
	return w
}

// serve has a goroutine own a worker until the test ends.
func serve(t *testing.T, w *ucp.Worker) {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Serve(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
}

func get(t *testing.T, h http.Handler, path string) string {
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	require.Equal(t, http.StatusOK, r.Code)
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(text)
}

// wholeReport asks until the owners of all workers have made progress in time.
func wholeReport(t *testing.T, h http.Handler) (r ucpdebug.Report) {
	for range 60 {
		r = ucpdebug.Report{}
		require.NoError(t, json.Unmarshal([]byte(get(t, h, "/info.json")), &r))
		if !slices.ContainsFunc(r.Workers, func(w ucpdebug.WorkerReport) bool { return w.Info == nil }) {
			break
		}
	}
	return r
}

// TestHandler: the forms show the same endpoints and counters.
func TestHandler(t *testing.T) {
	c := newContext(t)
	a, b := newWorker(t, c), newWorker(t, c)
	ep, err := a.NewEP(b.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	serve(t, b)
	require.NoError(t, ep.TagSendWait(t.Context(), 7, make([]byte, 100), nil))
	h := ucpdebug.New(c)
	h.Add("b", b)
	h.Add("a", a)
	serve(t, a)

	r := wholeReport(t, h)
	require.Len(t, r.Workers, 2)
	assert.Equal(t, "a", r.Workers[0].Name)
	require.NotNil(t, r.Workers[0].Info, r.Workers[0].Err)
	require.Len(t, r.Workers[0].Info.EPs, 1)
	assert.Equal(t, 2, r.Context.Workers)
	all := map[string]uint64{}
	for path, n := range r.Workers[0].Counters.All() {
		all[path] = n
	}
	assert.EqualValues(t, 500, all["worker/ep@made.sent_bytes"])

	text := get(t, h, "/explain")
	assert.Contains(t, text, r.Workers[0].Info.EPs[0].Choices[0].String())
	assert.Contains(t, text, "counter worker/ep@made.sent_bytes 500\n")
	assert.Contains(t, text, "latency worker/latency.tag_send 1 times, p50 below ")
	assert.Contains(t, get(t, h, "/"), "info.json")

	h.Publish("ucpdebug test")
	assert.Contains(t, expvar.Get("ucpdebug test").String(), `"sent_bytes"`)
}

// TestHandler_ClosedAndIdle: a worker that is closed disappears; one without an owner that makes progress has its
// counters.
func TestHandler_ClosedAndIdle(t *testing.T) {
	c := newContext(t)
	idle, closed := newWorker(t, c), newWorker(t, c)
	h := ucpdebug.New(c)
	h.Add("idle", idle)
	h.Add("closed", closed)
	require.NoError(t, closed.Close())
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no need to wait
	r := h.Report(ctx)
	require.Len(t, r.Workers, 1)
	assert.Equal(t, "idle", r.Workers[0].Name)
	assert.NotEmpty(t, r.Workers[0].Err)
	assert.Nil(t, r.Workers[0].Info)
	assert.NotEmpty(t, r.Workers[0].Counters.Counters)
}
