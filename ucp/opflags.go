package ucp

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// OpFlags change how one operation is done. The zero value leaves the choice to gucx. An operation with unknown flags, or
// with two of one group (SendEager and SendRendezvous, CompleteLater and CompleteNow, PreferFastCompletion and
// PreferThroughput), fails with ErrInvalidParam.
//
// Sends of messages, Put and Get use all flags that concern them, and TagRecv and TagRecvData both Complete flags. Other
// receives use CompleteLater only, and StreamEnd uses none. PutNotify and lists of transfers fail with ErrInvalidParam if
// they have flags. PutImplicit and GetImplicit ignore flags and do not check them. With tuple queues (Config.TagProto) a
// tagged message ignores SendEager, SendRendezvous and the preferences, and CompleteNow always fails.
type OpFlags uint8

const (
	// SendEager sends the data of a tagged or active message without waiting for a receive, whatever its length:
	// UCP_AM_SEND_FLAG_EAGER. Without credit the message waits for credit. If the credit is too small for a
	// message of more than half of the peer's window (Config.EagerWindow), it uses rendezvous nevertheless, and so does a
	// message of TagSendSync that is longer than one message of the transport. The receiver decides when it receives a
	// message that waits; then that uses rendezvous too.
	SendEager OpFlags = 1 << iota
	// SendRendezvous sends an RTS and leaves the data of a tagged or active message in the memory of the sender until
	// the peer receives it, whatever its length: UCP_AM_SEND_FLAG_RNDV. The receiver needs no memory for the data.
	SendRendezvous
	// CompleteLater makes the call return a request in any case, also for an operation that is complete:
	// UCP_OP_ATTR_FLAG_NO_IMM_CMPL. Progress calls OnDone after the call has returned. If the call returns an error,
	// there is no request.
	CompleteLater
	// CompleteNow makes the call fail with ErrNoResource, compared with ==, if the operation cannot complete in the call:
	// UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL. Then it has no effect, except that a put or a send without a tuple queue makes the
	// EP begin to connect. The call copies the buffer, also if it is in Mem, and returns no request. A message or a put must fit into one transport
	// message. A get completes only if [RKey.Slice] has mapped the memory; a receive, if a complete
	// message has arrived.
	CompleteNow
	// PreferFastCompletion returns the buffer of a send or put to the caller as early as possible:
	// UCP_OP_ATTR_FLAG_FAST_CMPL. The buffer is copied if it fits into one transport message, and a message uses
	// rendezvous only if there is no credit, or from Config.RndvThresh on if that is set.
	PreferFastCompletion
	// PreferThroughput says that many operations are in flight, so that latencies overlap:
	// UCP_OP_ATTR_FLAG_MULTI_SEND. A message uses rendezvous from the length on for which its transfer
	// is faster than copies without the time of its control messages.
	PreferThroughput

	allOpFlags OpFlags = 1<<iota - 1
)

// flagGroups are the flags of which at most one may be set.
var flagGroups = [...]OpFlags{SendEager | SendRendezvous, CompleteLater | CompleteNow, PreferFastCompletion | PreferThroughput}

// check returns an error that wraps ErrInvalidParam if the flags contradict each other.
func (f OpFlags) check() error {
	if f&^allOpFlags != 0 {
		return fmt.Errorf("%w: unknown flags %#x", ucs.ErrInvalidParam, f&^allOpFlags)
	}
	for _, g := range flagGroups {
		if f&g == g {
			return fmt.Errorf("%w: flags %#x exclude each other", ucs.ErrInvalidParam, g)
		}
	}
	return nil
}

// checkFlags returns an error that wraps ErrInvalidParam if the flags of p, which may be nil, contradict each other.
func (e *EP) checkFlags(a action, p *OpParams) error {
	if p.flags() == 0 {
		return nil
	}
	if err := p.Flags.check(); err != nil {
		return e.errorOf(a, err)
	}
	return nil
}

// permitsNoFlags returns the error of an operation that must have no flags.
func (e *EP) permitsNoFlags(a action) error {
	return e.wrong(a, ucs.ErrInvalidParam, "this operation has no flags")
}

// flags returns the flags of params that may be nil.
func (p *OpParams) flags() OpFlags {
	if p == nil {
		return 0
	}
	return p.Flags
}

// withoutFlags returns params without flags. p may be nil.
//
//go:noinline
func (p *OpParams) withoutFlags() *OpParams {
	if p.flags() == 0 {
		return p
	}
	bare := *p
	bare.Flags = 0
	return &bare
}

// completedStage is the stage of a request that is complete when it is made.
var completedStage = stage{name: "operation", role: noRole}

// completeLater returns the result of a call with CompleteLater, from the result of the same call without it: for an operation
// that has completed, a request that reports this.
func (w *Worker) completeLater(p *OpParams, r *Request, err error) (*Request, error) {
	if r != nil || err != nil || p.flags()&CompleteLater == 0 {
		return r, err
	}
	r = w.newRequest(nil, &completedStage)
	r.onDone = p.onDone()
	r.armOnDone()
	r.complete(ucs.StatusOK)
	return r, nil
}
