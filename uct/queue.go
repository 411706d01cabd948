package uct

// Receive queues are numbered queues of posted receives that peers send to: a message goes
// from the sender's memory into the memory of the first receive of the queue, and nothing
// else happens on the way. A message for which there is no receive waits in the transport,
// as long as it takes and without the processor of either side, and with it those behind
// it on its connection. Nothing else waits for it. A queue is for one peer: the transport refuses
// messages of others before they reach memory.
//
//	sender                                   target
//	EP.Ops().Queues                          EP.Ops().Queues
//	   |  Attach(number)                        |  NewQueue
//	QueueConn  -- SendZcopy ------------->   Queue  <-- Post
//
// What the two sides must know of each other, the number and how long messages may be,
// they tell each other by messages of their own.
//
// When the device loses what tells an iface of the end of operations, all its EPs fail with ErrIO, and
// what is under way on its queues and connections, Recall too, ends with StatusIOError: what of it was
// received is not known. NewQueue and Post return ErrIO from then on.

// QueueAttr bounds receive queues. All zero iff CapQueue is not claimed; otherwise each is
// positive.
type QueueAttr struct {
	MaxMessage int // bytes of a message
	MaxIOV     int // pieces of a send
	MaxRecvIOV int // pieces of a receive, at least 2
	MaxDepth   int // receives that one queue holds
	MaxQueues  int // queues that the iface has at the same time
	// MaxConns is to how many queues of its peer an EP can send at the same time. It may
	// be fewer while EPs to other peers share connections with it.
	MaxConns int
}

// Queuer makes receive queues for the peer of an EP, and sends to those of the peer. Present iff CapQueue.
type Queuer interface {
	QueueSender
	// NewQueue makes an empty queue that holds depth receives. Only the peer's EP that the EP is
	// connected to, or where a transport connects to ifaces any EP of that iface, sends to it: other sends
	// end with StatusCanceled. The queue stays when the EP is closed. Blocking: it may create
	// device objects. Errors: ErrInvalidParam (depth not in 1..Queue.MaxDepth), ErrNoMemory
	// (Queue.MaxQueues of the iface are open), ErrClosed.
	NewQueue(depth int) (Queue, error)
}

// Queue is a receive queue. Methods must be called by the goroutine that owns the iface.
type Queue interface {
	// Number is what peers call the queue. It is not 0, does not change, and is not that
	// of another queue before Close.
	Number() uint32
	// Post adds a receive behind those that are there. A message fills the pieces of iov, which
	// need local write access, in order; iov and r are the transport's until r.Func has been
	// called. No message may be longer than the receive that it fills: otherwise what becomes of
	// its EP and of the receive is not defined. So a caller whose buffer may be too short adds a
	// piece that takes the rest. The same piece may be part of many receives; its content is not
	// defined. Errors: ErrNoResource (the queue holds as many as it can: post when one has
	// ended), ErrTooLong (len(iov) > Queue.MaxRecvIOV), ErrInvalidParam (a Mem that is missing,
	// lacks the right or does not cover its Buf), ErrClosed (after Stop).
	Post(r *QueueRecv, iov []IOV) error
	// Received is how many messages have been received, and told to their receives. It
	// does not grow any more once all receives have ended after Stop.
	Received() uint64
	// Stop ends the queue: when it has returned nil no message is received any more. Every
	// receive that is posted ends from this call or from Progress: those that have a
	// message with StatusOK, the others with StatusCanceled. Sends to it end with
	// StatusCanceled. It does not wait. Error: ucs.InUseError if a peer is in the middle
	// of a message, which ends in the time of a copy unless the peer is stopped there: no
	// other message begins then, and Stop is to be called again. Once it has returned nil,
	// further calls do nothing.
	Stop() error
	// Close stops the queue if that was not done, and releases it and its number. It waits
	// for a peer in the middle of a message: ucs.InUseError if that has not ended it within
	// ucs.RevokeLimit, and then Close may be called again. Receives end at the latest from
	// this call. Idempotent. The Close of the iface closes its queues.
	Close() error
}

// QueueRecv is a receive of a queue. The caller owns it, usually as a part of a pooled
// record, and keeps it as long as it is posted.
type QueueRecv struct {
	// Func runs once when the receive has ended, from Progress of the iface, or from
	// Stop or Close of the queue or iface. It may post the receive again. What else it
	// may do: see the package, "Calls from inside".
	Func func(*QueueRecv)
	// Len is the length of the message in bytes, that of all pieces together.
	Len int
	// Status is StatusOK if there is a message, otherwise why there is none.
	Status Status
}

// QueueSender sends to receive queues that the peer has made for this EP.
type QueueSender interface {
	// Attach takes a connection for sends to one queue, to which the caller has no other.
	// It does not check the number. The first use of a connection may create device
	// objects; later ones do not allocate. Errors: ErrBusy (all connections of the EP are
	// taken, or are being recalled: try again when one was given back), ErrEPFailed, what
	// the device says of the objects.
	Attach(number uint32) (QueueConn, error)
}

// QueueConn carries the sends to one queue. It belongs to its EP. After Detach or Recall it
// is not to be used any more. Flush, Fence and pending requests of the EP do not cover it.
type QueueConn interface {
	// SendZcopy sends the bytes of iov, in order, as one message. Messages of a
	// connection are received in the order in which they were sent. c is not nil, and iov is
	// the transport's until c fires. Its status is StatusOK when the message has been
	// received, and StatusCanceled if there is no queue of that number for this EP or the queue was
	// stopped: then all later sends of the connection end with StatusCanceled too. Recall and
	// the end of the EP also end it. It is always pending if there is no error. Errors:
	// ErrNoResource (the connection holds as many as it can, at least one: send when one
	// has ended), ErrTooLong (longer than Queue.MaxMessage, len(iov) > Queue.MaxIOV),
	// ErrInvalidParam (a Mem that is missing or does not cover its Buf), ErrEPFailed.
	SendZcopy(iov []IOV, c *Completion) (pending bool, err error)
	// Recall takes back what has not been received, and gives the connection back as Detach does.
	// Every send that is under way ends from this call or from Progress: with StatusOK if it was
	// received, with StatusCanceled if that is not certain. Messages are received in order, so
	// Queue.Received tells which ones were. Then c fires, and none of them is received after
	// that. (false, nil): all have ended already, and c does not fire. The target's processor is
	// not needed for this; the next Attach may need it. Errors: ErrEPFailed.
	Recall(c *Completion) (pending bool, err error)
	// Detach gives the connection back. ErrBusy while a send is under way.
	Detach() error
}
