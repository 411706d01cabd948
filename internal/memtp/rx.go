package memtp

import "github.com/gucx/gucx/uct"

// desc is a receive buffer.
type desc struct {
	iface    *Iface
	buf      []byte // maxAM bytes
	n        int    // bytes of the message
	id       uint8
	retained bool
	to       *EP // not nil if the buffer contains a notification for this EP, and no message
	word     uint32
	next     *desc
}

// descList is a queue of buffers.
type descList struct {
	first, last *desc
	n           int
}

func (l *descList) push(d *desc) {
	d.next = nil
	if l.last == nil {
		l.first = d
	} else {
		l.last.next = d
	}
	l.last = d
	l.n++
}

func (l *descList) pop() *desc {
	d := l.first
	l.first = d.next
	if l.first == nil {
		l.last = nil
	}
	l.n--
	return d
}

// rx is the receive side of an iface, under world.mu.
type rx struct {
	free   descList
	filled descList
}

func (r *rx) init(i *Iface, depth int) {
	for range depth {
		r.free.push(&desc{iface: i, buf: make([]byte, maxAM)})
	}
}

// deliver calls the handlers of the messages that have arrived before the call.
func (i *Iface) deliver() int {
	w := i.world
	w.mu.Lock()
	count := i.rx.filled.n
	w.mu.Unlock()
	for k := range count {
		w.mu.Lock()
		if i.rx.filled.n == 0 { // a handler closed the iface
			w.mu.Unlock()
			return k
		}
		d := i.rx.filled.pop()
		w.mu.Unlock()
		d.retained = true
		if d.to != nil {
			d.notify()
			d.Release()
			continue
		}
		if !i.ams.Handle(d.id, d.data(), d) {
			d.Release()
		}
	}
	return count
}

// notify calls the notification handler of the EP.
func (d *desc) notify() {
	if h := d.to.words; h != nil {
		h.HandleNotify(d.word)
	}
	d.to = nil
}

func (d *desc) data() []byte { return d.buf[:d.n:d.n] }

// Release implements uct.Desc.
func (d *desc) Release() {
	if !d.retained {
		panic("memtp: descriptor released twice")
	}
	d.retained = false
	w := d.iface.world
	w.mu.Lock()
	defer w.mu.Unlock()
	d.iface.rx.free.push(d)
	for _, i := range w.ifaces { // wake senders that wait for a buffer
		if i != d.iface {
			i.signal(uct.EventSendComp)
		}
	}
}
