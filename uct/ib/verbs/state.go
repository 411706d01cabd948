package verbs

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/ucs"
)

// transition has the required and the optional attributes of a change of state (IBTA
// volume 1, 10.3 and 11.2.5.2). State itself is always allowed.
//
//	        +--------------- any state but RESET: ERR ----------------+
//	        v                                                         |
//	RESET -> INIT -> RTR -> RTS <-> SQD                              ERR
//	  ^              (receives) |^                                    |
//	  |                         vSQE (UD: a send failed)              |
//	  +------------------------- any state: RESET --------------------+
type transition struct {
	required, optional QPAttrMask
}

type stateChange struct{ from, to QPState }

// rcTransitions and udTransitions list the changes other than those to RESET and ERR.
// These are always allowed (ERR not from RESET) and have no attributes.
var (
	rcTransitions = map[stateChange]transition{
		{QPStateReset, QPStateInit}: {required: QPMaskPKeyIndex | QPMaskPort | QPMaskAccessFlags},
		{QPStateInit, QPStateInit}:  {optional: QPMaskPKeyIndex | QPMaskPort | QPMaskAccessFlags},
		{QPStateInit, QPStateRTR}: {
			required: QPMaskAV | QPMaskPathMTU | QPMaskDestQPN | QPMaskRQPSN | QPMaskMaxDestRD | QPMaskMinRNRTimer,
			optional: QPMaskAccessFlags | QPMaskPKeyIndex,
		},
		{QPStateRTR, QPStateRTS}: {
			required: QPMaskTimeout | QPMaskRetryCnt | QPMaskRNRRetry | QPMaskSQPSN | QPMaskMaxRDAtomic,
			optional: QPMaskCurState | QPMaskAccessFlags | QPMaskMinRNRTimer,
		},
		{QPStateRTS, QPStateRTS}: {optional: QPMaskCurState | QPMaskAccessFlags | QPMaskMinRNRTimer},
		{QPStateRTS, QPStateSQD}: {},
		{QPStateSQD, QPStateRTS}: {optional: QPMaskCurState | QPMaskAccessFlags | QPMaskMinRNRTimer},
		{QPStateSQD, QPStateSQD}: {optional: QPMaskPort | QPMaskAV | QPMaskTimeout | QPMaskRetryCnt | QPMaskRNRRetry |
			QPMaskMaxRDAtomic | QPMaskMaxDestRD | QPMaskPKeyIndex | QPMaskAccessFlags | QPMaskMinRNRTimer},
	}
	udTransitions = map[stateChange]transition{
		{QPStateReset, QPStateInit}: {required: QPMaskPKeyIndex | QPMaskPort | QPMaskQKey},
		{QPStateInit, QPStateInit}:  {optional: QPMaskPKeyIndex | QPMaskPort | QPMaskQKey},
		{QPStateInit, QPStateRTR}:   {optional: QPMaskPKeyIndex | QPMaskQKey},
		{QPStateRTR, QPStateRTS}:    {required: QPMaskSQPSN, optional: QPMaskCurState | QPMaskQKey},
		{QPStateRTS, QPStateRTS}:    {optional: QPMaskCurState | QPMaskQKey},
		{QPStateRTS, QPStateSQD}:    {},
		{QPStateSQD, QPStateRTS}:    {optional: QPMaskCurState | QPMaskQKey},
		{QPStateSQD, QPStateSQD}:    {optional: QPMaskPKeyIndex | QPMaskQKey},
		{QPStateSQE, QPStateRTS}:    {optional: QPMaskCurState | QPMaskQKey},
	}
)

// xrcSendTransitions and xrcRecvTransitions are rcTransitions without the attributes of
// the responder and of the requester.
var (
	xrcSendTransitions = map[stateChange]transition{
		{QPStateReset, QPStateInit}: rcTransitions[stateChange{QPStateReset, QPStateInit}],
		{QPStateInit, QPStateInit}:  rcTransitions[stateChange{QPStateInit, QPStateInit}],
		{QPStateInit, QPStateRTR}: {
			required: QPMaskAV | QPMaskPathMTU | QPMaskDestQPN | QPMaskRQPSN,
			optional: QPMaskAccessFlags | QPMaskPKeyIndex,
		},
		{QPStateRTR, QPStateRTS}: {
			required: QPMaskTimeout | QPMaskRetryCnt | QPMaskRNRRetry | QPMaskSQPSN | QPMaskMaxRDAtomic,
			optional: QPMaskCurState | QPMaskAccessFlags,
		},
		{QPStateRTS, QPStateRTS}: {optional: QPMaskCurState | QPMaskAccessFlags},
		{QPStateRTS, QPStateSQD}: {},
		{QPStateSQD, QPStateRTS}: {optional: QPMaskCurState | QPMaskAccessFlags},
		{QPStateSQD, QPStateSQD}: {optional: QPMaskPort | QPMaskAV | QPMaskTimeout | QPMaskRetryCnt | QPMaskRNRRetry |
			QPMaskMaxRDAtomic | QPMaskPKeyIndex | QPMaskAccessFlags},
	}
	xrcRecvTransitions = map[stateChange]transition{
		{QPStateReset, QPStateInit}: rcTransitions[stateChange{QPStateReset, QPStateInit}],
		{QPStateInit, QPStateInit}:  rcTransitions[stateChange{QPStateInit, QPStateInit}],
		{QPStateInit, QPStateRTR}:   rcTransitions[stateChange{QPStateInit, QPStateRTR}],
		{QPStateRTR, QPStateRTS}: {
			required: QPMaskTimeout | QPMaskSQPSN,
			optional: QPMaskCurState | QPMaskAccessFlags | QPMaskMinRNRTimer,
		},
		{QPStateRTS, QPStateRTS}: rcTransitions[stateChange{QPStateRTS, QPStateRTS}],
		{QPStateRTS, QPStateSQD}: {},
		{QPStateSQD, QPStateRTS}: rcTransitions[stateChange{QPStateSQD, QPStateRTS}],
		{QPStateSQD, QPStateSQD}: {optional: QPMaskPort | QPMaskAV | QPMaskTimeout |
			QPMaskMaxDestRD | QPMaskPKeyIndex | QPMaskAccessFlags | QPMaskMinRNRTimer},
	}
)

// transitions returns the changes of a type of QP other than those to RESET and ERR.
func transitions(typ QPType) map[stateChange]transition {
	switch typ {
	case QPTypeUD:
		return udTransitions
	case QPTypeXRCSend:
		return xrcSendTransitions
	case QPTypeXRCRecv:
		return xrcRecvTransitions
	}
	return rcTransitions
}

// Allows reports whether Modify may move a QP of type t from one state to another.
// Providers call it, because the state may have changed since Modify checked it.
func (t QPType) Allows(from, to QPState) bool {
	_, ok := findTransition(t, from, to)
	return ok
}

// findTransition returns the transition of a change; false if the change is not allowed.
func findTransition(typ QPType, from, to QPState) (transition, bool) {
	switch {
	case from > QPStateErr || to > QPStateErr:
		return transition{}, false
	case to == QPStateReset, to == QPStateErr && from != QPStateReset:
		return transition{}, true
	}
	t, ok := transitions(typ)[stateChange{from, to}]
	return t, ok
}

// checkMask returns nil if mask has all attributes that the change requires and only
// attributes that it allows. Errors: ErrInvalidState, ErrInvalidParam.
func checkMask(typ QPType, from, to QPState, mask QPAttrMask) error {
	t, ok := findTransition(typ, from, to)
	if !ok {
		return fmt.Errorf("no transition of %v from %v: %w", typ, from, ucs.ErrInvalidState)
	}
	given := mask &^ QPMaskState
	if missing := t.required &^ given; missing != 0 {
		return fmt.Errorf("from %v: missing %v: %w", from, missing, ucs.ErrInvalidParam)
	}
	if extra := given &^ (t.required | t.optional); extra != 0 {
		return fmt.Errorf("from %v: not allowed %v: %w", from, extra, ucs.ErrInvalidParam)
	}
	return nil
}

var maskNames = []struct {
	bit  QPAttrMask
	name string
}{
	{QPMaskState, "State"}, {QPMaskCurState, "CurState"}, {QPMaskAccessFlags, "AccessFlags"},
	{QPMaskPKeyIndex, "PKeyIndex"}, {QPMaskPort, "Port"}, {QPMaskQKey, "QKey"}, {QPMaskAV, "AV"},
	{QPMaskPathMTU, "PathMTU"}, {QPMaskTimeout, "Timeout"}, {QPMaskRetryCnt, "RetryCnt"},
	{QPMaskRNRRetry, "RNRRetry"}, {QPMaskRQPSN, "RQPSN"}, {QPMaskMaxRDAtomic, "MaxRDAtomic"},
	{QPMaskMinRNRTimer, "MinRNRTimer"}, {QPMaskSQPSN, "SQPSN"}, {QPMaskMaxDestRD, "MaxDestRD"},
	{QPMaskDestQPN, "DestQPN"},
}

// String returns the names of the attributes, separated by "|".
func (m QPAttrMask) String() string {
	var names []string
	for _, n := range maskNames {
		if m&n.bit != 0 {
			names = append(names, n.name)
			m &^= n.bit
		}
	}
	if m != 0 || len(names) == 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(m)))
	}
	return strings.Join(names, "|")
}

// Limits of fields in packets (IBTA volume 1, 9.2 and 11.2.5.2).
const (
	max24Bits = 1<<24 - 1
	maxRetry  = 7
	maxTimer  = 31
	firstQPN  = 2 // QPNs 0 and 1 are reserved for management
)

// checkValues checks the attributes in mask against the device.
func (c *Context) checkValues(a *QPAttr, mask QPAttrMask) error {
	bad := func(bit QPAttrMask, wrong bool, value any) error {
		if mask&bit == 0 || !wrong {
			return nil
		}
		return fmt.Errorf("%v %v: %w", bit, value, ucs.ErrInvalidParam)
	}
	checks := []error{
		bad(QPMaskPort, a.Port < 1 || a.Port > max(c.attr.PhysPorts, c.attr.PortCount), a.Port),
		bad(QPMaskAccessFlags, a.AccessFlags&^accessAll != 0, a.AccessFlags),
		bad(QPMaskPathMTU, a.PathMTU.Bytes() == 0, a.PathMTU),
		bad(QPMaskRQPSN, a.RQPSN > max24Bits, a.RQPSN),
		bad(QPMaskSQPSN, a.SQPSN > max24Bits, a.SQPSN),
		bad(QPMaskDestQPN, a.DestQPN > max24Bits || a.DestQPN < firstQPN, a.DestQPN),
		bad(QPMaskTimeout, a.Timeout > maxTimer, a.Timeout),
		bad(QPMaskMinRNRTimer, a.MinRNRTimer > maxTimer, a.MinRNRTimer),
		bad(QPMaskRetryCnt, a.RetryCnt > maxRetry, a.RetryCnt),
		bad(QPMaskRNRRetry, a.RNRRetry > maxRetry, a.RNRRetry),
		bad(QPMaskMaxRDAtomic, int(a.MaxRDAtomic) > c.attr.MaxInitRD, a.MaxRDAtomic),
		bad(QPMaskMaxDestRD, int(a.MaxDestRD) > c.attr.MaxRDAtomic, a.MaxDestRD),
	}
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	return nil
}

// Merge copies the attributes in mask from n, except for the state.
func (a *QPAttr) Merge(n *QPAttr, mask QPAttrMask) {
	set := func(bit QPAttrMask, copyField func()) {
		if mask&bit != 0 {
			copyField()
		}
	}
	set(QPMaskAccessFlags, func() { a.AccessFlags = n.AccessFlags })
	set(QPMaskPKeyIndex, func() { a.PKeyIndex = n.PKeyIndex })
	set(QPMaskPort, func() { a.Port = n.Port })
	set(QPMaskQKey, func() { a.QKey = n.QKey })
	set(QPMaskAV, func() { a.AH = n.AH })
	set(QPMaskPathMTU, func() { a.PathMTU = n.PathMTU })
	set(QPMaskTimeout, func() { a.Timeout = n.Timeout })
	set(QPMaskRetryCnt, func() { a.RetryCnt = n.RetryCnt })
	set(QPMaskRNRRetry, func() { a.RNRRetry = n.RNRRetry })
	set(QPMaskRQPSN, func() { a.RQPSN = n.RQPSN })
	set(QPMaskMaxRDAtomic, func() { a.MaxRDAtomic = n.MaxRDAtomic })
	set(QPMaskMinRNRTimer, func() { a.MinRNRTimer = n.MinRNRTimer })
	set(QPMaskSQPSN, func() { a.SQPSN = n.SQPSN })
	set(QPMaskMaxDestRD, func() { a.MaxDestRD = n.MaxDestRD })
	set(QPMaskDestQPN, func() { a.DestQPN = n.DestQPN })
}
