package verbs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/ucs"
)

// allowed is the state diagram as the specification draws it: from each state (row)
// to each (column), in the order RESET INIT RTR RTS SQD SQE ERR.
var allowed = map[QPType][7]string{
	QPTypeRC:      rcDiagram,
	QPTypeXRCSend: rcDiagram,
	QPTypeXRCRecv: rcDiagram,
	QPTypeUD: {
		"xx.....",
		"xxx...x",
		"x..x..x",
		"x..xx.x",
		"x..xx.x",
		"x..x..x",
		"x.....x",
	},
}

// rcDiagram is that of the connected types.
var rcDiagram = [7]string{
	"xx.....", // RESET
	"xxx...x", // INIT
	"x..x..x", // RTR
	"x..xx.x", // RTS
	"x..xx.x", // SQD
	"x.....x", // SQE
	"x.....x", // ERR
}

func TestTransitions_Diagram(t *testing.T) {
	for typ, rows := range allowed {
		for from, row := range rows {
			for to, c := range row {
				_, ok := findTransition(typ, QPState(from), QPState(to))
				assert.Equal(t, c == 'x', ok, "%v %v to %v", typ, QPState(from), QPState(to))
			}
		}
		_, ok := findTransition(typ, 7, QPStateReset)
		assert.False(t, ok)
		_, ok = findTransition(typ, QPStateReset, 200)
		assert.False(t, ok)
	}
}

// Each required attribute is missed by name, each other one refused by name.
func TestCheckMask_NamesAttributes(t *testing.T) {
	for typ, table := range map[QPType]map[stateChange]transition{QPTypeRC: rcTransitions, QPTypeUD: udTransitions,
		QPTypeXRCSend: xrcSendTransitions, QPTypeXRCRecv: xrcRecvTransitions} {
		for ch, tr := range table {
			t.Run(fmt.Sprintf("%v %v to %v", typ, ch.from, ch.to), func(t *testing.T) {
				assert.NoError(t, checkMask(typ, ch.from, ch.to, tr.required|QPMaskState))
				assert.NoError(t, checkMask(typ, ch.from, ch.to, tr.required|tr.optional|QPMaskState))
				for _, n := range maskNames[1:] {
					err := checkMask(typ, ch.from, ch.to, tr.required^n.bit|QPMaskState)
					switch {
					case tr.required&n.bit != 0:
						assert.ErrorIs(t, err, ucs.ErrInvalidParam)
						assert.ErrorContains(t, err, "missing "+n.name)
					case tr.optional&n.bit != 0:
						assert.NoError(t, err)
					default:
						assert.ErrorIs(t, err, ucs.ErrInvalidParam)
						assert.ErrorContains(t, err, "not allowed "+n.name)
					}
				}
			})
		}
	}
	assert.ErrorIs(t, checkMask(QPTypeRC, QPStateInit, QPStateRTS, QPMaskState), ucs.ErrInvalidState)
}

func TestQPAttrMask_String(t *testing.T) {
	assert.Equal(t, "State|DestQPN", (QPMaskState | QPMaskDestQPN).String())
	assert.Equal(t, "0x0", QPAttrMask(0).String())
	assert.Equal(t, "Port|0x80000000", (QPMaskPort | 1<<31).String())
	all := QPAttrMask(0)
	for _, n := range maskNames {
		all |= n.bit
	}
	assert.Equal(t, len(maskNames), strings.Count(all.String(), "|")+1)
}

func TestCheckValues(t *testing.T) {
	c := &Context{attr: DeviceAttr{PhysPorts: 2, MaxInitRD: 4, MaxRDAtomic: 8}}
	good := QPAttr{Port: 2, AccessFlags: accessAll, PathMTU: MTU256, RQPSN: max24Bits, SQPSN: max24Bits, DestQPN: max24Bits,
		Timeout: 31, MinRNRTimer: 31, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 4, MaxDestRD: 8}
	all := QPAttrMask(1<<21 - 1)
	assert.NoError(t, c.checkValues(&good, all))
	cases := []struct {
		bit QPAttrMask
		set func(a *QPAttr)
	}{
		{QPMaskPort, func(a *QPAttr) { a.Port = 0 }},
		{QPMaskPort, func(a *QPAttr) { a.Port = 3 }},
		{QPMaskAccessFlags, func(a *QPAttr) { a.AccessFlags = 0x80 }},
		{QPMaskPathMTU, func(a *QPAttr) { a.PathMTU = 0 }},
		{QPMaskPathMTU, func(a *QPAttr) { a.PathMTU = 6 }},
		{QPMaskRQPSN, func(a *QPAttr) { a.RQPSN = 1 << 24 }},
		{QPMaskSQPSN, func(a *QPAttr) { a.SQPSN = 1 << 24 }},
		{QPMaskDestQPN, func(a *QPAttr) { a.DestQPN = 1 << 24 }},
		{QPMaskDestQPN, func(a *QPAttr) { a.DestQPN = 1 }},
		{QPMaskTimeout, func(a *QPAttr) { a.Timeout = 32 }},
		{QPMaskMinRNRTimer, func(a *QPAttr) { a.MinRNRTimer = 32 }},
		{QPMaskRetryCnt, func(a *QPAttr) { a.RetryCnt = 8 }},
		{QPMaskRNRRetry, func(a *QPAttr) { a.RNRRetry = 8 }},
		{QPMaskMaxRDAtomic, func(a *QPAttr) { a.MaxRDAtomic = 5 }},
		{QPMaskMaxDestRD, func(a *QPAttr) { a.MaxDestRD = 9 }},
	}
	for _, tc := range cases {
		a := good
		tc.set(&a)
		err := c.checkValues(&a, all)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam)
		assert.ErrorContains(t, err, tc.bit.String())
		assert.NoError(t, c.checkValues(&a, all&^tc.bit), "not looked at without its bit")
	}
}

func TestQPAttr_Merge(t *testing.T) {
	n := QPAttr{PathMTU: MTU512, QKey: 1, RQPSN: 2, SQPSN: 3, DestQPN: 4, AccessFlags: 5, PKeyIndex: 6, MaxRDAtomic: 7, MaxDestRD: 8,
		MinRNRTimer: 9, Port: 10, Timeout: 11, RetryCnt: 12, RNRRetry: 13, AH: AHAttr{Port: 14}}
	var a QPAttr
	a.Merge(&n, 0)
	assert.Equal(t, QPAttr{}, a)
	a.Merge(&n, QPMaskSQPSN)
	assert.Equal(t, QPAttr{SQPSN: 3}, a)
	a.Merge(&n, 1<<21-1)
	assert.Equal(t, n, a)
}

func TestLifetime(t *testing.T) {
	var parent lifetime
	assert.NoError(t, parents{&parent}.adopt("child"))
	runs := 0
	destroy := func() error { runs++; return nil }
	err := parent.close("close parent", destroy)
	assert.ErrorIs(t, err, ucs.ErrBusy)
	assert.ErrorContains(t, err, "close parent: 1 objects")
	parent.release()
	assert.ErrorIs(t, parent.close("close parent", func() error { return ucs.ErrIO }), ucs.ErrIO)
	assert.NoError(t, parent.close("close parent", destroy), "tried again")
	assert.NoError(t, parent.close("close parent", destroy))
	assert.Equal(t, 1, runs)

	var other lifetime
	assert.ErrorIs(t, parents{&other, &parent}.adopt("child"), ucs.ErrClosed)
	assert.Zero(t, other.children, "none, if not all")
}
