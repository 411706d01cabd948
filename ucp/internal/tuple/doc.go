// Package tuple has the rules by which the messages of a tuple, that is of one tag from one
// peer, go through a receive queue of the transport: when a queue comes and goes, and why
// the order of messages stays. docs/design/0007-tupleq.md gives the reasons, docs/wire.md the
// bytes of what the two sides tell each other.
//
//	Sender (of a connection)                    Source (of a connection), Receiver (of a worker)
//	usual     messages by other ways
//	          OPEN   ------------------------>  a queue is made
//	asked     <---------------------- OPENED    offered
//	          SWITCH ------------------------>  open: it has the receives of the tag
//	open      messages --------> queue
//	          <------------------------ STOP    stopping: all receives of the worker wait
//	closing   STOPPED ----------------------->
//	          <---------------------- CLOSED    closed: so many have come
//	usual     NEXT, message, ... RESENT ----->  receives find messages again
//
// The sender can close a queue too: then it begins with STOPPED.
//
// A [Receiver] has the table of package match in which receives and messages find each other
// that go through no queue. What a queue has taken is hidden from that table, so a queue and a
// receive in the table must never compete for a message. A receive that would compete with queues
// closes them first. Until they are closed the worker is paused: it keeps receives and messages in
// order, and matches them afterwards as if all had come at once.
//
// Of transports the package knows uct.Queue and uct.QueueConn; connections, workers, requests
// and receives are what the interfaces here say. Everything belongs to the goroutine that owns
// the worker, and nothing blocks longer than making or closing a uct.Queue does. A message
// through a queue that is there allocates nothing.
package tuple
