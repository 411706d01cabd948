package ucp

import (
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// workerStats counts what explains why something is slow or does not come: nothing on
// the way of an operation that is posted or arrives in one call.
type workerStats struct {
	root  *stats.Node
	spans spans

	badMessages       stats.Counter // of peers, that made no sense or came late
	droppedMessages   stats.Counter // of peers that have gone, beyond the budget
	brokenLanes       stats.Counter // transport endpoints that failed
	replacedLanes     stats.Counter // lanes that came to nothing, and had another transport take their place if there was one
	laneRetries       stats.Counter // lanes on trial, over paths of lanes that had failed
	returnedLanes     stats.Counter // lanes that had failed, and whose path works again
	repeatedTransfers stats.Counter // that were posted anew as their lane broke
	failedEPs         stats.Counter // EPs that failed
	expiredEPs        stats.Counter // connections that a peer asked for and that never came about
	evictedEPs        stats.Counter // connections that a peer asked for and that made room for others
	rejectedEPs       stats.Counter // connections of peers that had made as many as they may
	refusedPeers      stats.Counter // requests for a connection that found too many half open, and had to wait or were dropped

	// These are no faults.
	closedLanes   stats.Counter                      // transport endpoints that the peer has closed in order
	leftPeers     stats.Counter                      // EPs whose peer has closed them, or its worker
	waitsResource stats.Counter                      // operations that waited for resources of a transport
	waitsCredit   stats.Counter                      // times that messages of an EP waited for the peer to grant credit
	announced     stats.Counter                      // messages that were announced (RTS)
	fetched       [proto.Fragments + 1]stats.Counter // announced messages of peers, by scheme
}

// init makes the tree. sleeps counts the waits that had the kernel put the goroutine to
// sleep.
func (s *workerStats) init(sleeps *stats.Counter) {
	s.root = stats.New("worker")
	s.root.Add("bad_messages", &s.badMessages)
	s.root.Add("dropped_messages", &s.droppedMessages)
	s.root.Add("broken_lanes", &s.brokenLanes)
	s.root.Add("replaced_lanes", &s.replacedLanes)
	s.root.Add("lane_retries", &s.laneRetries)
	s.root.Add("returned_lanes", &s.returnedLanes)
	s.root.Add("repeated_transfers", &s.repeatedTransfers)
	s.root.Add("failed_eps", &s.failedEPs)
	s.root.Add("expired_eps", &s.expiredEPs)
	s.root.Add("evicted_eps", &s.evictedEPs)
	s.root.Add("rejected_eps", &s.rejectedEPs)
	s.root.Add("refused_peers", &s.refusedPeers)
	s.root.Add("sleeps", sleeps)
	s.root.Add("closed_lanes", &s.closedLanes)
	s.root.Add("left_peers", &s.leftPeers)
	s.root.Add("waits_for_resources", &s.waitsResource)
	s.root.Add("waits_for_credit", &s.waitsCredit)
	s.root.Add("announced_messages", &s.announced)
	s.root.Add("fetched_by_get", &s.fetched[proto.Get])
	s.root.Add("fetched_by_put", &s.fetched[proto.Put])
	s.root.Add("fetched_by_copies", &s.fetched[proto.Fragments])
}

// addIface adds the counters of a transport that has some.
func (s *workerStats) addIface(transport, device string, c uct.Counted) {
	if c != nil {
		c.AddStats(s.root.Child(transport + "@" + device))
	}
}

// Stats is the root of a tree of counters: those of the worker and, below it, those of
// its transports, as "worker/sm@memory.malformed_links". Any goroutine may read it, also
// after Close; expvar.Publish takes it as it is.
func (w *Worker) Stats() *stats.Node { return w.stats.root }
