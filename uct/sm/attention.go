package sm

// With few peers, Progress polls the next slot of every ring: a load of a line
// that is in its cache until a message arrives. With many peers, each sender also sets a
// word in the control block, where 16 words share a line, and Progress only polls
// the rings whose words are set.
//
// A sender stores the message and then the word. Progress clears the word, with an
// exchange, which is a full barrier, and then polls the ring: if it misses the
// message, the message was stored after the exchange, and the word is set later.

// attentionMin is the number of peers above which attention words cost less than
// polling every ring.
const attentionMin = 8

// chooseAttention enables or disables attention words after the list of peers has changed.
func (it *iface) chooseAttention() {
	it.byIndex = it.byIndex[:0]
	for _, l := range it.in {
		for len(it.byIndex) <= l.attnIdx {
			it.byIndex = append(it.byIndex, nil)
		}
		it.byIndex[l.attnIdx] = l
	}
	marked := len(it.in) > attentionMin
	if marked == it.marked {
		return
	}
	it.marked = marked
	if marked {
		it.ctl.state.Or(stateAttention)
	} else {
		it.ctl.state.And(^uint32(stateAttention))
	}
	it.armed = it.ctl.state.Load()
	if it.md.expedited {
		barrier() // messages of peers that have not seen the bit are visible now
	}
	it.pollAllNext = true
}

// pollMarked polls the peers that have set their word. Once after attention words were
// enabled or disabled, it polls all peers, for earlier messages.
func (it *iface) pollMarked() (n int) {
	if it.pollAllNext {
		it.pollAllNext = false
		return it.pollAll()
	}
	for i, l := range it.byIndex {
		word := &it.ctl.attention[i]
		if word.Load() == 0 {
			continue
		}
		word.Swap(0)
		if l == nil || !l.rx.waiting() {
			continue
		}
		n += l.poll()
		if l.rx.waiting() {
			word.Store(1) // more messages have arrived
		}
	}
	return n
}

func (it *iface) pollAll() (n int) {
	for _, l := range it.in {
		if l.rx.waiting() {
			n += l.poll()
		}
	}
	return n
}
