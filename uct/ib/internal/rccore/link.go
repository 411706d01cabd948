package rccore

import (
	"fmt"
	"math/rand/v2"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Link connects an EP with its peer: a QPLink, or a share of a QP that carries the work requests of
// several EPs. Only the owner of the iface calls its methods.
type Link interface {
	// Number is the QPN of the completions of the EP that Progress handles.
	Number() uint32
	// AppendAddr packs the address of the EP. The link sets QPN and PSN of own.
	AppendAddr(b []byte, own rcwire.EPAddr) []byte
	// ParseAddr checks and unpacks the address of the peer, for Connect. Errors wrap
	// ErrInvalidAddr.
	ParseAddr(b []byte) (rcwire.EPAddr, error)
	// Connect connects to the address that the last ParseAddr returned.
	Connect(dev ibport.DeviceAddr, peer rcwire.EPAddr) error
	// Reserve reserves at most n places in the send queue and returns their number; Unreserve releases n
	// places. An EP reserves at most Config.TxDepth.
	Reserve(n int) int
	Unreserve(n int)
	// Shared reports whether other EPs may use the queue. When such an EP fails or is closed, the
	// iface does not cancel its work requests in flight until the iface is closed.
	Shared() bool
	// ToERR makes the device flush the work requests in flight, of all EPs if the queue is shared.
	ToERR() error
	// Close is called when the EP has no work request in flight.
	Close() error
}

// Links creates links that are not QPs, and configures their receive queue.
type Links interface {
	NewLink() (Link, error)
	// AddrLen is the length of the address that AppendAddr appends.
	AddrLen() int
	// RecvQueue sets the type of the receive queue, whose completions go to cq.
	RecvQueue(a *verbs.SRQInitAttr, cq *verbs.CQ)
	// HandleFault handles an event of the device about a QP, and returns the number of affected EPs. The
	// numbers of XRC targets of two domains can be equal, so it gets the QP.
	HandleFault(qp *verbs.QP, st ucs.Status) int
	// HandleDeviceGone is called when the device with this GID does not exist any more. All its messages have
	// been polled or are in the completion queue. HandleDeviceGone returns the number of affected EPs.
	HandleDeviceGone(gid verbs.GID) int
	// HandleCQError is called after an error of the completion queue, before the EPs fail. It must make the
	// device discard all posted work requests.
	HandleCQError()
	// MaxCredits is the maximum number of credits in one immediate.
	MaxCredits() int
}

// QPLink is an RC QP.
type QPLink struct {
	QP  *verbs.QP
	it  *Iface
	psn uint32 // first PSN of this side
}

var _ Link = (*QPLink)(nil)

// newQPLink creates a QP in INIT.
func (it *Iface) newQPLink() (*QPLink, error) {
	qp, err := it.CreateQP(verbs.QPTypeRC)
	if err != nil {
		return nil, err
	}
	return &QPLink{QP: qp, it: it, psn: rand.Uint32() & 0xffffff}, nil
}

// CreateQP creates a QP in INIT with the send queue of Config and the completion queue of the
// iface: an RC QP with the receive queue of the iface, or an XRC initiator. The caller closes it
// with CloseQP.
func (it *Iface) CreateQP(typ verbs.QPType) (*verbs.QP, error) {
	attr := verbs.QPInitAttr{Type: typ, Cap: verbs.QPCap{
		MaxSendWR:  it.cfg.TxDepth,
		MaxSendSGE: it.cfg.TxMaxSGE,
		MaxInline:  int(it.cfg.TxMaxInline),
	}}
	if typ == verbs.QPTypeRC {
		attr.SRQ = it.srq
	}
	qp, err := it.sharing.CreateQP(attr)
	if err != nil {
		return nil, it.opError("create qp", err)
	}
	qp.SetUserContext(it)
	if err := it.initQP(qp); err != nil {
		_ = it.CloseQP(qp) // err is the cause
		return nil, err
	}
	return qp, nil
}

// CloseQP closes a QP from CreateQP.
func (it *Iface) CloseQP(qp *verbs.QP) error { return it.sharing.CloseQP(qp) }

func (it *Iface) initQP(qp *verbs.QP) error {
	got := qp.Cap()
	if got.MaxInline < it.MaxInline || got.MaxSendWR < it.cfg.TxDepth {
		return it.opError("create qp", fmt.Errorf("%w: the device gave inline %d, depth %d",
			uct.ErrNoMemory, got.MaxInline, got.MaxSendWR))
	}
	return it.ToInit(qp)
}

// ToInit moves a QP from RESET to INIT, with the access flags of the transport.
func (it *Iface) ToInit(qp *verbs.QP) error {
	err := qp.Modify(verbs.QPAttr{
		State: verbs.QPStateInit,
		Port:  it.port.Num,
		AccessFlags: verbs.AccessLocalWrite | verbs.AccessRemoteWrite |
			verbs.AccessRemoteRead | verbs.AccessRemoteAtomic,
	}, verbs.QPMaskState|verbs.QPMaskPKeyIndex|verbs.QPMaskPort|verbs.QPMaskAccessFlags)
	if err != nil {
		return it.opError(fmt.Sprintf("modify qp %#x to INIT", qp.Number()), err)
	}
	return nil
}

// ToRTR moves a QP to RTR. It then receives from QPN and PSN of peer.
func (it *Iface) ToRTR(qp *verbs.QP, dev ibport.DeviceAddr, peer rcwire.EPAddr) error {
	cfg := &it.cfg
	mask := verbs.QPMaskState | verbs.QPMaskAV | verbs.QPMaskPathMTU | verbs.QPMaskDestQPN | verbs.QPMaskRQPSN
	if qp.Type() != verbs.QPTypeXRCSend { // an XRC initiator replies to no requests
		mask |= verbs.QPMaskMaxDestRD | verbs.QPMaskMinRNRTimer
	}
	err := qp.Modify(verbs.QPAttr{
		State:       verbs.QPStateRTR,
		AH:          it.port.AH(dev),
		PathMTU:     min(it.port.Attr.ActiveMTU, peer.MTU),
		DestQPN:     peer.QPN,
		RQPSN:       peer.PSN,
		MaxDestRD:   uint8(cfg.MaxRDAtomic),
		MinRNRTimer: ibport.RNRTimerCode(cfg.RNRTimeout),
	}, mask)
	if err != nil {
		return it.opError(fmt.Sprintf("modify qp %#x to RTR", qp.Number()), err)
	}
	return nil
}

// ToRTS moves a QP from RTR to RTS. reads is the number of reads and atomics that the peer accepts
// at a time.
func (it *Iface) ToRTS(qp *verbs.QP, psn uint32, reads uint8) error {
	cfg := &it.cfg
	err := qp.Modify(verbs.QPAttr{
		State:       verbs.QPStateRTS,
		Timeout:     ibport.AckTimeoutCode(cfg.Timeout),
		RetryCnt:    uint8(cfg.RetryCount),
		RNRRetry:    verbs.RNRForever,
		SQPSN:       psn,
		MaxRDAtomic: uint8(min(cfg.MaxRDAtomic, int(reads))),
	}, verbs.QPMaskState|verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry|
		verbs.QPMaskSQPSN|verbs.QPMaskMaxRDAtomic)
	if err != nil {
		return it.opError(fmt.Sprintf("modify qp %#x to RTS", qp.Number()), err)
	}
	return nil
}

// QPToERR moves a QP to ERR if it is in another state.
func (it *Iface) QPToERR(qp *verbs.QP) error {
	if qp.State() == verbs.QPStateErr {
		return nil
	}
	err := qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState)
	if err != nil {
		return it.opError(fmt.Sprintf("modify qp %#x to ERR", qp.Number()), err)
	}
	return nil
}

// Number implements Link.
func (l *QPLink) Number() uint32 { return l.QP.Number() }

// AppendAddr implements Link.
func (l *QPLink) AppendAddr(b []byte, own rcwire.EPAddr) []byte {
	own.QPN, own.PSN = l.QP.Number(), l.psn
	return own.Append(b)
}

// ParseAddr implements Link.
func (*QPLink) ParseAddr(b []byte) (rcwire.EPAddr, error) { return rcwire.ParseEPAddr(b) }

// Connect implements Link.
func (l *QPLink) Connect(dev ibport.DeviceAddr, peer rcwire.EPAddr) error {
	if err := l.it.ToRTR(l.QP, dev, peer); err != nil {
		return err
	}
	return l.it.ToRTS(l.QP, l.psn, peer.MaxReads)
}

// Reserve implements Link. The queue has as many places as its EP may reserve.
func (*QPLink) Reserve(n int) int { return n }

// Unreserve implements Link.
func (*QPLink) Unreserve(int) {}

// Shared implements Link.
func (*QPLink) Shared() bool { return false }

// ToERR implements Link.
func (l *QPLink) ToERR() error { return l.it.QPToERR(l.QP) }

// Close implements Link.
func (l *QPLink) Close() error { return l.it.CloseQP(l.QP) }
