package ucttest

import (
	"slices"
	"testing"

	"github.com/gucx/gucx/uct"
)

// check is one rule of the contract and how to try it.
type check struct {
	name string
	rule string   // the sentence that is enforced, printed on failure
	need uct.Caps // all of them, or skip
	any  uct.Caps // at least one of them, or skip; 0: no such condition
	opts Options  // zero fields take tiny defaults
	run  func(t checkT, p *pair)
}

// Tiny queues bring backpressure within the first messages.
const (
	tinyTxDepth = 4
	tinyRxDepth = 8
)

func (c *check) options() Options {
	o := c.opts
	if o.TxDepth == 0 {
		o.TxDepth = tinyTxDepth
	}
	if o.RxDepth == 0 {
		o.RxDepth = tinyRxDepth
	}
	return o
}

// openCheck is the first one: where it fails all would, for the same reason.
var openCheck = check{
	name: "open",
	rule: "OpenMD, OpenIface and NewEP make a pair of connected ifaces, and everything closes again",
	run:  func(checkT, *pair) {},
}

func allChecks() []check {
	return slices.Concat([]check{openCheck},
		attrChecks, addressChecks, amChecks, orderChecks, descChecks, pendingChecks,
		rmaChecks, mappedChecks, mapChecks, notifyChecks, keyChecks, faultChecks, atomicChecks, flushChecks, fenceChecks, closeChecks, reenterChecks, revokeChecks,
		wakeChecks, queueChecks, limitChecks, costChecks, aliveChecks, peerChecks, queuePeerChecks,
	)
}

// Test runs the suite, one subtest for each check. A check that fails says so in one
// message, with its rule; what else it noticed afterwards is shown with -v.
func Test(t *testing.T, h Harness) {
	s := session{h: &h}
	for _, c := range allChecks() {
		if h.leavesOut(c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			v := s.run(&c)
			v.report(t)
		})
	}
}

// try runs the check on a new pair.
func (c *check) try(t checkT, h *Harness) {
	p := openPair(t, h, c.options())
	have := p.A.Iface.Attr().Caps
	if !have.Has(c.need) {
		t.Skipf("not claimed: %v", c.need&^have)
	}
	if c.any != 0 && have&c.any == 0 {
		t.Skipf("none claimed of: %v", c.any)
	}
	c.run(t, p)
	p.finish(t)
}

// Results runs the checks outside package testing and returns their outcomes.
// With names, only those checks run.
func Results(h Harness, names ...string) []Result {
	var out []Result
	s := session{h: &h}
	for _, c := range allChecks() {
		if len(names) == 0 || slices.Contains(names, c.name) {
			out = append(out, s.run(&c))
		}
	}
	return out
}
