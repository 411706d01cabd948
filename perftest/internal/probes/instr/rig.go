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

// pollLimit bounds the wait for a completion, in polls that yield the thread: some
// seconds. One poll is enough once the devices know each other, because everything
// completes in the doorbell.
const pollLimit = 1 << 20

var (
	errStuck   = fmt.Errorf("no completion within %d polls", pollLimit)
	errCorrupt = errors.New("the data did not arrive")
	errIdle    = errors.New("nothing to flush after a put")
)

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
