package instr

import (
	"errors"
	"fmt"
	"time"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/self"
)

// openers are the layers as they are. A rig has both ends in one process, on one
// thread, and the software HCA executes one-sided operations in the doorbell: what
// is counted is all that the initiator does. On the loop fabric both ends share a
// device, on shm each opens its own; over self they are one.
var openers = map[Part]opener{
	Verbs: openVerbs,
	UCT:   openUCT,
	UCP:   openUCP,
}

// A completion is there at one of the first polls once the devices know each other, because
// everything completes in the doorbell. Handshakes take as long as other threads do, on a machine
// that may have others to run: patience bounds the wait.
const (
	firstPolls = 1 << 10 // before the clock is read, of which an operation that is counted sees nothing
	morePolls  = 16      // between two pauses
	pollPause  = 100 * time.Microsecond
	patience   = time.Minute
)

var (
	errStuck   = fmt.Errorf("no completion within %v", patience)
	errCorrupt = errors.New("the data did not arrive")
)

// polls is a loop that ends when nothing will happen any more. Its body polls, and yields to
// other goroutines; now and then polls gives up the processor, which what connects may wait for.
func polls(yield func() bool) {
	for range firstPolls {
		if !yield() {
			return
		}
	}
	for start := time.Now(); time.Since(start) < patience; time.Sleep(pollPause) {
		for range morePolls {
			if !yield() {
				return
			}
		}
	}
}

// ends is how many devices the two ends of a rig open.
func ends(fabric, tl string) int {
	if softhca.Fabric(fabric) == softhca.FabricLoop || loops(tl) {
		return 1
	}
	return 2
}

// loops reports that both ends of a rig are one iface or worker: the transport leads nowhere else.
func loops(tl string) bool { return tl == self.Name }

// engineTick makes the device's engine look in seldom. By default it does so each
// millisecond, which is once in many thousand polls; a child that is stepped runs a
// thousand times slower, and would meet it in every one. Handshakes wait for a few.
const engineTick = 200 * time.Millisecond

// device describes a device on a fabric; each open of it is another device.
func device(fabric string) (*verbs.Device, error) {
	return softhca.NewDevice(softhca.Config{Fabric: softhca.Fabric(fabric), EngineTick: engineTick})
}

// unsupported is why a rig skips a case.
func unsupported(c Case) error { return fmt.Errorf("%v: %w", c, errors.ErrUnsupported) }
