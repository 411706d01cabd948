package timing

import "slices"

// Kind is the type of an operation, as far as the model distinguishes them.
type Kind uint8

// Kinds.
const (
	Write Kind = iota // data is sent, an acknowledgement is returned
	Fetch             // a request is sent, data is returned: reads and atomics
)

// Span is a range of memory.
type Span struct {
	Addr uint64
	Len  uint32
}

// WQE is a work request as the NIC sees it.
type WQE struct {
	Index    uint16 // of its first basic block
	Blocks   int    // basic blocks of 64 bytes
	Kind     Kind
	Signaled bool
	Len      uint64 // bytes of the message
	// Payload is the memory that the NIC reads by DMA: none if the bytes are inline, or if they come from the other
	// side.
	Payload []Span
	// To is the destination NIC, or the one from which data is fetched; nil is the same one. Only a model from
	// NewNetwork uses it.
	To *NIC
}

// Sink is notified when the completion of a signaled work request is in its queue.
type Sink interface {
	Complete(index uint16)
}

// QPConfig describes a queue pair by what its driver does in a post.
type QPConfig struct {
	NIC  *NIC // nil: that of the creating process, or else the first one
	Page *Page
	// QueueLocked, RegisterLocked: a post takes the lock of the queue, and that of the register, which QPs share.
	QueueLocked, RegisterLocked bool
	Sink                        Sink
	CQ                          *CQ // for completions; nil if no thread polls for another
}

// QP is a queue pair.
type QP struct {
	m       *Model
	cfg     QPConfig
	process *Process
	lock    *lock
	state   shared
	tail    shared // what has been retired

	read             bool   // by a thread that polled for another:
	idLine, headLine uint16 // the last lines that it had to fetch

	posted  []*job // not all executing yet, in order
	started int    // of posted: executing
	asked   int    // of posted: known to the NIC, or being fetched
	fetches int    // outstanding DMA reads for work requests
	flying  []*job // sent, in order
	backOff bool   // the first of flying is not executed and waits until it is sent again
}

// job is a WQE on its way through the NIC.
type job struct {
	WQE
	known   bool // the NIC has the work request
	missing int  // pieces of the payload
	started bool
	acked   bool

	// In a model from NewNetwork.
	sent     int  // number of tries
	arrived  bool // what was sent last
	executed bool
}

// NewQP returns a queue pair.
func (m *Model) NewQP(cfg QPConfig) *QP {
	return &QP{m: m, cfg: cfg, process: m.owner(), lock: m.newLock(cfg.QueueLocked, &m.stats.QueueLockWait),
		state: shared{m: m, n: m.params.QPLines}, tail: shared{m: m, n: m.params.RetireLines}}
}

// Post accounts for a post of the running thread: new work requests in the queue, and a store to the register at an
// offset of the page. blueFlame: the store contained the (only) work request, not a doorbell. It returns when the
// thread continues; the completions follow later. Outside of a step everything completes at once.
func (q *QP) Post(register uint32, blueFlame bool, wqes []WQE) {
	m := q.m
	th := m.current
	if th == nil || th.stopped {
		q.completeAll(wqes)
		return
	}
	th.settle()
	p := &m.params
	blocks := 0
	for i := range wqes {
		blocks += wqes[i].Blocks
	}
	m.marks++
	m.inFlight += len(wqes)
	m.stats.Messages += uint64(len(wqes))
	m.stats.Doorbells++
	th.spend(m.call(th.postCall()))
	q.lock.acquire(th)
	q.use(th)
	th.spend(Time(blocks)*p.WQEBuild + p.DoorbellRecord)
	writes := 1
	if blueFlame {
		m.stats.BlueFlames++
		writes = blocks
	}
	l := q.registerLock(register)
	l.acquire(th)
	arrive := q.cfg.Page.write(th, register, writes)
	l.release(th)
	q.lock.release(th)
	m.at(max(arrive, m.now), func() { q.rung(writes, blueFlame, wqes) })
}

// use moves the state of the queue to the core of the posting thread. The tail of the queue is moved with it from a
// thread that posted, and separately from one that polled.
func (q *QP) use(th *Thread) {
	if q.state.last == th {
		q.tail.use(th)
		return
	}
	q.state.use(th)
	q.tail.last = th
}

// Layout of libmlx5: arrays of 8 and of 4 bytes for a basic block, written by a post and read
// for a completion.
const (
	idsOnLine   = 64 / 8
	headsOnLine = 64 / 4
)

// retire makes th, which polls, read the data that the post of a work request has stored for its completion, and write
// the tail of the queue.
func (q *QP) retire(th *Thread, index uint16) {
	q.tail.use(th)
	if th == q.state.last {
		return
	}
	lines := 0
	if line := index / idsOnLine; !q.read || line != q.idLine {
		q.idLine = line
		lines++
	}
	if line := index / headsOnLine; !q.read || line != q.headLine {
		q.headLine = line
		lines++
	}
	q.read = true
	th.spend(Time(lines) * q.m.params.LineTransfer)
}

// registerLock returns the lock of the register, which QPs share.
func (q *QP) registerLock(register uint32) *lock {
	if !q.cfg.RegisterLocked {
		return nil
	}
	return q.cfg.Page.lockOf(register)
}

// completeAll is a post outside of virtual time.
func (q *QP) completeAll(wqes []WQE) {
	for i := range wqes {
		if wqes[i].Signaled {
			q.signal(wqes[i].Index)
		}
	}
}

// rung is the arrival of a register write at the NIC.
func (q *QP) rung(writes int, blueFlame bool, wqes []WQE) {
	n := int64(doorbellLen)
	if blueFlame {
		n = int64(writes) * blockLen
	}
	q.m.at(q.NIC().fromHost.send(q.m.now, n), func() {
		for i := range wqes {
			q.posted = append(q.posted, &job{WQE: wqes[i], known: blueFlame, missing: len(wqes[i].Payload)})
		}
		q.start()
	})
}

const (
	doorbellLen = 8
	blockLen    = 64
)

// start executes the known work requests in order, and fetches the others.
func (q *QP) start() {
	for q.started < len(q.posted) && q.posted[q.started].known {
		j := q.posted[q.started]
		q.started++
		q.asked = max(q.asked, q.started)
		j.started = true
		for _, s := range j.Payload {
			q.NIC().gather(q.m.first(s), func() { j.missing--; q.send() })
		}
	}
	q.send()
	for q.asked < len(q.posted) && q.fetches < q.m.params.WQEReads {
		q.fetch()
	}
}

// fetch reads the next work requests, as many as one DMA read returns.
func (q *QP) fetch() {
	var n int64
	first := q.asked
	for ; q.asked < len(q.posted); q.asked++ {
		j := q.posted[q.asked]
		size := int64(j.Blocks) * blockLen
		if j.known || n > 0 && n+size > q.m.params.WQERead {
			break
		}
		n += size
	}
	batch := slices.Clone(q.posted[first:q.asked])
	if len(batch) == 0 {
		q.asked++ // it came with the doorbell
		return
	}
	q.fetches++
	q.NIC().read(n, func() {
		q.fetches--
		for _, j := range batch {
			j.known = true
		}
		q.start()
	})
}

// send transmits the messages whose payload has been read, in order.
func (q *QP) send() {
	for len(q.posted) > 0 {
		j := q.posted[0]
		if !j.started || j.missing > 0 {
			return
		}
		q.posted = q.posted[1:]
		q.started--
		q.asked--
		q.flying = append(q.flying, j)
		if q.m.remote {
			q.launch(j)
			continue
		}
		q.NIC().transmit(&j.WQE, func() { j.acked = true; q.complete() })
	}
}

// complete completes the acknowledged messages, in order.
func (q *QP) complete() {
	m := q.m
	for len(q.flying) > 0 && q.flying[0].acked {
		j := q.flying[0]
		q.flying = q.flying[1:]
		if !j.Signaled {
			m.inFlight--
			continue
		}
		written := q.NIC().toHost.send(m.now, blockLen) + m.params.CQEWrite
		m.at(written, func() {
			m.inFlight--
			q.signal(j.Index)
		})
	}
}

// signal writes a completion to the CQ.
func (q *QP) signal(index uint16) {
	if c := q.cfg.CQ; c != nil {
		c.from = append(c.from, completion{q, index})
		c.process.notify()
	}
	q.cfg.Sink.Complete(index)
}

// CQ is a completion queue.
type CQ struct {
	m        *Model
	lock     *lock
	state    shared
	consumer func() uint32
	process  *Process
	from     []completion // from index released on
	released uint32       // number of completions removed from from

	accounted uint32 // consumer index up to which threads have paid
	paid      uint32 // completions beyond that for which Handled was called
	skipped   bool   // some polls took no time
}

// completion is that of a work request at an index of a QP; without a QP, that of a receive.
type completion struct {
	qp    *QP
	index uint16
}

// NewCQ returns a completion queue. locked: its driver takes a lock for a poll. consumer returns the consumer index as
// the device sees it.
func (m *Model) NewCQ(locked bool, consumer func() uint32) *CQ {
	return &CQ{m: m, process: m.owner(), lock: m.newLock(locked, &m.stats.CQLockWait), consumer: consumer,
		state: shared{m: m, n: m.params.CQLines}}
}

// Poll starts a poll by the running thread, and returns when the driver may access the queue. The thread is charged for
// it at its next action, or at the end of its step; if the driver releases entries later, after it has handled them, by
// the next poll. Outside of a step it has no effect.
func (c *CQ) Poll() {
	m := c.m
	th := m.current
	if th == nil || th.stopped {
		c.skipped = true
		return
	}
	th.settle()
	m.stats.Polls++
	th.spend(m.call(m.params.PollCall))
	c.lock.acquire(th)
	if c.skipped {
		c.accounted, c.paid, c.skipped = c.consumer(), 0, false
	}
	c.account(th)
	th.polling, th.polled, th.given = c, c, false
}

// account charges th for the completions that the driver has released and that were not charged yet. It reports whether
// there were any.
func (c *CQ) account(th *Thread) bool {
	from, to := c.accounted, c.consumer()
	if to == from {
		return false
	}
	c.accounted = to
	c.m.marks++
	c.m.stats.Completions += uint64(to - from)
	paid := min(c.paid, to-from)
	c.paid -= paid
	c.state.use(th)
	c.release(th, from, to)
	th.spend(Time(to-from-paid) * c.m.params.CQERead)
	return true
}

// release retires completions up to index to from their QPs; those from index from on were polled
// by th.
func (c *CQ) release(th *Thread, from, to uint32) {
	for c.released != to && len(c.from) > 0 {
		if int32(c.released-from) >= 0 && c.from[0].qp != nil {
			c.from[0].qp.retire(th, c.from[0].index)
		}
		c.from = c.from[1:]
		c.released++
	}
}

// Handled charges the running thread for a completion of its latest poll that it handles now, and for d in addition. If
// the driver has released the entry, it was charged before; if the driver releases entries after handling them, Handled
// charges for it, so that the time passes before the handler.
func (m *Model) Handled(d Time) {
	th := m.current
	if th == nil || th.stopped {
		return
	}
	th.settle()
	if c := th.polled; c != nil && !th.given {
		c.paid++
		d += m.params.CQERead
	}
	th.spend(d)
}

// BeforePost sets the time of the next post of the running thread to d instead of Params.PostCall: the time of the
// software for this post. AfterPost must follow. 0 changes nothing.
func (m *Model) BeforePost(d Time) {
	if th := m.current; th != nil {
		th.software = d
	}
}

// AfterPost ends the effect of BeforePost. If the software has succeeded but has not rung the doorbell yet, the thread
// is charged for d now, and the next doorbell is free. A refused attempt takes no time.
func (m *Model) AfterPost(succeeded bool) {
	th := m.current
	if th == nil {
		return
	}
	d := th.software
	th.software = 0
	if succeeded && d > 0 {
		th.ahead = true
		m.Spend(d)
	}
}

// postCall returns the time of the current post call.
func (th *Thread) postCall() (d Time) {
	switch d = th.software; {
	case d > 0:
	case th.ahead:
	default:
		d = th.m.params.PostCall
	}
	th.software, th.ahead = 0, false
	return d
}
