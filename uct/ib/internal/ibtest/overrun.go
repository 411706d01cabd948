package ibtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Overrun overruns cq: it creates QPs whose flushed work requests complete in cq, more than its depth. The caller must
// not poll cq during the call.
func Overrun(t testing.TB, md *ib.MD, cq *verbs.CQ) {
	t.Helper()
	const depth = 64
	wrs := make([]verbs.SendWR, depth)
	for i := range wrs {
		wrs[i] = verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled}
	}
	for left := cq.Depth() + 2; left > 0; left -= depth { // the device has one entry more than Depth
		qp, err := md.PD().CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: depth}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, qp.Close()) })
		require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1},
			verbs.QPMaskState|verbs.QPMaskPKeyIndex|verbs.QPMaskPort|verbs.QPMaskAccessFlags))
		require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState))
		_, err = qp.PostSend(wrs)
		require.NoError(t, err)
	}
}
