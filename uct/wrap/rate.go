package wrap

import (
	"time"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// Rate is a layer that limits what each iface posts to perSecond bytes a second, with at
// most burst bytes at once: beyond that its EPs have no resources. now is a clock that
// never goes back; nil means that of the system. An operation without bytes counts as one.
func Rate(perSecond, burst uint64, now func() time.Duration) Hooks {
	if now == nil {
		start := time.Now()
		now = func() time.Duration { return time.Since(start) }
	}
	return Hooks{
		Iface: func(i *Iface) {
			l := &limitedIface{Iface: i.Iface, now: now, perSecond: float64(perSecond), burst: float64(max(burst, 1))}
			l.allowed, l.at = l.burst, now()
			i.Iface, i.Has.Guarded = l, false
			i.HoldBack()
			if i.Has.Wake != nil {
				i.Has.Wake = &wakeUnless{i.Has.Wake, func() bool { return l.pending.Len() > 0 }}
			}
		},
		EP: func(e *EP) {
			l := &limitedEP{EP: e.EP, on: e.On.Iface.(*limitedIface)}
			e.EP = l
			e.Intercept(l)
		},
	}
}

// limitedIface has what its EPs may still post, and their pending requests: the transport
// would dispatch them while nothing is allowed.
type limitedIface struct {
	uct.Iface
	now       func() time.Duration
	perSecond float64
	burst     float64
	allowed   float64 // bytes; an operation may bring it below 0
	at        time.Duration
	pending   base.Arbiter
}

// HasResources implements base.Gate.
func (i *limitedIface) HasResources() bool {
	t := i.now()
	i.allowed = min(i.burst, i.allowed+(t-i.at).Seconds()*i.perSecond)
	i.at = t
	return i.allowed > 0
}

// Progress implements uct.Iface.
func (i *limitedIface) Progress() int {
	n := i.Iface.Progress()
	if i.pending.Len() > 0 {
		n += i.pending.Dispatch(i)
	}
	return n
}

type limitedEP struct {
	uct.EP
	on    *limitedIface
	queue base.PendingQueue
}

// Before implements Interceptor. An EP that has failed says so itself. A connection to a
// queue has room for a send at least, which counts afterwards.
func (e *limitedEP) Before(v uct.Variant) error {
	if v != uct.QueueZcopy && (e.queue.Blocks() || !e.on.HasResources()) && e.works() {
		return uct.ErrNoResource
	}
	return nil
}

func (e *limitedEP) works() bool {
	_, err := e.EP.Flush(nil)
	return err == nil || err == uct.ErrNoResource
}

// After implements Interceptor.
func (e *limitedEP) After(_ uct.Variant, n int, err error) {
	if err == nil {
		e.on.allowed -= float64(max(n, 1))
	}
}

// AddPending implements uct.EP.
func (e *limitedEP) AddPending(r *uct.PendingReq) error {
	if r.Next != nil {
		return uct.ErrInvalidParam
	}
	if e.queue.Empty() && e.on.HasResources() || !e.works() {
		if err := e.EP.AddPending(r); err != nil { // it has resources, or has failed
			return err
		}
		e.EP.PurgePending(func(*uct.PendingReq) {})
	}
	return e.on.pending.Add(&e.queue, r)
}

// PurgePending implements uct.EP.
func (e *limitedEP) PurgePending(f func(*uct.PendingReq)) { e.on.pending.Purge(&e.queue, f) }
