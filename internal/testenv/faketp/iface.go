package faketp

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// unflaggedIface hides EventPending.
type unflaggedIface struct{ *Iface }

func (i unflaggedIface) Ext() *uct.IfaceExt { return &uct.IfaceExt{Address: i, Wake: i} }

// Iface executes posted operations in Progress.
type Iface struct {
	Fabric   *Fabric
	Kind     Kind
	attr     uct.IfaceAttr
	AM       base.AMTable
	arb      base.Arbiter
	OnError  func(uct.EP, error) // of the worker
	index    int
	posted   []operation // in flight
	spare    []operation
	Received []message // that AM handlers have not seen
	rxSpare  []message
	joins    bool
	EPs      []*EP // open
	efd      int
	armed    bool
	raised   bool
	dead     bool
	Stuck    bool   // posts have no resources
	Frozen   bool   // does not execute the operations of open endpoints
	Unacked  bool   // peers send no ACKs: flushes of open endpoints do not complete
	NoFlush  bool   // flushes have no resources, nor get any
	Polls    int    // calls of Progress
	Moved    int    // bytes put and got
	Loses    bool   // puts that succeed have no effect
	Lost     int    // bytes of those puts
	Hook     func() // called by Progress
	Posting  func() // called by posts on an endpoint, and by its flushes
}

// Deliver delivers a message, with an event if the iface is armed.
func (i *Iface) Deliver(id uint8, data []byte, event bool) {
	i.Fabric.Mu.Lock()
	defer i.Fabric.Mu.Unlock()
	i.Received = append(i.Received, message{id, data})
	if event {
		i.event()
	}
}

type message struct {
	id   uint8
	data []byte
}

// opClass is the class of an operation.
type opClass uint8

const (
	opPut opClass = iota
	opGet
	opFetch // any atomic
	opSend
	opFlush
)

// operation is an operation in flight.
type operation struct {
	ep   *EP
	kind opClass
	comp *uct.Completion

	msg  message
	dst  []byte
	src  []byte
	n    int
	addr uint64
	key  uct.RKey

	op             uct.AtomicOp
	size           int
	compare, value uint64
	result         *uint64
}

func (i *Iface) Attr() *uct.IfaceAttr { return &i.attr }
func (i *Iface) Ext() *uct.IfaceExt {
	ext := &uct.IfaceExt{Address: i, Wake: i, Pending: i}
	if i.joins {
		ext.Push = i
	}
	return ext
}
func (i *Iface) Push()                                        { i.Fabric.Pushes.Add(1) }
func (i *Iface) SetAMHandler(id uint8, h uct.AMHandler) error { return i.AM.Set(id, h) }
func (i *Iface) Flush(c *uct.Completion) (pending bool, err error) {
	return false, uct.ErrUnsupported
}
func (i *Iface) Fence() error { return nil }
func (i *Iface) EventFD() int { return i.efd }

func (i *Iface) DeviceAddr(b []byte) []byte { return append(b, "fabric "+i.Kind.Device...) }
func (i *Iface) IfaceAddr(b []byte) []byte  { return append(b, byte(i.index)) }

func (i *Iface) Reachable(dev, _ []byte) (bool, string) {
	if string(dev) != "fabric "+i.Kind.Device {
		return false, "another fabric"
	}
	return true, ""
}

func (i *Iface) Arm(uct.Events) error {
	i.Fabric.Mu.Lock()
	defer i.Fabric.Mu.Unlock()
	var b [8]byte
	_, _ = unix.Read(i.efd, b[:])
	i.armed, i.raised = true, false
	if len(i.Received) > 0 || len(i.posted) > 0 {
		i.armed = false
		return uct.ErrBusy
	}
	return nil
}

func (i *Iface) EventPending() bool {
	i.Fabric.Mu.Lock()
	defer i.Fabric.Mu.Unlock()
	return i.raised
}

// event signals the descriptor of an armed iface. The lock is held.
func (i *Iface) event() {
	if i.armed {
		i.armed, i.raised = false, true
		_, _ = unix.Write(i.efd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (i *Iface) NewEP(p uct.EPParams) (uct.EP, error) {
	if err := i.Fabric.failing("new ep " + i.Kind.Name); err != nil {
		return nil, err
	}
	i.Fabric.Mu.Lock()
	defer i.Fabric.Mu.Unlock()
	i.Fabric.EPsOpened++
	i.Fabric.Opened[i.Kind.Name]++
	e := &EP{Iface: i, id: len(i.EPs)}
	if i.Kind.Caps.Has(uct.CapConnectIface) {
		if len(p.IfaceAddr) != 1 || int(p.IfaceAddr[0]) >= len(i.Fabric.Ifaces) {
			return nil, uct.ErrInvalidAddr
		}
		e.Peer = i.Fabric.Ifaces[p.IfaceAddr[0]]
	}
	i.EPs = append(i.EPs, e)
	return e, nil
}

func (i *Iface) Close() error {
	i.Fabric.Mu.Lock()
	i.dead = true
	i.Fabric.Mu.Unlock()
	for _, e := range slices.Clone(i.EPs) {
		if err := e.Close(); err != nil {
			return err
		}
	}
	for len(i.posted) > 0 {
		i.Progress()
	}
	return unix.Close(i.efd)
}

// Kill makes the iface behave like one of a process that has died.
func (i *Iface) Kill() {
	i.Fabric.Mu.Lock()
	i.dead = true
	i.Fabric.Mu.Unlock()
}

func (i *Iface) Progress() int {
	i.Polls++
	if i.Hook != nil {
		i.Hook()
	}
	i.Fabric.Mu.Lock()
	ops, rx := i.posted, i.Received
	i.posted, i.spare = i.spare[:0], nil
	if i.Frozen || i.Unacked {
		i.posted = append(i.posted, ops...)
		i.posted = slices.DeleteFunc(i.posted, func(o operation) bool { return !i.holds(&o) })
		ops = slices.DeleteFunc(ops, func(o operation) bool { return i.holds(&o) })
	}
	i.Received, i.rxSpare = i.rxSpare[:0], nil
	i.Fabric.Mu.Unlock()
	for k := range ops {
		i.run(&ops[k])
	}
	for _, m := range rx {
		i.AM.Handle(m.id, m.data, nil)
	}
	clear(ops)
	i.spare, i.rxSpare = ops, rx
	n := len(ops) + len(rx)
	for k := 0; k < len(i.EPs); k++ { // a failure may close one
		e := i.EPs[k]
		n += e.dialed() + e.checkPeer()
	}
	if i.NoFlush {
		return n
	}
	return n + i.arb.Dispatch(nil)
}

// holds reports whether an operation remains in flight.
func (i *Iface) holds(o *operation) bool {
	return !o.ep.closed && (i.Frozen || i.Unacked && o.kind == opFlush)
}

// run executes an operation and calls its completion.
func (i *Iface) run(o *operation) {
	st := o.ep.Status
	if st == 0 && o.ep.closed {
		st = ucs.StatusCanceled
	}
	if st == 0 {
		i.Fabric.Mu.Lock()
		st = o.execute()
		i.Fabric.Mu.Unlock()
	}
	o.ep.InFlight--
	if st != 0 {
		o.ep.Fail(st)
	}
	if o.comp != nil {
		o.comp.Complete(st)
	}
}
