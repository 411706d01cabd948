package timing

import "slices"

// Kind is what the model distinguishes of operations.
type Kind uint8

// Kinds.
const (
	Write Kind = iota // bytes go out, an acknowledgement comes back
	Fetch             // a request goes out, bytes come back: reads and atomics
)

// Span is a piece of memory.
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
	// Payload is what the NIC reads by DMA: nothing if the bytes are inline, or if
	// they come from the other side.
	Payload []Span
	// To is the NIC that it goes to, or that it fetches from; nil is the same one. Only a
	// model from NewNetwork looks at it.
	To *NIC
}

// Sink is told that the completion of a signaled work request is in its queue now.
type Sink interface {
	Complete(index uint16)
}

// QPConfig describes a queue pair by what its driver does for a post.
type QPConfig struct {
	NIC  *NIC // nil is that of the process that makes it, or else the first one
	Page *Page
	// QueueLocked, RegisterLocked: a post takes the lock of the queue, and that of the
	// register, which QPs share.
	QueueLocked, RegisterLocked bool
	Sink                        Sink
	CQ                          *CQ // where completions go; nil if nobody polls for another
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
	started int    // of posted: have begun to execute
	asked   int    // of posted: known to the NIC, or being fetched
	fetches int    // DMA reads for work requests that are outstanding
	flying  []*job // sent, in order
	backOff bool   // the first of flying that is not executed waits to be sent again
}

// job is a WQE on its way through the NIC.
type job struct {
	WQE
	known   bool // the NIC has the work request
	missing int  // pieces of the payload
	started bool
	acked   bool

	// In a model from NewNetwork.
	sent     int  // how often
	arrived  bool // what was sent last
	executed bool
}

// NewQP makes a queue pair.
func (m *Model) NewQP(cfg QPConfig) *QP {
	return &QP{m: m, cfg: cfg, process: m.owner(), lock: m.newLock(cfg.QueueLocked, &m.stats.QueueLockWait),
		state: shared{m: m, n: m.params.QPLines}, tail: shared{m: m, n: m.params.RetireLines}}
}

// Post accounts for a post of the running thread: work requests that are in the queue
// now, and a store to the register at an offset of the page. blueFlame says that the
// store was of the (only) work request, and not a doorbell. It returns when the
// thread goes on; the completions follow by themselves. Outside of a step everything
// completes at once.
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

// use brings the state of the queue to the core of the thread that posts. Its tail comes with
// it from a thread that posted, and by itself from one that polled.
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

// retire has th, which polls, read what the post of a work request left for its completion,
// and write the tail of the queue.
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

// registerLock is the lock of the register, which QPs share.
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

// start executes the work requests that the NIC knows, in order, and fetches those
// that it does not.
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

// fetch reads as many of the next work requests as one DMA read brings.
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

// send transmits the messages whose payload is there, in order.
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

// complete ends the messages that have been acknowledged, in order.
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

// signal puts a completion into the CQ.
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
	from     []completion // from index taken on
	released uint32       // how many have left from

	accounted uint32 // consumer index up to which threads have paid
	paid      uint32 // completions beyond that which Handled was called for
	skipped   bool   // there were polls that take no time
}

// completion is one of a work request at an index of a QP; without a QP, of a receive.
type completion struct {
	qp    *QP
	index uint16
}

// NewCQ makes a completion queue. locked: its driver takes a lock for a poll. consumer
// returns the consumer index as the device sees it.
func (m *Model) NewCQ(locked bool, consumer func() uint32) *CQ {
	return &CQ{m: m, process: m.owner(), lock: m.newLock(locked, &m.stats.CQLockWait), consumer: consumer,
		state: shared{m: m, n: m.params.CQLines}}
}

// Poll begins a poll by the running thread, and returns when the driver may look at
// the queue. What it takes is accounted for when the thread does something else, or
// its step ends; by the next poll if the driver gives entries back after it has
// handled them. Outside of a step it does nothing.
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

// account has th pay for the completions that the driver has given back and that nobody has paid for. It reports
// whether there were some.
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

// Handled has the running thread pay for a completion that its latest poll has found and that it
// handles now, and d besides. A driver that has given the entry back has paid for it before; one that
// gives back what it has handled pays here, so that the time passes before the handler.
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

// BeforePost has the next post of the running thread take d instead of Params.PostCall: what the software computes for
// this one. AfterPost must follow. 0 changes nothing.
func (m *Model) BeforePost(d Time) {
	if th := m.current; th != nil {
		th.software = d
	}
}

// AfterPost ends what BeforePost began. If the software has succeeded but has not rung yet, the thread spends d now,
// and the next doorbell is paid for. A refused attempt takes no time.
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

// postCall is what the call takes that rings now.
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
