package bpfcount

import (
	"fmt"
	"os"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// licence allows programs to call helpers that the kernel permits only to GPL programs.
const licence = "Dual BSD/GPL"

// callEvent marks the tracepoint whose program counts by system call number.
const callEvent = -1

// tracepoints lists where programs are attached, and the event that each counts.
var tracepoints = []struct {
	name  string
	event int
}{
	{"sys_enter", callEvent},
	{"sched_switch", int(Switches)},
	{"page_fault_user", int(Faults)},
	{"page_fault_kernel", int(Faults)}, // of the kernel on memory of the process
	{"net_dev_xmit", int(Transmits)},
	{"netif_receive_skb", int(Receives)},
}

// Offsets in the stack frame of a program.
const (
	stackIDs  = -8  // struct bpf_pidns_info: thread u32, process u32
	stackKey  = -12 // u32: index into counts
	idsLen    = 8
	gateLen   = 12 // bytes: three u32, as in doc.go
	callIDOff = 8  // of the second argument of sys_enter: the first is pt_regs
)

// namespace is the pid namespace of this process, in which programs query ids.
type namespace struct{ dev, ino uint64 }

func ownNamespace() (namespace, error) {
	const link = "/proc/self/ns/pid"
	info, err := os.Stat(link)
	if err != nil {
		return namespace{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return namespace{}, fmt.Errorf("%s: no inode", link)
	}
	// The kernel compares with its own dev_t: 12 bits of major above 20 of minor.
	dev := uint64(st.Dev)
	return namespace{uint64(unix.Major(dev))<<20 | uint64(unix.Minor(dev)), st.Ino}, nil
}

// program returns the program that counts an event; callEvent counts by system call number.
func program(event int, ns namespace, gate, counts *ebpf.Map) asm.Instructions {
	all := loadIDs(ns)
	all = append(all, groupOf(gate)...)
	if event == callEvent {
		all = append(all, callNumber()...)
	} else {
		all = append(all, asm.Add.Imm(asm.R8, int32(maxCalls+event)))
	}
	return append(all, addOne(counts)...)
}

// loadIDs stores the context in R6, the thread id in R7 and the process id in R9.
func loadIDs(ns namespace) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadImm(asm.R1, int64(ns.dev), asm.DWord),
		asm.LoadImm(asm.R2, int64(ns.ino), asm.DWord),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, stackIDs),
		asm.Mov.Imm(asm.R4, idsLen),
		asm.FnGetNsCurrentPidTgid.Call(),
		asm.JNE.Imm(asm.R0, 0, "exit"), // thread of another namespace
		asm.LoadMem(asm.R7, asm.RFP, stackIDs, asm.Word),
		asm.JEq.Imm(asm.R7, 0, "exit"), // idle task: 0 in gate matches no thread
		asm.LoadMem(asm.R9, asm.RFP, stackIDs+4, asm.Word),
		asm.JEq.Imm(asm.R9, 0, "exit"),
	}
}

// groupOf stores in R8 the index of the first counter of the group, or exits.
func groupOf(gate *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapValue(asm.R1, gate.FD(), 0),
		asm.Mov.Imm(asm.R8, int32(int(Caller)*stride)),
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
		asm.JEq.Reg(asm.R2, asm.R7, "count"),
		asm.Mov.Imm(asm.R8, int32(int(Rest)*stride)),
		asm.LoadMem(asm.R2, asm.R1, 4, asm.Word),
		asm.JEq.Reg(asm.R2, asm.R9, "count"),
		asm.Mov.Imm(asm.R8, int32(int(Peer)*stride)),
		asm.LoadMem(asm.R2, asm.R1, 8, asm.Word),
		asm.JNE.Reg(asm.R2, asm.R9, "exit"),
		asm.Mov.Reg(asm.R1, asm.R1).WithSymbol("count"),
	}
}

// callNumber adds the system call number to R8. Numbers beyond the table, and -1 for a call that a
// tracer has cancelled, count as the last one.
func callNumber() asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R1, asm.R6, callIDOff, asm.DWord),
		asm.JLT.Imm(asm.R1, maxCalls, "known"),
		asm.Mov.Imm(asm.R1, maxCalls-1),
		asm.Add.Reg(asm.R8, asm.R1).WithSymbol("known"),
	}
}

// addOne adds 1 to the counter with the index in R8. The addition is atomic, because an event may
// be counted within another one on the same CPU.
func addOne(counts *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.StoreMem(asm.RFP, stackKey, asm.R8, asm.Word),
		asm.LoadMapPtr(asm.R1, counts.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stackKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"),
		asm.Return(),
	}
}
