// Package tuple implements TupleQ: the messages of a tuple, that is of one tag from one
// peer, go through a receive queue of the transport. It decides when a queue is opened and closed, and keeps
// messages in order. docs/design/0007-tupleq.md gives the reasons, docs/wire.md the
// control messages of the two sides.
//
//	Sender (of a connection)                    Source (of a connection), Receiver (of a worker)
//	usual     messages on other lanes
//	          OPEN   ------------------------>  a queue is made
//	asked     <---------------------- OPENED    offered
//	          SWITCH ------------------------>  open: it has the receives of the tag
//	open      messages --------> queue
//	          <------------------------ STOP    stopping: all receives of the worker wait
//	closing   STOPPED ----------------------->
//	          <---------------------- CLOSED    closed: so many have come
//	usual     NEXT, message, ... RESENT ----->  receives find messages again
//
// The sender can close a queue too: it sends STOPPED first.
//
// A [Receiver] uses the table of package match, which matches receives and messages
// that use no queue. Receives posted to a queue are not in that table, so a queue and a
// receive in the table must never compete for a message. A receive that would compete with queues
// closes them first. Until they are closed the worker is paused: it holds receives and messages in
// order, and matches them afterwards as if all had arrived at once.
//
// The package uses uct.Queue and uct.QueueConn of a transport. Interfaces stand for connections, workers, requests
// and receives. The goroutine that owns the worker calls everything, and no call blocks longer than opening or
// closing a uct.Queue. A message through an open queue allocates nothing.
package tuple
