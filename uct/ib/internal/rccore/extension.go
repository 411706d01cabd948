package rccore

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Extension is an addition of a transport: queues that complete in the completion queue of the
// iface, and messages between the extensions of two EPs. Its methods are called from Progress, or
// when a post fails.
type Extension interface {
	// HandleCompletion handles a completion whose ID is at least ExtensionID.
	HandleCompletion(wc verbs.WC)
	// HandleControl handles a message from the extension of the peer; data is valid until it returns. If
	// the message is invalid, it returns false, and the EP fails.
	HandleControl(outer uct.EP, data []byte) bool
	// HandleFailure is called when an EP has failed, before OnError.
	HandleFailure(outer uct.EP)
	// HandleCQError is called after an error of the completion queue, when all EPs have failed. HandleCompletion is
	// not called afterwards.
	HandleCQError()
}

// ExtensionID is the bit in the WR IDs of an Extension, for sends and receives.
const ExtensionID = buffer.RecvID | 1<<62

// MaxControl is the maximum length of a message of an Extension, in bytes. All devices support it
// as inline data.
const MaxControl = 16

// SendControl sends at most MaxControl bytes to the extension of the peer, after all posted work
// requests and before pending requests. Errors: ErrNoResource, then the caller tries again in a
// later Progress; ErrEPFailed; ErrInvalidState before Connect.
func (e *EP) SendControl(data []byte) error {
	if e.state != stateReady {
		return e.err
	}
	if !e.reserveSlot() {
		return uct.ErrNoResource
	}
	wr := e.it.resetOtherWR(verbs.OpSendWithImm, verbs.SendInline)
	wr.Inline = e.it.scratch[:copy(e.it.scratch[:MaxControl], data)]
	wr.Flags |= e.signal()
	wr.Imm = uint32(rcwire.Extension())
	return e.post(&e.it.otherWR)
}

// Ready reports whether Connect has succeeded and the EP has neither failed nor been closed.
func (e *EP) Ready() bool { return e.state == stateReady }

// Err is the error of posts on an EP that is not Ready.
func (e *EP) Err() error { return e.err }

// MD is the memory domain of the iface.
func (it *Iface) MD() *ib.MD { return it.md }

// Port is the port that the iface is open on.
func (it *Iface) Port() *ibport.Port { return it.port }

// VerbsCQ is the completion queue of the iface.
func (it *Iface) VerbsCQ() *verbs.CQ { return it.verbsCQ }

// Fail fails an EP with a status and a cause, as a failed completion does.
func (e *EP) Fail(st ucs.Status, cause error) { e.it.fail(e, st, cause) }

// CancelOps completes the operations of a failed or closed EP with StatusCanceled. The caller must have made the
// link discard the work requests.
func (e *EP) CancelOps() {
	if e.PI != e.CI {
		e.CI = e.PI
		e.retireInOrder(ucs.StatusCanceled)
	}
}

// SendDisconnect sends the disconnect message of a failed EP. If the EP has no slot, it sends nothing.
func (e *EP) SendDisconnect() { e.sendDisconnect() }

// ReceiveQueue is the SRQ of the iface.
func (it *Iface) ReceiveQueue() *verbs.SRQ { return it.srq }
