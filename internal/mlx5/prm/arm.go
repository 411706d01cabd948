package prm

// Fields of the arm word: serial number, command, consumer index.
const (
	armSNShift   = 28
	armSNMask    = 3
	armSolicited = 1 << 24
	ciMask       = 1<<24 - 1
)

// ArmWord asks for an event at the next completion after consumer index ci. sn
// counts the events taken from the CQ, two bits of it are sent.
func ArmWord(sn uint32, solicitedOnly bool, ci uint32) uint32 {
	w := sn&armSNMask<<armSNShift | ci&ciMask
	if solicitedOnly {
		w |= armSolicited
	}
	return w
}

// SplitArmWord undoes ArmWord.
func SplitArmWord(w uint32) (sn uint32, solicitedOnly bool, ci uint32) {
	return w >> armSNShift & armSNMask, w&armSolicited != 0, w & ciMask
}
