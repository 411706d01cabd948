package timing

// NewNetwork is New for programs that wait for each other: a work request takes effect
// when it arrives at the destination NIC, and is sent again if it cannot be executed yet.
// The Sinks of its QPs must be Targets.
//
//	NIC, sender                      link                  NIC, target
//	first packet read by DMA                               stored by DMA: Target.Arrive
//	the rest while it is sent ---- latency, bandwidth ---> acknowledgement, or RNR NAK
//	CQE by DMA  <-------------------- latency ------------ (then it is sent again later)
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
	// Arrive executes the work request at an index, with a number of basic blocks, which follows all executed ones. If
	// that is not possible now, Arrive does nothing, and the message is sent again later.
	Arrive(index uint16, blocks int) (again Time, done bool)
	// Ready is called when the first packet of that work request has arrived. It reports whether Arrive could execute
	// it. If not, the rest of the message is not sent.
	Ready(index uint16, blocks int) (again Time, ready bool)
}

// Travels reports whether work requests posted now take effect when they arrive, and not at once: inside of Run in a
// model from NewNetwork.
func (m *Model) Travels() bool { return m.remote && m.inRun }

// outsideTick is the step of Clock for each call outside of Run: the devices call it with each poll while something
// waits for a time, which is 20 us or more.
const outsideTick = 100 * Nanosecond

// Clock returns Now during Run. Outside of Run, where nothing takes time, it advances with each call, so that time
// limits expire, and at the same time in each run of a program.
func (m *Model) Clock() Time {
	if m.inRun {
		return m.now
	}
	m.outside += outsideTick
	return m.outside
}

// first returns the part of a payload that the NIC reads before it sends.
func (m *Model) first(s Span) Span {
	if m.remote {
		s.Len = min(s.Len, uint32(m.params.PacketPayload))
	}
	return s
}

// latency returns the time of a bit from one side of the wire to the other.
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

// refused checks for a receive when the first packet of a message has arrived and all earlier messages are executed. If
// there is none, the message is sent again later.
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

// execute makes the target execute the arrived messages in order.
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

// acknowledge notifies the sender that a message was executed; fetched data has already arrived there.
func (q *QP) acknowledge(j *job) {
	back := q.m.params.latency()
	if j.Kind == Fetch {
		back = 0
	}
	q.m.at(q.m.now+back, func() { j.acked = true; q.complete() })
}

// tryLater sends the messages that were not executed again, after the refusal has arrived and the requested time has
// passed.
func (q *QP) tryLater(again Time) {
	q.backOff = true
	q.m.stats.NotReady++
	for _, j := range q.flying {
		j.arrived = false
		j.sent++ // messages in flight are dropped
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

// carry transfers a message to its destination NIC, or the data that it fetches from there, and then calls arrived; it
// does not if the message is refused at its first packet.
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
		// The other side reads its memory: the first packet before the reply.
		length := int64(w.Len)
		to.read(min(length, m.params.PacketPayload), func() {
			to.push(n, length, max(0, length-m.params.PacketPayload), accepted, arrived)
		})
	})
}

// accepted is for messages that need no receive.
func accepted() bool { return false }

// unread returns the number of bytes of the payload that the NIC must still read when it starts to send.
func (m *Model) unread(w *WQE) (n int64) {
	for _, s := range w.Payload {
		n += int64(s.Len - m.first(s).Len)
	}
	return n
}

// push moves a message of length bytes into the memory at another NIC, and then calls stored. unread bytes of it must
// still be read from memory. Packets are stored when they arrive. A refused message leaves the wire when the sender
// knows, if nothing is booked after it.
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
