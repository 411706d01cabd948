//go:build !amd64 && !arm64

package ptrace

import "errors"

// supported: this architecture has no marks, and Run returns an error.
const supported = false

const trapLen = 1

var trapText [trapLen]byte

var kernelEntry = []byte{0}

// registers replaces those of an architecture that Run does not support.
type registers struct{}

func (*registers) load(int) error       { return errors.ErrUnsupported }
func (*registers) store(int) error      { return errors.ErrUnsupported }
func (*registers) pc() uint64           { return 0 }
func (*registers) sp() uint64           { return 0 }
func (*registers) setPC(uint64)         {}
func (*registers) marks() (_, _ uint64) { return endMark, 0 }
func (*registers) trapPC() uint64       { return 0 }

func (*registers) returnAddress(int) (uint64, error) { return 0, errors.ErrUnsupported }

func trap(_, _ uint64) {}

func known() {}

// textLen is the number of bytes of an instruction that repeats and kernelEntry need.
const textLen = 4

// repeats returns 0: no instruction traps more than once.
func repeats([]byte) int { return 0 }
