package rccore

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// SendQueue accepts the work requests of one EP: a verbs.QP, or code that writes to the send queue
// of a QP itself. It always has room for as many work requests as the QP was created for; an error
// means that the states of the device and of the EP differ.
type SendQueue interface {
	// PostSend is as in verbs.QP.
	PostSend(wr []verbs.SendWR) (n int, err error)
}

// CompQueue is the completion queue of an iface: a verbs.CQ, or code that reads the memory of a CQ
// itself. The methods are those of verbs.CQ.
type CompQueue interface {
	Arm(solicitedOnly bool) error
	Watch() *ucs.Watch
}

// Poller is a CompQueue that Iface.Progress polls. If the CompQueue is no Poller, the type that
// embeds the Iface has its own Progress, which calls EP.Retire, HandleOther and FinishProgress.
type Poller interface {
	Poll(wc []verbs.WC) int
}

// Driver posts work requests and polls completions. It is the only difference between the
// transports that use this package.
type Driver interface {
	// Attach is called once, with the queues that all EPs share, before anything is posted to them.
	// It returns the queue from which the iface polls completions, and the poster of receives.
	Attach(cq *verbs.CQ, srq *verbs.SRQ) (CompQueue, buffer.RecvPoster, error)
	// MakeEP creates an EP over a link, which is a QPLink if Params.Links is nil. It returns the EP
	// for the user, the EP embedded in it, which the caller initializes, and the send queue.
	MakeEP(l Link) (outer uct.EP, e *EP, send SendQueue, err error)
	// RemoveEP is called when all operations of a closed EP are complete, before its QP is closed. The
	// completion queue may still contain completions of messages received by the QP.
	RemoveEP(outer uct.EP)
}

// Verbs is the Driver that posts and polls by package verbs.
type Verbs struct{}

var _ Driver = Verbs{}

// Attach implements Driver. It uses the methods of the providers directly: the methods of the
// objects also check the state, which the EP tracks.
func (Verbs) Attach(cq *verbs.CQ, srq *verbs.SRQ) (CompQueue, buffer.RecvPoster, error) {
	return cq.Provider(), srq.Provider(), nil
}

// MakeEP implements Driver.
func (Verbs) MakeEP(l Link) (uct.EP, *EP, SendQueue, error) {
	e := new(EP)
	return e, e, l.(*QPLink).QP.Provider(), nil
}

// RemoveEP implements Driver. Closing a QP removes its completions.
func (Verbs) RemoveEP(uct.EP) {}
