package broken

import (
	"slices"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// badIface queues and dispatches pending requests in place of the transport, and breaks one rule of their order.
type badIface struct {
	uct.Iface
	fault Fault
	eps   []*badPending
}

// badPending is the queue of pending requests of an EP.
type badPending struct {
	uct.EP
	iface   *badIface
	queue   []*uct.PendingReq
	running bool
}

func breakingPending(k Fault) wrap.Hooks {
	return wrap.Hooks{
		Iface: func(i *wrap.Iface) {
			i.Iface, i.Has.Watch, i.Has.Guarded = &badIface{Iface: i.Iface, fault: k}, nil, false
		},
		EP: func(e *wrap.EP) {
			q := &badPending{EP: e.EP, iface: e.On.Iface.(*badIface)}
			q.iface.eps = append(q.iface.eps, q)
			e.EP = q
			if e.Has.AM != nil {
				e.Has.AM = &queuedAM{e.Has.AM, q}
			}
		},
	}
}

// Progress dispatches the EPs in the order of their creation, each until its queue is empty or resources are
// exhausted. For UnfairPending it dispatches an EP only when the queues of all older EPs are empty.
func (i *badIface) Progress() int {
	n := i.Iface.Progress()
	for _, q := range i.eps {
		q.dispatch()
		if i.fault == UnfairPending && len(q.queue) > 0 {
			break
		}
	}
	return n
}

func (q *badPending) dispatch() {
	for count := len(q.queue); count > 0 && len(q.queue) > 0; count-- {
		at := 0
		if q.iface.fault == PendingLIFO {
			at = len(q.queue) - 1
		}
		r := q.queue[at]
		q.queue = slices.Delete(q.queue, at, at+1)
		r.Next = nil
		q.running = true
		err := r.Func(r)
		if err == nil && q.iface.fault == PendingTwice {
			err = r.Func(r)
		}
		q.running = false
		if err == uct.ErrNoResource && r.Next == nil {
			q.queue = slices.Insert(q.queue, at, r)
			r.Next = r
			return
		}
	}
}

// AddPending returns the transport's error (ErrBusy if there are resources) or queues r.
func (q *badPending) AddPending(r *uct.PendingReq) error {
	if r.Next != nil {
		return uct.ErrInvalidParam
	}
	if len(q.queue) == 0 {
		if err := q.EP.AddPending(r); err != nil {
			return err
		}
		q.EP.PurgePending(func(*uct.PendingReq) {})
	}
	q.queue = append(q.queue, r)
	r.Next = r
	return nil
}

func (q *badPending) PurgePending(f func(*uct.PendingReq)) {
	all := q.queue
	q.queue = nil
	for _, r := range all {
		r.Next = nil
		f(r)
	}
}

// queuedAM returns ErrNoResource from direct posts while requests are pending, except for Overtake.
type queuedAM struct {
	uct.AMSender
	q *badPending
}

func (a *queuedAM) blocked() bool {
	return len(a.q.queue) > 0 && !a.q.running && a.q.iface.fault != Overtake
}

func (a *queuedAM) AMShort(id uint8, hdr uint64, payload []byte) error {
	if a.blocked() {
		return uct.ErrNoResource
	}
	return a.AMSender.AMShort(id, hdr, payload)
}

func (a *queuedAM) AMBcopy(id uint8, p uct.Packer) (int, error) {
	if a.blocked() {
		return 0, uct.ErrNoResource
	}
	return a.AMSender.AMBcopy(id, p)
}

func (a *queuedAM) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, c *uct.Completion) (bool, error) {
	if a.blocked() {
		return false, uct.ErrNoResource
	}
	return a.AMSender.AMZcopy(id, hdr, iov, c)
}
