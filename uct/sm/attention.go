package sm

// With few peers, Progress looks at the next slot of every ring: a load of a line
// that stays in its cache until a message comes. With many, the senders also set a
// word each in the control block, sixteen of which share a line, and Progress looks
// at the rings behind those only.
//
// A sender stores the message and then the word. Progress clears the word, by an
// exchange, which is a full barrier, and then looks at the ring: if it misses the
// message, the message was stored after the exchange, and so will be the word.

// attentionMin is the number of peers from which on marking costs less than
// looking at every ring.
const attentionMin = 8

// chooseAttention turns marking on or off after the list of peers has changed.
func (it *Iface) chooseAttention() {
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
		barrier() // a peer that has not seen the bit has published what it had
	}
	it.lookAtAll = true
}

// pollMarked polls the peers that have marked their word; all of them now and then,
// and once after marking was turned on, for messages from before.
func (it *Iface) pollMarked() (n int) {
	if it.lookAtAll {
		it.lookAtAll = false
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
			word.Store(1) // there is more
		}
	}
	return n
}

func (it *Iface) pollAll() (n int) {
	for _, l := range it.in {
		if l.rx.waiting() {
			n += l.poll()
		}
	}
	return n
}
