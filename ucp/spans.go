package ucp

import (
	"context"
	"runtime/trace"
	"strings"
	"time"

	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucs/stats"
)

// spans measures operations, rendezvous, connection setup and failover. With Config.LatencyStats
// their durations are counted in histograms, and no operation is posted in one call, so that each
// is measured, except receives and sends through tuple queues. While runtime/trace records, each
// span except an operation is a task of the trace.
type spans struct {
	node   *stats.Node // nil without LatencyStats
	byName map[string]*stats.Histogram
	open   map[spanOf]span
}

// spanOf identifies a span: its kind, and its request or EP.
type spanOf struct {
	kind spanKind
	of   any
}

type spanKind uint8

const (
	spanOperation spanKind = iota
	spanRendezvous
	spanConnect
	spanFailover
)

type span struct {
	name  string
	began time.Time
	lost  handshake.Roles // of a failover: the roles of the lane that broke
	task  *trace.Task     // nil if runtime/trace did not record when the span began
}

var spanProtocol = protocol{
	init: func(w *Worker) {
		if w.ctx.cfg.LatencyStats {
			w.stats.spans.node = w.stats.root.Child("latency")
		}
	},
	linked: func(e *EP) { e.w.stats.spans.begin(spanOf{spanConnect, e}, "connect") },
	laneActivated: func(e *EP) {
		s := &e.w.stats.spans
		s.end(spanOf{spanConnect, e})
		s.endFailover(e)
	},
	destroyed: func(e *EP) {
		s := &e.w.stats.spans
		s.drop(spanOf{spanConnect, e})
		s.drop(spanOf{spanFailover, e})
	},
}

// measures reports whether operations are measured.
func (s *spans) measures() bool { return s.node != nil }

// begin begins a span if it is measured or traced, and reports whether it is.
func (s *spans) begin(of spanOf, name string) bool {
	traced := of.kind != spanOperation && trace.IsEnabled()
	if !traced && !s.measures() {
		return false
	}
	x := span{name: name, began: time.Now()}
	if traced {
		_, x.task = trace.NewTask(context.Background(), "gucx."+name)
	}
	if s.open == nil {
		s.open = map[spanOf]span{}
	}
	s.drop(of)
	s.open[of] = x
	return true
}

// end counts the duration of a span, if the span is open.
func (s *spans) end(of spanOf) {
	x, found := s.open[of]
	if !found {
		return
	}
	s.drop(of)
	if !s.measures() {
		return
	}
	h := s.byName[x.name]
	if h == nil {
		h = new(stats.Histogram)
		if s.byName == nil {
			s.byName = map[string]*stats.Histogram{}
		}
		s.byName[x.name] = h
		s.node.AddHistogram(strings.ReplaceAll(x.name, " ", "_"), h)
	}
	h.Observe(time.Since(x.began))
}

// drop ends a span without counting it.
func (s *spans) drop(of spanOf) {
	if x := s.open[of]; x.task != nil {
		x.task.End()
	}
	delete(s.open, of)
}

// beginFailover begins the span of the replacement of a lane that had the roles.
func (s *spans) beginFailover(e *EP, roles handshake.Roles) {
	of := spanOf{spanFailover, e}
	if s.begin(of, "failover") {
		x := s.open[of]
		x.lost = roles
		s.open[of] = x
	}
}

// endFailover ends the span of a failover if other lanes have all the roles.
func (s *spans) endFailover(e *EP) {
	of := spanOf{spanFailover, e}
	if x, found := s.open[of]; found && !e.lacksAnyRole(x.lost) {
		s.end(of)
	}
}

// beginOperation begins the span of an operation of the caller. The requests that gucx makes for
// the operation have no span.
func (s *spans) beginOperation(r *Request) {
	if !r.stage.unfenced && r.parent == nil && s.begin(spanOf{spanOperation, r}, r.stage.name) {
		r.flags |= reqSpans
	}
}

// announcedBy counts an announced message, and begins the span of its rendezvous.
func (s *workerStats) announcedBy(r *Request) {
	s.announced.Inc()
	if s.spans.measures() || trace.IsEnabled() {
		s.spans.beginRendezvous(r)
	}
}

//go:noinline
func (s *spans) beginRendezvous(r *Request) {
	if s.begin(spanOf{spanRendezvous, r}, "rendezvous") {
		r.flags |= reqSpans
	}
}

// endOf ends the spans of a complete request. It does not count those of a failed one.
func (s *spans) endOf(r *Request) {
	finish := s.end
	if r.err() != nil {
		finish = s.drop
	}
	finish(spanOf{spanOperation, r})
	finish(spanOf{spanRendezvous, r})
}
