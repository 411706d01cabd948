package ucp

import (
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// workerStats counts events that explain slow or missing operations. An operation that is posted or arrives in one
// call changes no counter.
type workerStats struct {
	root    *stats.Node
	spans   spans
	traffic [epClasses]classStats

	badMessages       stats.Counter // messages of peers that were malformed or late
	droppedMessages   stats.Counter // unreceived messages of disconnected peers that were dropped at the limit
	brokenLanes       stats.Counter // transport endpoints that failed
	replacedLanes     stats.Counter // lanes that failed or did not connect; another transport replaces them if there is one
	laneRetries       stats.Counter // lanes on trial, over paths of lanes that had failed
	returnedLanes     stats.Counter // lanes that had failed, and whose path works again
	repeatedTransfers stats.Counter // transfers that were posted again because their lane broke
	failedEPs         stats.Counter // EPs that failed
	expiredEPs        stats.Counter // connections that a peer requested and that did not complete in time
	evictedEPs        stats.Counter // half-open connections of peers that were evicted for others
	rejectedEPs       stats.Counter // connections of peers that had reached their limit
	refusedPeers      stats.Counter // connection requests that waited or were dropped because too many connections were half open

	// The following are not faults.
	closedLanes     stats.Counter                      // transport endpoints that the peer has closed gracefully
	idleClosedLanes stats.Counter                      // transport endpoints that were closed because neither side had operations
	reopenedEPs     stats.Counter                      // EPs that have connected again after that
	leftPeers       stats.Counter                      // EPs whose peer has closed its EP or worker
	waitsResource   stats.Counter                      // operations that waited for resources of a transport
	waitsCredit     stats.Counter                      // times that messages of an EP waited for the peer to grant credit
	announced       stats.Counter                      // messages that were sent by rendezvous
	fetched         [proto.Fragments + 1]stats.Counter // rendezvous messages of peers, by scheme
}

// init makes the tree. sleeps counts the waits in which the goroutine
// slept in the kernel.
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
	s.root.Add("idle_closed_lanes", &s.idleClosedLanes)
	s.root.Add("reopened_eps", &s.reopenedEPs)
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

// Stats returns the root of a tree of counters: those of the worker and, below it, those of
// its transports, as "worker/sm@memory.malformed_links". Any goroutine may read it, also
// after Close. expvar.Publish accepts it.
func (w *Worker) Stats() *stats.Node { return w.stats.root }
