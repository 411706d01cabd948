package timing

// NewNetwork is New for programs that wait for each other: a work request takes effect
// when it arrives at the NIC that it goes to, and what comes before its time is tried again.
// Sinks of its QPs are Targets.
//
//	NIC, sender                      link                  NIC, target
//	first packet read by DMA                               stored by DMA: Target.Arrive
//	the rest while it is sent ---- latency, bandwidth ---> acknowledgement, or not yet
//	CQE by DMA  <-------------------- latency ------------ (RNR): sent again after a while
func NewNetwork(p Params) (*Model, error) {
	m, err := New(p)
	if err == nil {
		m.remote = true
	}
	return m, err
}

// Target executes work requests that have arrived.
type Target interface {
	Sink
	// Arrive executes the work request at an index, of a number of basic blocks, which
	// comes after all that have been executed. Where that cannot be now it is not done, and
	// is to be sent again after a while.
	Arrive(index uint16, blocks int) (again Time, done bool)
	// Ready is asked when the first packet of that work request is there: whether Arrive would find
	// what it needs. What is not ready is not sent to its end.
	Ready(index uint16, blocks int) (again Time, ready bool)
}

// Travels reports whether work requests that are posted now take effect when they arrive,
// and not at once: inside of Run in a model from NewNetwork.
func (m *Model) Travels() bool { return m.remote && m.inRun }

// outsideTick is how far Clock goes on by a look outside of Run: the devices look with each poll
// while something waits for a time, which is 20 us or more.
const outsideTick = 100 * Nanosecond

// Clock is Now while Run is under way. Outside, where nothing takes time, it goes on by each look:
// so what waits for a time has its turn, and the same one in each run of a program.
func (m *Model) Clock() Time {
	if m.inRun {
		return m.now
	}
	m.outside += outsideTick
	return m.outside
}

// first is what the NIC reads of a piece of a payload before it sends.
func (m *Model) first(s Span) Span {
	if m.remote {
		s.Len = min(s.Len, uint32(m.params.PacketPayload))
	}
	return s
}

// latency is the time from a bit on the wire until it is at the other end.
func (p *Params) latency() Time { return p.AckRoundTrip / 2 }

// launch sends a message, unless it is behind one that waits.
func (q *QP) launch(j *job) {
	if q.backOff {
		return
	}
	j.sent++
	sent := j.sent
	q.NIC().carry(&j.WQE, func() bool { return j.sent == sent && q.refused(j) }, func() {
		if j.sent == sent && !j.executed {
			j.arrived = true
			q.execute()
		}
	})
}

// refused asks for a receive when the first packet of a message is there, as long as all before it is executed.
// Where there is none the message is sent again later.
func (q *QP) refused(j *job) bool {
	for _, before := range q.flying {
		if before == j {
			break
		}
		if !before.executed {
			return false
		}
	}
	again, ready := q.cfg.Sink.(Target).Ready(j.Index, j.Blocks)
	if !ready {
		q.tryLater(again)
	}
	return !ready
}

// execute has the target execute what has arrived, in order.
func (q *QP) execute() {
	target := q.cfg.Sink.(Target)
	for _, j := range q.flying {
		if j.executed {
			continue
		}
		if !j.arrived {
			return
		}
		again, done := target.Arrive(j.Index, j.Blocks)
		if !done {
			q.tryLater(again)
			return
		}
		j.executed = true
		q.acknowledge(j)
	}
}

// acknowledge has the sender know of a message that was executed; what was fetched is with
// it already.
func (q *QP) acknowledge(j *job) {
	back := q.m.params.latency()
	if j.Kind == Fetch {
		back = 0
	}
	q.m.at(q.m.now+back, func() { j.acked = true; q.complete() })
}

// tryLater sends again what is not executed, when the refusal is back and the time is over
// that was asked for.
func (q *QP) tryLater(again Time) {
	q.backOff = true
	q.m.stats.NotReady++
	for _, j := range q.flying {
		j.arrived = false
		j.sent++ // what is on its way is dropped
	}
	q.m.at(q.m.now+q.m.params.latency()+again, func() {
		q.backOff = false
		for _, j := range q.flying {
			if !j.executed {
				q.launch(j)
			}
		}
	})
}

// carry brings a message to the NIC that it goes to, or what it fetches from there, and
// then calls arrived; unless it is refused when its first packet is there.
func (n *NIC) carry(w *WQE, refused func() bool, arrived func()) {
	m, to := n.m, w.To
	if to == nil {
		to = n
	}
	if w.Kind == Write {
		n.push(to, int64(w.Len), m.unread(w), refused, func() { m.at(m.now+m.params.CQEWrite, arrived) })
		return
	}
	n.push(to, 0, 0, accepted, func() {
		// The other side reads its memory: the first packet before it answers.
		length := int64(w.Len)
		to.read(min(length, m.params.PacketPayload), func() {
			to.push(n, length, max(0, length-m.params.PacketPayload), accepted, arrived)
		})
	})
}

// accepted is for what needs no receive.
func accepted() bool { return false }

// unread is how many bytes of the payload the NIC has still to read when it begins to send.
func (m *Model) unread(w *WQE) (n int64) {
	for _, s := range w.Payload {
		n += int64(s.Len - m.first(s).Len)
	}
	return n
}

// push moves a message of length bytes, of which some are still to be read from memory,
// into the memory at another NIC, and then calls stored. Packets are stored as they come. A message that is
// refused leaves the wire when the sender knows, if nothing is booked behind it.
func (n *NIC) push(to *NIC, length, unread int64, refused func() bool, stored func()) {
	m := n.m
	begin := n.pipeline.book(m.now, m.params.MessageGap)
	wire := n.wireOut.send(begin, length)
	sent, host := wire, Time(0)
	if unread > 0 {
		host = n.fromHost.send(m.now, unread)
		sent = max(wire, host)
	}
	first := min(length, m.params.PacketPayload)
	packet := n.wireOut.span(first + m.params.PacketHeader)
	m.at(max(m.now, wire-n.wireOut.duration(length))+m.params.latency(), func() {
		if refused() {
			known := m.now + m.params.latency()
			n.wireOut.returnTime(wire, known)
			n.fromHost.returnTime(host, known)
			return
		}
		came := max(to.wireIn.send(m.now, length), sent+m.params.latency())
		m.at(max(came, to.toHost.send(m.now+packet, length)), stored)
	})
}
