package overlap

import "github.com/gucx/gucx/ucp"

// gate is a side's part of a barrier of two, with active messages, which match no receive. So
// tagged messages are not involved, as is assumed for the paper: MVAPICH has a barrier of RDMA
// writes, which DISABLE_RDMA_BARRIER turns off.
type gate struct {
	received int // received messages of the other side
	passed   int // barriers of this side
}

// gateID is the id of the active message of a barrier.
const gateID uint16 = 1

// open installs the handler that counts the messages of the other side.
func (g *gate) open(w *ucp.Worker) {
	w.OnActive(gateID, func(*ucp.ActiveMessage) { g.received++ })
}

// pass sends a message to the other side and waits for the message of the other side.
func (g *gate) pass(n Node) error {
	e, err := n.EP()
	if err != nil {
		return err
	}
	q, err := e.SendActive(gateID, nil, nil, nil)
	if err != nil {
		return err
	}
	g.passed++
	if err := n.Until(func() bool { return g.received >= g.passed }); err != nil {
		return err
	}
	return n.Wait(q)
}
