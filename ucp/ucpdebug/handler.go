// Package ucpdebug shows what the workers of a process do: over HTTP as a page, as text and as JSON, and by expvar.
//
//	debug := ucpdebug.New(context)
//	debug.Add("main", worker)
//	debug.Publish("gucx")                      // in /debug/vars
//	http.Handle("/debug/gucx/", http.StripPrefix("/debug/gucx", debug))
//
// The paths are
//
//	/             a page that shows counters, endpoints and lanes, and updates itself each second
//	/explain      the text of [ucp.EP.Explain] for all endpoints
//	/info.json    a [Report]
//
// It shows addresses of peers, names in certificates, and settings, but no token and no data. Serve it to operators
// only, as net/http/pprof.
package ucpdebug

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
)

// Report describes the workers at one moment.
type Report struct {
	Context *ucp.ContextInfo `json:"context"`
	Workers []WorkerReport   `json:"workers"`
}

// WorkerReport describes a worker.
type WorkerReport struct {
	Name     string          `json:"name"`
	Info     *ucp.WorkerInfo `json:"info,omitempty"` // nil if Err says why
	Counters stats.Snapshot  `json:"counters"`
	Err      string          `json:"err,omitempty"`
}

// Patience is how long a request waits for the owner of a worker to make progress.
const Patience = time.Second

// Handler serves what the package documentation says. Any goroutine may call its methods.
type Handler struct {
	context *ucp.Context
	mux     http.ServeMux

	mu      sync.Mutex
	workers []named // by name
}

// named is a worker and its name.
type named struct {
	name   string
	worker *ucp.Worker
}

// New makes a handler without workers.
func New(c *ucp.Context) *Handler {
	h := &Handler{context: c}
	h.mux.HandleFunc("GET /{$}", h.servePage)
	h.mux.HandleFunc("GET /explain", h.serveText)
	h.mux.HandleFunc("GET /info.json", h.serveInfo)
	return h
}

// Add has the handler show a worker under a name, until the worker is closed. A worker that had the name is not shown
// any more.
func (h *Handler) Add(name string, w *ucp.Worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, found := slices.BinarySearchFunc(h.workers, name, func(n named, name string) int { return strings.Compare(n.name, name) })
	if !found {
		h.workers = slices.Insert(h.workers, at, named{})
	}
	h.workers[at] = named{name, w}
}

// drop forgets a worker that is closed.
func (h *Handler) drop(w *ucp.Worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workers = slices.DeleteFunc(h.workers, func(n named) bool { return n.worker == w })
}

func (h *Handler) all() []named {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.workers)
}

// Publish has expvar show the counters of all workers under a name, by the names of the workers: those that are
// derived are as old as the latest report. It panics if the name is in use, as expvar.Publish.
func (h *Handler) Publish(name string) {
	expvar.Publish(name, expvar.Func(func() any {
		counters := map[string]stats.Snapshot{}
		for _, n := range h.all() {
			counters[n.name] = n.worker.Stats().Snapshot()
		}
		return counters
	}))
}

// Report describes the workers in the order of their names. It waits at most Patience for their owners: a worker whose
// owner makes no progress meanwhile has its counters and Err.
func (h *Handler) Report(ctx context.Context) *Report {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	workers := h.all()
	reports := make([]WorkerReport, len(workers))
	closed := make([]bool, len(workers))
	var wg sync.WaitGroup
	for k, n := range workers {
		wg.Go(func() { closed[k] = n.report(ctx, &reports[k]) })
	}
	wg.Wait()
	r := &Report{Context: h.context.Info(), Workers: []WorkerReport{}}
	for k, n := range workers {
		if closed[k] {
			h.drop(n.worker)
			continue
		}
		r.Workers = append(r.Workers, reports[k])
	}
	return r
}

// report describes the worker. It reports whether the worker is closed.
func (n named) report(ctx context.Context, r *WorkerReport) (closed bool) {
	r.Name = n.name
	var err error
	if r.Counters, err = n.worker.Snapshot(ctx); err == nil {
		var info *ucp.WorkerInfo
		if err = n.worker.Inspect(ctx, func(w *ucp.Worker) { info = w.Info() }); err == nil {
			r.Info = info
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		r.Err = fmt.Sprintf("the owner of the worker has made no progress for %v", Patience)
	case err != nil:
		r.Err = err.Error()
	}
	return errors.Is(err, ucs.ErrClosed)
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

//go:embed page.html
var page []byte

func (h *Handler) servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page) // the client has gone
}

func (h *Handler) serveText(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, x := range h.Report(r.Context()).Workers {
		fmt.Fprintf(w, "worker %s\n", x.Name)
		if x.Info != nil {
			fmt.Fprintf(w, "%s", x.Info)
		}
		for path, n := range x.Counters.All() {
			if n != 0 {
				fmt.Fprintf(w, "counter %s %d\n", path, n)
			}
		}
		for path, h := range x.Counters.AllHistograms() {
			fmt.Fprintf(w, "latency %s %d times, p50 below %v, p99 below %v\n", path, h.Count(), h.Quantile(0.5), h.Quantile(0.99))
		}
		if x.Err != "" {
			fmt.Fprintf(w, "%s\n", x.Err)
		}
		fmt.Fprintln(w)
	}
}

func (h *Handler) serveInfo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(h.Report(r.Context())) // the client has gone
}
