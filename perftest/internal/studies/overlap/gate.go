package overlap

import "github.com/gucx/gucx/ucp"

// gate is a side's part of a barrier of two, of eager messages that no receive matches. So no
// protocol of tagged messages has a part in it, as is to be supposed of the paper: MVAPICH has
// a barrier of RDMA writes, which DISABLE_RDMA_BARRIER turns off.
type gate struct {
	came   int // words of the other side that it has come
	passed int // barriers of this side
}

// gateID is the active message of a barrier.
const gateID uint16 = 1

// open has the words of the other side counted.
func (g *gate) open(w *ucp.Worker) {
	w.OnActive(gateID, func(*ucp.ActiveMessage) { g.came++ })
}

// pass tells the other side that this one has come and waits for its word.
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
	if err := n.Until(func() bool { return g.came >= g.passed }); err != nil {
		return err
	}
	return n.Wait(q)
}
