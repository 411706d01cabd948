// Package ucpprom has a Prometheus collector of the counters of workers. It is a module of its own, so that a program
// that uses gucx without Prometheus does not depend on Prometheus.
//
//	debug := ucpdebug.New(context)
//	debug.Add("main", worker)
//	prometheus.MustRegister(ucpprom.New(debug))
//
// A counter of a worker is gucx_worker_NAME_total, of a class of endpoints gucx_ep_NAME_total, of a transport
// gucx_transport_NAME_total, and of another part of a worker (listen, dial, tupleq, caches) gucx_PART_NAME_total.
// With Config.LatencyStats of ucp the histograms are gucx_latency_NAME_seconds. Gauges are gucx_up, which is 0 if the owner of the worker makes no progress, and then, of the rest,
// gucx_endpoints, gucx_receives_posted, gucx_messages_unexpected and gucx_left_bytes.
package ucpprom

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gucx/gucx/ucp/ucpdebug"
	"github.com/gucx/gucx/ucs/stats"
)

// Collector collects the counters of the workers of a handler. Any goroutine may use it.
type Collector struct{ workers *ucpdebug.Handler }

var _ prometheus.Collector = (*Collector)(nil)

// New makes a collector of the workers that h shows.
func New(h *ucpdebug.Handler) *Collector { return &Collector{workers: h} }

// Describe implements prometheus.Collector. It describes nothing: which counters there are depends on the transports
// and on what a worker has done.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. It waits at most ucpdebug.Patience for the owners of the workers.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for _, w := range c.workers.Report(context.Background()).Workers {
		s := sink{out: out, labels: []string{"worker"}, values: []string{w.Name}}
		s.node("worker", w.Counters)
		s.gauge("up", "The owner of the worker makes progress.", btoi(w.Info != nil))
		if i := w.Info; i != nil {
			s.gauge("endpoints", "Endpoints that are not closed.", len(i.EPs))
			s.gauge("receives_posted", "Receives of tagged messages that no message matches yet.", i.Receives)
			s.gauge("messages_unexpected", "Tagged messages that match no receive yet.", i.Unexpected)
			s.gauge("left_bytes", "Bytes of messages of peers that have gone.", int(i.Left))
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sink sends metrics with the labels of one object.
type sink struct {
	out            chan<- prometheus.Metric
	labels, values []string
}

// with is the sink with a label more.
func (s sink) with(label, value string) sink {
	s.labels = append(s.labels[:len(s.labels):len(s.labels)], label)
	s.values = append(s.values[:len(s.values):len(s.values)], value)
	return s
}

// node sends the counters of a part of a worker, and of the parts below it.
func (s sink) node(part string, n stats.Snapshot) {
	for _, c := range n.Counters {
		desc := prometheus.NewDesc("gucx_"+name(part)+"_"+name(c.Name)+"_total", "Counter "+c.Name+" of ucp.Worker.Stats.", s.labels, nil)
		s.out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(c.N), s.values...)
	}
	for _, h := range n.Histograms {
		s.histogram("gucx_"+name(part)+"_"+name(h.Name)+"_seconds", h)
	}
	for _, c := range n.Children {
		kind, device, found := strings.Cut(c.Name, "@")
		switch {
		case found && kind == "ep":
			s.with("class", device).node("ep", c)
		case found:
			s.with("transport", kind).with("device", device).node("transport", c)
		default:
			s.node(c.Name, c)
		}
	}
}

func (s sink) histogram(name string, h stats.HistogramValue) {
	desc := prometheus.NewDesc(name, "Histogram "+h.Name+" of ucp.Worker.Stats.", s.labels, nil)
	below, buckets := uint64(0), map[float64]uint64{}
	for k, n := range h.Buckets[:len(h.Buckets)-1] {
		below += n
		buckets[stats.Bound(k).Seconds()] = below
	}
	s.out <- prometheus.MustNewConstHistogram(desc, h.Count(), float64(h.SumNS)/1e9, buckets, s.values...)
}

func (s sink) gauge(name, help string, n int) {
	s.out <- prometheus.MustNewConstMetric(prometheus.NewDesc("gucx_"+name, help, s.labels, nil), prometheus.GaugeValue, float64(n), s.values...)
}

// name is a name as Prometheus permits it.
func name(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, s)
}
