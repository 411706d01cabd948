package rccore

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// SendQueue takes the work requests of one EP: a verbs.QP, or what writes to the
// queue of one itself. There is always room in it for as many work requests as the
// QP was made for; an error means that the device and the EP disagree.
type SendQueue interface {
	// PostSend is that of verbs.QP.
	PostSend(wr []verbs.SendWR) (n int, err error)
}

// CompQueue is the completion queue of an iface: a verbs.CQ, or what reads its
// memory itself. Methods are those of verbs.CQ.
type CompQueue interface {
	Arm(solicitedOnly bool) error
	Watch() *ucs.Watch
}

// Poller is a CompQueue that Iface.Progress polls. Without it, what embeds the
// Iface has a Progress of its own, which calls EP.Retire, NotSent and Polled.
type Poller interface {
	Poll(wc []verbs.WC) int
}

// Driver is how a transport posts and polls. Nothing else differs between the
// transports over this package.
type Driver interface {
	// Attach is called once, with the queues that all EPs share, before anything is
	// posted to them. It returns how completions are read and receives are posted.
	Attach(cq *verbs.CQ, srq *verbs.SRQ) (CompQueue, ib.RecvPoster, error)
	// MakeEP makes an EP over a link, which is a QPLink without Params.Links: what the
	// user gets, the EP in it, which the caller fills in, and its send queue.
	MakeEP(l Link) (outer uct.EP, e *EP, send SendQueue, err error)
	// Forget is called when an EP is gone, before its QP is closed. Messages that
	// have arrived for the QP may still wait in the completion queue.
	Forget(outer uct.EP)
}

// Verbs is the Driver that leaves both to verbs.
type Verbs struct{}

var _ Driver = Verbs{}

// Attach implements Driver. The provider's half of an object has its methods: those of
// the object add a look at its state, which the EP knows.
func (Verbs) Attach(cq *verbs.CQ, srq *verbs.SRQ) (CompQueue, ib.RecvPoster, error) {
	return cq.Provider(), srq.Provider(), nil
}

// MakeEP implements Driver.
func (Verbs) MakeEP(l Link) (uct.EP, *EP, SendQueue, error) {
	e := new(EP)
	return e, e, l.(*QPLink).QP.Provider(), nil
}

// Forget implements Driver: closing a QP removes its completions.
func (Verbs) Forget(uct.EP) {}
