package ucttest

import (
	"slices"
	"testing"

	"github.com/gucx/gucx/uct"
)

// check is one rule of the contract and the function that checks it.
type check struct {
	name string
	rule string   // the rule, which the message of a failure contains
	need uct.Caps // skipped unless the transport has all of them
	any  uct.Caps // skipped unless the transport has at least one of them; 0: no condition
	opts Options  // zero fields mean tinyTxDepth and tinyRxDepth
	run  func(t checkT, p *pair)
}

// Short queues, so that the first messages cause backpressure.
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

// openCheck runs first. If it fails, the suite skips all other checks, which would fail for the same reason.
var openCheck = check{
	name: "open",
	rule: "OpenMD, OpenIface and NewEP return a pair of connected ifaces, and all objects can be closed",
	run:  func(checkT, *pair) {},
}

func allChecks() []check {
	return slices.Concat([]check{openCheck},
		attrChecks, addressChecks, amChecks, orderChecks, descChecks, pendingChecks,
		rmaChecks, mappedChecks, mapChecks, notifyChecks, keyChecks, faultChecks, atomicChecks, flushChecks, fenceChecks, closeChecks, reenterChecks, revokeChecks,
		wakeChecks, queueChecks, limitChecks, costChecks, aliveChecks, peerChecks, queuePeerChecks,
	)
}

// Test runs the suite, one subtest for each check. A failed check reports one message, which contains its rule; -v
// shows its later failures.
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

// Results runs the checks outside package testing and returns their outcomes. If names are given, it runs only those
// checks.
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
