package ucpprom

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpdebug"
)

// TestCollector: a registry takes the metrics, and their values are those of the worker.
func TestCollector(t *testing.T) {
	t.Setenv("GUCX_LATENCY_STATS", "y")
	c, err := gucx.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h := ucpdebug.New(c)
	var workers [2]*ucp.Worker
	for i := range workers {
		if workers[i], err = c.NewWorker(ucp.WorkerConfig{}); err != nil {
			t.Fatal(err)
		}
		defer workers[i].Close()
		h.Add([]string{"a", "b"}[i], workers[i])
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { _ = workers[1].Serve(ctx) })
	ep, err := workers[0].NewEP(workers[1].Address(), ucp.EPConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := ep.TagSendWait(ctx, 7, make([]byte, 100), nil); err != nil {
		t.Fatal(err)
	}
	wg.Go(func() { _ = workers[0].Serve(ctx) })

	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(h))
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP gucx_ep_sent_bytes_total Counter sent_bytes of ucp.Worker.Stats.
# TYPE gucx_ep_sent_bytes_total counter
gucx_ep_sent_bytes_total{class="accepted",worker="a"} 0
gucx_ep_sent_bytes_total{class="accepted",worker="b"} 0
gucx_ep_sent_bytes_total{class="made",worker="a"} 500
gucx_ep_sent_bytes_total{class="made",worker="b"} 0
gucx_ep_sent_bytes_total{class="self",worker="a"} 0
gucx_ep_sent_bytes_total{class="self",worker="b"} 0
# HELP gucx_up The owner of the worker makes progress.
# TYPE gucx_up gauge
gucx_up{worker="a"} 1
gucx_up{worker="b"} 1
`), "gucx_ep_sent_bytes_total", "gucx_up"); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "gucx_latency_tag_send_seconds" {
			continue
		}
		if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() <= 0 {
			t.Fatal(h)
		}
		return
	}
	t.Fatal("no latency of the message")
}
