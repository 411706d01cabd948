package rccore

import (
	"fmt"
	"math/rand/v2"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Link connects an EP with its peer: a QPLink, or a share in a QP that carries the work
// requests of several EPs. Methods are called by the owner of the iface.
type Link interface {
	// Number is what completions of the EP have as their QPN when Progress sees them.
	Number() uint32
	// AppendAddr packs the address of the EP; the link knows QPN and PSN of own.
	AppendAddr(b []byte, own rcwire.EPAddr) []byte
	// ParseAddr checks and unpacks the peer's, for Connect. Errors wrap ErrInvalidAddr.
	ParseAddr(b []byte) (rcwire.EPAddr, error)
	// Connect connects with what ParseAddr has returned last.
	Connect(dev ib.DeviceAddr, peer rcwire.EPAddr) error
	// Reserve takes places in the send queue, n at most, and returns how many; Return gives
	// n back. An EP reserves at most Config.TxDepth.
	Reserve(n int) int
	Return(n int)
	// Shared reports that other EPs may use the queue. What such an EP has in flight when it
	// fails or is closed is left to the device, until the iface is closed.
	Shared() bool
	// ToERR has the device flush what is in flight, on a queue that is shared that of all.
	ToERR() error
	// Close is called when nothing of the EP is in flight.
	Close() error
}

// Links makes links that are not QPs, and says where their messages arrive.
type Links interface {
	NewLink() (Link, error)
	// AddrLen is the length of what AppendAddr appends.
	AddrLen() int
	// RecvQueue sets the type of the receive queue, which completes in cq.
	RecvQueue(a *verbs.SRQInitAttr, cq *verbs.CQ)
	// Fault is told what the device reports of a QP, and returns how many EPs it concerns.
	// Numbers do not tell XRC targets of two domains apart.
	Fault(qp *verbs.QP, st ucs.Status) int
	// Gone is told that the device with a GID is gone, with all that it had sent polled or in the completion
	// queue, and returns how many EPs it concerns.
	Gone(gid verbs.GID) int
	// Lost is told that the completion queue has failed, before the EPs are: the device is to let go of
	// all that was posted.
	Lost()
	// MaxCredits is the largest number that comes back in one immediate.
	MaxCredits() int
}

// QPLink is an RC QP.
type QPLink struct {
	QP  *verbs.QP
	it  *Iface
	psn uint32 // the first that we send
}

var _ Link = (*QPLink)(nil)

// newQPLink makes a QP in INIT.
func (it *Iface) newQPLink() (*QPLink, error) {
	qp, err := it.CreateQP(verbs.QPTypeRC)
	if err != nil {
		return nil, err
	}
	return &QPLink{QP: qp, it: it, psn: rand.Uint32() & 0xffffff}, nil
}

// CreateQP makes a QP in INIT with a send queue as Config has it, that completes in the
// completion queue of the iface: an RC QP over the receive queue, or an XRC initiator.
// Close it with CloseQP.
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
		_ = it.CloseQP(qp) // the QP is of no use: err says why
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

// ToInit takes a QP from RESET to INIT, with the rights of the transport.
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

// ToRTR has a QP receive what the peer sends: from QPN and PSN of peer.
func (it *Iface) ToRTR(qp *verbs.QP, dev ib.DeviceAddr, peer rcwire.EPAddr) error {
	cfg := &it.cfg
	mask := verbs.QPMaskState | verbs.QPMaskAV | verbs.QPMaskPathMTU | verbs.QPMaskDestQPN | verbs.QPMaskRQPSN
	if qp.Type() != verbs.QPTypeXRCSend { // which answers nothing
		mask |= verbs.QPMaskMaxDestRD | verbs.QPMaskMinRNRTimer
	}
	err := qp.Modify(verbs.QPAttr{
		State:       verbs.QPStateRTR,
		AH:          it.port.AH(dev),
		PathMTU:     min(it.port.Attr.ActiveMTU, peer.MTU),
		DestQPN:     peer.QPN,
		RQPSN:       peer.PSN,
		MaxDestRD:   uint8(cfg.MaxRDAtomic),
		MinRNRTimer: ib.RNRTimerCode(cfg.RNRTimeout),
	}, mask)
	if err != nil {
		return it.opError(fmt.Sprintf("modify qp %#x to RTR", qp.Number()), err)
	}
	return nil
}

// ToRTS takes a QP from RTR to RTS; reads is how many reads and atomics the peer serves.
func (it *Iface) ToRTS(qp *verbs.QP, psn uint32, reads uint8) error {
	cfg := &it.cfg
	err := qp.Modify(verbs.QPAttr{
		State:       verbs.QPStateRTS,
		Timeout:     ib.AckTimeoutCode(cfg.Timeout),
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

// QPToERR moves a QP to ERR if it is not there.
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
func (l *QPLink) Connect(dev ib.DeviceAddr, peer rcwire.EPAddr) error {
	if err := l.it.ToRTR(l.QP, dev, peer); err != nil {
		return err
	}
	return l.it.ToRTS(l.QP, l.psn, peer.Reads)
}

// Reserve implements Link: the queue has as many places as an EP reserves.
func (*QPLink) Reserve(n int) int { return n }

// Return implements Link.
func (*QPLink) Return(int) {}

// Shared implements Link.
func (*QPLink) Shared() bool { return false }

// ToERR implements Link.
func (l *QPLink) ToERR() error { return l.it.QPToERR(l.QP) }

// Close implements Link.
func (l *QPLink) Close() error { return l.it.CloseQP(l.QP) }
