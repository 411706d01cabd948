package ptrace

import (
	"bufio"
	"bytes"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
)

// Values of the first register at a trap: endMark, dropMark, or beginMark with the tag in the
// higher bits.
const (
	endMark   = 0
	beginMark = 1
	dropMark  = 2
	tagShift  = 1
)

// KnownLen is the number of instructions that [Known] executes, including its return.
const KnownLen = 42

// anchor is the address of a function of this program, which the child sends with each mark: in a
// position-independent executable the parent's copy of the program has other addresses.
var anchor = uint64(reflect.ValueOf(Traced).Pointer())

// Begin starts a window. The goroutine must be locked to its thread until End, and no other
// goroutine may mark meanwhile. tag must be below 1<<63; it is returned in [Window.Tag]. Begin
// yields first, so that the window starts with a fresh time slice of the scheduler.
func Begin(tag uint64) {
	runtime.Gosched()
	trap(tag<<tagShift|beginMark, anchor)
}

// End ends the window.
func End() { trap(endMark, anchor) }

// Drop ends the window like End, and the tracer discards it: the operation to be recorded did not
// happen.
func Drop() { trap(dropMark, anchor) }

// Known executes [KnownLen] instructions, so that a count can be checked. The call passes through a
// wrapper of a few instructions, which are not included.
func Known() { known() }

// Traced reports whether another process traces this one.
func Traced() bool {
	b, err := os.ReadFile("/proc/self/status")
	return err == nil && tracerPID(b) != 0
}

// tracerPID returns the value of the TracerPid line of /proc/pid/status (proc_pid_status(5)); 0 if
// there is none.
func tracerPID(status []byte) int {
	s := bufio.NewScanner(bytes.NewReader(status))
	for s.Scan() {
		if v, ok := strings.CutPrefix(s.Text(), "TracerPid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(v))
			if err != nil {
				return 0
			}
			return pid
		}
	}
	return 0
}
