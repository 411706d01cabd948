package msgrate

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/studies/rclink"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// Destination is the memory that a thread reads and writes.
type Destination struct {
	Addr uint64
	RKey uint32
}

// Connect connects the first QP of each endpoint with target, which allocates n bytes of memory,
// and returns the destination of each endpoint. Without a target QPs are connected to themselves,
// and self returns the memory that an endpoint reaches.
func Connect(set *endpoint.Set, target Target, n int, self func(t int) Destination) (regions []Destination, err error) {
	var qps []*verbs.QP
	var addrs []rclink.Addr
	for _, e := range set.Endpoints {
		if e.SharedBy.QP < len(qps) {
			continue // another thread's too
		}
		addr, err := rclink.Local(e.QPs[0])
		if err != nil {
			return nil, err
		}
		qps, addrs = append(qps, e.QPs[0]), append(addrs, addr)
	}
	peers := addrs
	var there Landing
	if target != nil {
		if there, err = target.Accept(addrs, n); err != nil {
			return nil, fmt.Errorf("target: %w", err)
		}
		if peers = there.QPs; len(peers) != len(qps) {
			return nil, fmt.Errorf("target: %d QPs, want %d", len(peers), len(qps))
		}
	}
	for i, qp := range qps {
		if err := rclink.Connect(qp, peers[i]); err != nil {
			return nil, err
		}
	}
	for t := range set.Endpoints {
		d := Destination{there.Addr, there.RKey}
		if target == nil {
			d = self(t)
		}
		regions = append(regions, d)
	}
	return regions, nil
}
