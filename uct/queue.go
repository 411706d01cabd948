package uct

// Receive queues are numbered queues of posted receives to which a peer sends: the transport copies a
// message from the sender's memory into the memory of the first receive of the queue, without an
// intermediate buffer. A message for which no receive is posted waits in the transport, without a time
// limit and without work for the CPUs of either side. Later messages of its connection wait behind it;
// other connections do not. A queue is for one peer: the transport rejects messages of others before
// they reach memory.
//
//	sender                                   target
//	EP.Ops().Queues                          EP.Ops().Queues
//	   |  Attach(number)                        |  NewQueue
//	QueueConn  -- SendZcopy ------------->   Queue  <-- Post
//
// The two sides exchange the number of the queue and the maximum length of its messages by other
// messages.
//
// If the device loses completions of an iface (its completion queue fails), all EPs of the iface fail with
// ErrIO. Receives, sends and Recalls in flight complete with StatusIOError; whether their messages were
// received is unknown. NewQueue and Post then return ErrIO.

// QueueAttr has the limits of receive queues. All are zero iff CapQueue is not claimed; otherwise each is
// positive.
type QueueAttr struct {
	MaxMessage int // bytes of a message
	MaxIOV     int // IOV elements of a send
	MaxRecvIOV int // IOV elements of a receive, at least 2
	MaxDepth   int // posted receives of a queue
	MaxQueues  int // open queues of an iface
	// MaxConns is the number of queues of its peer to which an EP can be attached at the same time. It can
	// be lower while EPs to other peers use the same pool of connections.
	MaxConns int
}

// Queuer creates receive queues for the peer of an EP, and sends to those of the peer. Present iff CapQueue.
type Queuer interface {
	QueueSender
	// NewQueue creates an empty queue with room for depth receives. Only the peer EP can send to it, or
	// any EP of the peer iface if the transport connects to ifaces; other sends
	// complete with StatusCanceled. The queue stays open when the EP is closed. NewQueue may block, as it
	// may create device objects. Errors: ErrInvalidParam (depth not in 1..Queue.MaxDepth), ErrNoMemory
	// (Queue.MaxQueues of the iface are open), ErrClosed.
	NewQueue(depth int) (Queue, error)
}

// Queue is a receive queue. Methods must be called by the goroutine that owns the iface.
type Queue interface {
	// Number returns the number of the queue for the peer. It is not 0, never changes, and is unique among open queues.
	Number() uint32
	// Post adds a receive at the end of the queue. A message fills the entries of iov, which
	// need local write access, in order. The caller must not use iov and r until r.Func is
	// called. A message must not be longer than its receive: otherwise the behavior of the EP and of the
	// receive is undefined. A caller with a buffer that may be too small adds an
	// entry for the excess bytes. Many receives may share this entry; its content is undefined.
	// Errors: ErrNoResource (the queue is full: post after a receive has completed),
	// ErrTooLong (len(iov) > Queue.MaxRecvIOV), ErrInvalidParam (a Mem that is missing,
	// lacks the access right or does not cover its Buf), ErrClosed (after Stop).
	Post(r *QueueRecv, iov []IOV) error
	// Received returns the number of receives that have completed with a message. It
	// does not change after Stop when all receives have completed.
	Received() uint64
	// Stop stops the queue: after it has returned nil, no further message is received. Every
	// posted receive completes from this call or from Progress: with StatusOK if it has a
	// message, otherwise with StatusCanceled. Sends to the queue complete with
	// StatusCanceled. Stop does not block. Error: ucs.InUseError if a peer is copying
	// a message, which takes long only if the peer is stopped. No
	// further message begins then; the caller must call Stop again. After Stop has returned nil,
	// further calls have no effect.
	Stop() error
	// Close stops the queue, if Stop has not, and releases it and its number. It waits
	// for a peer that is copying a message, and returns ucs.InUseError if the copy has not ended within
	// ucs.RevokeLimit; the caller may then call Close again. All receives have completed when Close returns
	// nil. Idempotent. Closing the iface closes its queues.
	Close() error
}

// QueueRecv is a receive of a queue. The caller owns it, usually as a part of a pooled
// record, and must not free or reuse it while it is posted.
type QueueRecv struct {
	// Func runs once when the receive completes, from Progress of the iface, or from
	// Stop or Close of the queue or iface. It may post the receive again. For other calls that it
	// may make see the package documentation, "Calls from callbacks".
	Func func(*QueueRecv)
	// Len is the length of the message in bytes.
	Len int
	// Status is StatusOK if there is a message, otherwise the reason why there is none.
	Status Status
}

// QueueSender sends to receive queues that the peer has created for this EP.
type QueueSender interface {
	// Attach returns a connection to one queue of the peer. The caller must have no other connection to
	// that queue. Attach does not check the number. The first use of a connection may create device
	// objects; later uses do not allocate. Errors: ErrBusy (all connections of the EP are in
	// use or are being recalled: try again after a Detach or Recall), ErrEPFailed, errors
	// of the device.
	Attach(number uint32) (QueueConn, error)
}

// QueueConn is a connection of an EP to one queue. The caller must not use it after
// Detach or Recall. Flush, Fence and pending requests of the EP do not include its sends.
type QueueConn interface {
	// SendZcopy sends the bytes of iov, in order, as one message. Messages of a
	// connection are received in the order in which they were sent. c must not be nil, and the caller must not modify
	// the bytes of iov until c fires. The status is StatusOK when the message has been
	// received, and StatusCanceled if there is no queue of that number for this EP or the queue was
	// stopped; all later sends of the connection then complete with StatusCanceled too. Recall and
	// a failure of the EP also complete it. Without an error pending is always true. Errors:
	// ErrNoResource (the connection has as many sends in flight as it can: send after one
	// has completed), ErrTooLong (longer than Queue.MaxMessage, len(iov) > Queue.MaxIOV),
	// ErrInvalidParam (a Mem that is missing or does not cover its Buf), ErrEPFailed.
	SendZcopy(iov []IOV, c *Completion) (pending bool, err error)
	// Recall cancels the sends in flight and releases the connection as Detach does.
	// Every send in flight completes from this call or from Progress: with StatusOK if its message was
	// received, with StatusCanceled if that is not certain. Messages are received in order, so the peer's
	// Queue.Received determines which messages were received. Then c fires, and no message is received after
	// that. (false, nil): all sends have completed already, and c does not fire. Recall needs no
	// CPU of the target; the next Attach may need it. Errors: ErrEPFailed.
	Recall(c *Completion) (pending bool, err error)
	// Detach releases the connection. ErrBusy while a send is in flight.
	Detach() error
}
