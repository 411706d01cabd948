package prm

// Fields of the arm word: serial number, command, consumer index.
const (
	armSNShift   = 28
	armSNMask    = 3
	armSolicited = 1 << 24
	ciMask       = 1<<24 - 1
)

// ArmWord returns the arm word that requests an event at the next completion after consumer index ci. sn is the
// number of events that were read from the CQ; the word contains two bits of it.
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
