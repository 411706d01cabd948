package ucp

import (
	"context"
	"runtime/trace"
	"strings"
	"time"

	"github.com/gucx/gucx/ucs/stats"
)

// spans are what takes time: operations and rendezvous, connecting, and the replacement of a lane that broke. With
// Config.LatencyStats their durations are counted in histograms, and no operation is posted in one call, so that none
// is left out. While runtime/trace records, each is a task of the trace, but for operations.
type spans struct {
	node   *stats.Node // nil without LatencyStats
	byName map[string]*stats.Histogram
	open   map[spanOf]span
}

// spanOf identifies a span: its kind, and the request or EP that it belongs to.
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
	task  *trace.Task // nil if nothing recorded when it began
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
		s.end(spanOf{spanFailover, e})
	},
	destroyed: func(e *EP) {
		s := &e.w.stats.spans
		s.drop(spanOf{spanConnect, e})
		s.drop(spanOf{spanFailover, e})
	},
}

// measures reports whether operations are measured.
func (s *spans) measures() bool { return s.node != nil }

// begin begins a span, if it is of use to anybody. It reports whether it is.
func (s *spans) begin(of spanOf, name string) bool {
	traced := of.kind != spanOperation && trace.IsEnabled()
	if !traced && !s.measures() {
		return false
	}
	x := span{name: strings.ReplaceAll(name, " ", "_"), began: time.Now()}
	if traced {
		_, x.task = trace.NewTask(context.Background(), "gucx."+x.name)
	}
	if s.open == nil {
		s.open = map[spanOf]span{}
	}
	s.drop(of)
	s.open[of] = x
	return true
}

// end counts the duration of a span, if it has begun.
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
		s.node.AddHistogram(x.name, h)
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

// beginOperation begins to measure an operation that the caller has issued. What gucx issues for it is part of it.
func (s *spans) beginOperation(r *Request) {
	if !r.stage.ahead && s.begin(spanOf{spanOperation, r}, r.stage.name) {
		r.flags |= reqSpans
	}
}

// announcedBy counts a message that was announced, and begins the span of its rendezvous.
func (s *workerStats) announcedBy(r *Request) {
	s.announced.Inc()
	if s.spans.begin(spanOf{spanRendezvous, r}, "rendezvous") {
		r.flags |= reqSpans
	}
}

// endOf ends the spans of a request, which has ended. Those of one that has failed are not counted.
func (s *spans) endOf(r *Request) {
	finish := s.end
	if r.err() != nil {
		finish = s.drop
	}
	finish(spanOf{spanOperation, r})
	finish(spanOf{spanRendezvous, r})
}
