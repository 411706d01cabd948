// Package rclink connects RC queue pairs.
package rclink

import "github.com/gucx/gucx/uct/ib/verbs"

// Addr is the address of a QP.
type Addr struct {
	GID verbs.GID
	QPN uint32 // 24 bits
	PSN uint32 // of the first message that it sends; 24 bits
}

// AllAccess contains all access flags.
const AllAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// Attributes of all connections. A dead peer whose device does not report it is detected within
// seconds.
const (
	port           = 1
	reads          = 16
	ackTimeoutCode = 18 // about 1 s: 4.096us * 2^18 (IBTA volume 1, Local ACK Timeout)
	retryCount     = 7
	rnrTimerCode   = 14 // 1.28 ms (IBTA volume 1, table 45)
)

// Local returns the address of a QP in RESET, for a later Connect with it.
func Local(qp *verbs.QP) (Addr, error) {
	gid, err := qp.PD().Context().QueryGID(port, 0)
	// Any first PSN is valid between QPs that are created for one connection.
	return Addr{GID: gid, QPN: qp.Number(), PSN: qp.Number()}, err
}

// Connect moves a QP from RESET to RTS. It does not wait for the peer.
func Connect(qp *verbs.QP, peer Addr) error {
	local, err := Local(qp)
	if err != nil {
		return err
	}
	attr, err := qp.PD().Context().QueryPort(port)
	if err != nil {
		return err
	}
	err = qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: port, AccessFlags: AllAccess},
		verbs.QPMaskState|verbs.QPMaskPKeyIndex|verbs.QPMaskPort|verbs.QPMaskAccessFlags)
	if err != nil {
		return err
	}
	err = qp.Modify(verbs.QPAttr{
		State: verbs.QPStateRTR, PathMTU: attr.ActiveMTU, DestQPN: peer.QPN, RQPSN: peer.PSN,
		MaxDestRD: reads, MinRNRTimer: rnrTimerCode,
		AH: verbs.AHAttr{Port: port, Global: true, DGID: peer.GID, HopLimit: 1},
	}, verbs.QPMaskState|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|
		verbs.QPMaskRQPSN|verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer)
	if err != nil {
		return err
	}
	return qp.Modify(verbs.QPAttr{
		State: verbs.QPStateRTS, Timeout: ackTimeoutCode, RetryCnt: retryCount, RNRRetry: verbs.RNRForever,
		SQPSN: local.PSN, MaxRDAtomic: reads,
	}, verbs.QPMaskState|verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry|
		verbs.QPMaskSQPSN|verbs.QPMaskMaxRDAtomic)
}
