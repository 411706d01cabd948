package base_test

import (
	"fmt"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// slots is the number of free slots of an iface.
type slots int

// HasResources implements base.Gate.
func (s *slots) HasResources() bool { return *s > 0 }

// Progress dispatches the pending requests of an iface when it has resources: the
// EPs in turn, the requests of an EP in order.
func ExampleArbiter() {
	var room slots
	var waiting base.Arbiter
	var eps [2]base.PendingQueue
	for ep := range eps {
		for message := range 2 {
			r := &uct.PendingReq{Func: func(*uct.PendingReq) error {
				if room == 0 {
					return uct.ErrNoResource
				}
				room--
				fmt.Printf("EP %d sends message %d\n", ep, message)
				return nil
			}}
			if err := waiting.Add(&eps[ep], r); err != nil {
				fmt.Println(err)
			}
		}
	}
	for waiting.Len() > 0 {
		room = 3
		fmt.Println("dispatched:", waiting.Dispatch(&room))
	}
	// Output:
	// EP 0 sends message 0
	// EP 1 sends message 0
	// EP 0 sends message 1
	// dispatched: 3
	// EP 1 sends message 1
	// dispatched: 1
}
