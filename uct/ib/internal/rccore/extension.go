package rccore

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Extension is what a transport has beside the EPs' own queues: queues that complete in the
// completion queue of the iface, and messages between the extensions of two EPs. Methods are
// called from Progress, or where a post fails.
type Extension interface {
	// Completed takes a completion whose ID is ExtensionID or more.
	Completed(wc verbs.WC)
	// Control takes a message of the peer's extension; data is valid until it returns.
	// False fails the EP: the message is none.
	Control(outer uct.EP, data []byte) bool
	// Failed tells that an EP takes no more operations, before OnError does.
	Failed(outer uct.EP)
	// Lost tells that the completion queue has failed, after all EPs have: Completed is not called any more.
	Lost()
}

// ExtensionID marks the WR IDs of an Extension, sends and receives.
const ExtensionID = ib.RecvID | 1<<62

// MaxControl is the longest message of an Extension, in bytes; all devices take that inline.
const MaxControl = 16

// SendControl sends data, of MaxControl bytes at most, to the extension of the peer, behind
// what has been posted and past pending requests. ErrNoResource: try again in a later
// Progress. ErrEPFailed, ErrInvalidState before Connect.
func (e *EP) SendControl(data []byte) error {
	if e.state != stateReady {
		return e.err
	}
	if !e.slot() {
		return uct.ErrNoResource
	}
	wr := e.it.fullWR(verbs.OpSendWithImm, verbs.SendInline)
	wr.Inline = e.it.scratch[:copy(e.it.scratch[:MaxControl], data)]
	wr.Flags |= e.signal()
	wr.Imm = uint32(rcwire.Extension())
	return e.post(&e.it.full)
}

// Ready reports that Connect has succeeded, and nothing has failed since.
func (e *EP) Ready() bool { return e.state == stateReady }

// Err is what posts return of an EP that is not Ready.
func (e *EP) Err() error { return e.err }

// MD is the memory domain of the iface.
func (it *Iface) MD() *ib.MD { return it.md }

// Port is the port that the iface is open on.
func (it *Iface) Port() *ib.Port { return it.port }

// VerbsCQ is the completion queue of the iface.
func (it *Iface) VerbsCQ() *verbs.CQ { return it.verbsCQ }

// Fail ends an EP with the reason, as a failed completion does.
func (e *EP) Fail(st ucs.Status, cause error) { e.it.fail(e, st, cause) }

// Canceled ends what an EP that has failed or is closed has in flight: its link has taken it back.
func (e *EP) Canceled() {
	if e.PI != e.CI {
		e.CI = e.PI
		e.retireInOrder(ucs.StatusCanceled)
	}
}

// TellClosed tells the peer of an EP that has failed, as Close does of one that has not. Without
// room for the message the peer is not told.
func (e *EP) TellClosed() { e.sendDisconnect() }

// ReceiveQueue is the queue that messages arrive in.
func (it *Iface) ReceiveQueue() *verbs.SRQ { return it.srq }
