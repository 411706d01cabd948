package verbs_test

import (
	"fmt"
	"log"
	"runtime"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Two queue pairs of one device: the first writes into memory of the second.
func Example() {
	dev, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
	check(err)
	ctx, err := dev.Open()
	check(err)
	pd, err := ctx.AllocPD()
	check(err)
	cq, err := ctx.CreateCQ(verbs.CQInitAttr{Depth: 16})
	check(err)
	memory := make([]byte, 4096)
	mr, err := pd.RegMR(memory, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	check(err)

	attr := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 16, MaxInline: 16}}
	a, err := pd.CreateQP(attr)
	check(err)
	b, err := pd.CreateQP(attr)
	check(err)
	gid, err := ctx.QueryGID(1, 0)
	check(err)
	connect(a, b.Number(), gid)
	connect(b, a.Number(), gid)

	_, err = a.PostSend([]verbs.SendWR{{
		ID: 42, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled | verbs.SendInline,
		Inline: []byte("hello"), RemoteAddr: mr.Addr(), RKey: mr.RKey(),
	}})
	check(err)
	var wc [1]verbs.WC
	for cq.Poll(wc[:]) == 0 {
		runtime.Gosched()
	}
	fmt.Println(wc[0].ID, wc[0].Status, string(memory[:5]))

	for _, close := range []func() error{a.Close, b.Close, mr.Close, cq.Close, pd.Close, ctx.Close} {
		check(close())
	}
	// Output: 42 success hello
}

// connect takes an RC QP from RESET to RTS.
func connect(qp *verbs.QP, dest uint32, gid verbs.GID) {
	check(qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, AccessFlags: verbs.AccessRemoteWrite},
		verbs.QPMaskState|verbs.QPMaskPKeyIndex|verbs.QPMaskPort|verbs.QPMaskAccessFlags))
	check(qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU4096, DestQPN: dest, MaxDestRD: 1, MinRNRTimer: 12,
		AH: verbs.AHAttr{DGID: gid, Global: true, Port: 1}},
		verbs.QPMaskState|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|verbs.QPMaskRQPSN|
			verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer))
	check(qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 1},
		verbs.QPMaskState|verbs.QPMaskSQPSN|verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry|verbs.QPMaskMaxRDAtomic))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
