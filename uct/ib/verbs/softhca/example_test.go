package softhca_test

import (
	"fmt"
	"log"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// The device checks what hardware checks. A write beyond the end of its region fails and moves the
// queue pair to ERR, so that later work requests are flushed.
func Example() {
	ctx := must(must(softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})).Open())
	defer ctx.Close()
	pd, cq := must(ctx.AllocPD()), must(ctx.CreateCQ(verbs.CQInitAttr{Depth: 16}))
	mem := must(ctx.AllocBuffer(4096))
	mr := must(pd.RegMR(mem.Bytes(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite))
	qp := must(pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 8, MaxInline: 16}}))
	loopBack(qp, must(ctx.QueryGID(1, 0)))

	write := func(id, offset uint64) verbs.SendWR {
		return verbs.SendWR{ID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled | verbs.SendInline,
			Inline: []byte("bytes"), RemoteAddr: mr.Addr() + offset, RKey: mr.RKey()}
	}
	must(qp.PostSend([]verbs.SendWR{write(1, 0), write(2, 4094), write(3, 0)}))
	for n := 0; n < 3; {
		var wc [3]verbs.WC
		for _, c := range wc[:cq.Poll(wc[:])] {
			fmt.Println(c.ID, c.Status)
			n++
		}
	}
	for _, close := range []func() error{qp.Close, mr.Close, mem.Close, cq.Close, pd.Close} {
		check(close())
	}
	// Output:
	// 1 success
	// 2 remote access error
	// 3 work request flushed error
}

// loopBack connects an RC QP to itself.
func loopBack(qp *verbs.QP, gid verbs.GID) {
	check(qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, AccessFlags: verbs.AccessRemoteWrite},
		verbs.QPMaskState|verbs.QPMaskPKeyIndex|verbs.QPMaskPort|verbs.QPMaskAccessFlags))
	check(qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU4096, DestQPN: qp.Number(), MinRNRTimer: 12,
		AH: verbs.AHAttr{DGID: gid, Global: true, Port: 1}},
		verbs.QPMaskState|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|verbs.QPMaskRQPSN|
			verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer))
	check(qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7},
		verbs.QPMaskState|verbs.QPMaskSQPSN|verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry|verbs.QPMaskMaxRDAtomic))
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
