package prm_test

import (
	"encoding/hex"
	"fmt"

	"github.com/gucx/gucx/internal/mlx5/prm"
)

// The bytes of an inline RDMA write of 5 bytes: control segment, remote address, inline header and
// data. They fit into one basic block.
func Example() {
	const qpn, index = 0x123, 7
	data := []byte("hello")
	var wqe prm.BB
	word := prm.CtrlWord(prm.OpRDMAWrite, index, qpn, uint8(prm.ShortSegs(len(data))))
	prm.PutShortWrite(&wqe, word, prm.CtrlCQUpdate, 0x7f0012345678, 0xabcd)
	prm.PutShortData(&wqe, data)
	fmt.Print(hex.Dump(wqe[:48]))
	// Output:
	// 00000000  00 00 07 08 00 01 23 03  00 00 00 08 00 00 00 00  |......#.........|
	// 00000010  00 00 7f 00 12 34 56 78  00 00 ab cd 00 00 00 00  |.....4Vx........|
	// 00000020  80 00 00 05 68 65 6c 6c  6f 00 00 00 00 00 00 00  |....hello.......|
}

// A completion is passed to software by its last word, in which a bit tells the passes over the ring
// apart: an entry of the pass before is not read again.
func ExampleCQESlot() {
	var slot prm.CQESlot
	slot.Init()
	var cqe prm.CQE
	const ring = 16
	read := func(i uint32) {
		fmt.Println(i, slot.Read(&cqe, prm.OwnerBit(i, ring)), cqe.QPN, cqe.WQECounter)
	}
	read(0) // never written
	slot.Write(&prm.CQE{Opcode: prm.CQEReq, SendOp: prm.OpRDMAWrite, QPN: 0x123, WQECounter: 7}, prm.OwnerBit(0, ring))
	read(0)
	read(ring) // the same entry, one pass later
	// Output:
	// 0 false 0 0
	// 0 true 291 7
	// 16 false 291 7
}
