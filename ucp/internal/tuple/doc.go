// Package tuple implements TupleQ. A tuple is one tag of one peer. The messages of a tuple use a receive queue of the
// transport. The package decides when a queue is opened and closed, and preserves the order of messages.
// docs/design/0007-tupleq.md has the reasons, docs/wire.md the control messages of the two sides. "The usual way" of a
// message is without a queue: eager or rendezvous.
//
//	Sender (of a connection)                    Source (of a connection), Receiver (of a worker)
//	usual     messages on other lanes
//	          OPEN   ------------------------>  a queue is made
//	requested <---------------------- OPENED    offered
//	          SWITCH ------------------------>  open: it has the receives of the tag
//	open      messages --------> queue
//	          <------------------------ STOP    stopping: all receives of the worker wait
//	closing   STOPPED ----------------------->
//	          <---------------------- CLOSED    closed, with the number of received messages
//	usual     NEXT, message, ... RESENT ----->  receives find messages again
//
// The sender can close a queue too: it sends STOPPED first. It sends SWITCH only when no message waits for credit.
//
// A [Receiver] uses the table of package match, which matches receives and messages
// that use no queue. Receives posted to a queue are not in that table, so a queue and a
// receive in the table must never compete for a message. A receive that would compete with queues
// closes them first. Until they are closed the worker is paused: it queues receives and messages in
// order, and matches them afterwards as if all had arrived at the same time.
//
// The package uses uct.Queue and uct.QueueConn of a transport. It uses connections, workers, requests and receives through
// interfaces. Only the goroutine that owns the worker may call the package. No call blocks longer than opening or closing a
// uct.Queue. A message through an open queue allocates nothing.
package tuple
