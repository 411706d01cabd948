package ib

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// categories maps Endpoints to the categories of package endpoint.
var categories = [...]endpoint.Category{
	EndpointsAuto:          endpoint.Dynamic,
	EndpointsMPIEverywhere: endpoint.MPIEverywhere,
	Endpoints2xDynamic:     endpoint.TwoXDynamic,
	EndpointsDynamic:       endpoint.Dynamic,
	EndpointsSharedDynamic: endpoint.SharedDynamic,
	EndpointsStatic:        endpoint.Static,
	EndpointsMPIThreads:    endpoint.MPIThreads,
}

// Sharing makes the queues of one iface as its category of endpoints requires. The owner of the
// iface owns it.
type Sharing struct {
	md   *MD
	plan endpoint.Plan
	lock bool // completion queues are locked
	auto bool // no category is configured: if no thread domain is left, the queues use locks

	used, spare queues
	spares      map[*verbs.QP]*verbs.QP // the spare QP of each QP
}

// queues are the resources that a category with spares has twice.
type queues struct {
	td *verbs.TD // nil outside thread domains
	cq *verbs.CQ
}

// OpenSharing allocates the thread domains for an iface of transport on port. It passes functions
// that release its resources to undo. ErrBusy if the MD has an iface of the transport on the port,
// and the category of one of the two permits only one.
func (md *MD) OpenSharing(transport string, port uint8, e Endpoints, undo func(step func() error)) (*Sharing, error) {
	if err := md.owners.add(exclusivePort{transport, port}, e); err != nil {
		return nil, md.opError("open "+transport, err)
	}
	undo(func() error { md.owners.remove(exclusivePort{transport, port}); return nil })
	s := &Sharing{md: md, plan: categories[e].Plan(1), lock: e == EndpointsMPIThreads, auto: e == EndpointsAuto,
		spares: map[*verbs.QP]*verbs.QP{}}
	for _, q := range s.sets() {
		if err := s.allocDomain(q, undo); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// sets returns the queues to make; those that are used come first.
func (s *Sharing) sets() []*queues {
	if s.plan.Spare {
		return []*queues{&s.used, &s.spare}
	}
	return []*queues{&s.used}
}

func (s *Sharing) allocDomain(q *queues, undo func(step func() error)) error {
	if s.plan.Domain == 0 || !s.md.ctx.HasTD() {
		return nil
	}
	td, err := s.md.ctx.AllocTD(verbs.TDInitAttr{Sharing: s.plan.Domain})
	switch {
	case s.auto && errors.Is(err, ucs.ErrNoMemory):
		return nil
	case err != nil:
		return s.md.opError("alloc thread domain", err)
	}
	q.td = td
	undo(td.Close)
	return nil
}

// TD returns the thread domain of the iface. It is nil if the queues use locks: if the device has
// no thread domains, or, with EndpointsAuto, none is left.
func (s *Sharing) TD() *verbs.TD { return s.used.td }

// CreateCQ makes the completion queue of the iface. It passes functions that close it to undo.
func (s *Sharing) CreateCQ(attr verbs.CQInitAttr, undo func(step func() error)) (_ *verbs.CQ, err error) {
	attr.SingleThreaded = !s.lock
	for _, q := range s.sets() {
		if q.cq, err = s.md.ctx.CreateCQ(attr); err != nil {
			return nil, fmt.Errorf("create cq: %w", err)
		}
		undo(q.cq.Close)
		attr.Channel = nil // the spare queue has no completions
	}
	return s.used.cq, nil
}

// CreateQP makes a QP on the completion queue and in the thread domain of the
// iface. Close it with CloseQP.
func (s *Sharing) CreateQP(attr verbs.QPInitAttr) (*verbs.QP, error) {
	qp, err := s.createQP(attr, &s.used)
	if err != nil || !s.plan.Spare {
		return qp, err
	}
	spare, err := s.createQP(attr, &s.spare)
	if err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	s.spares[qp] = spare
	return qp, nil
}

func (s *Sharing) createQP(attr verbs.QPInitAttr, q *queues) (*verbs.QP, error) {
	attr.SendCQ, attr.TD = q.cq, q.td
	if attr.Type != verbs.QPTypeXRCSend {
		attr.RecvCQ = q.cq
	}
	return s.md.pd.CreateQP(attr)
}

// CloseQP closes a QP from CreateQP.
func (s *Sharing) CloseQP(qp *verbs.QP) error {
	err := qp.Close()
	if spare := s.spares[qp]; spare != nil {
		delete(s.spares, qp)
		err = errors.Join(err, spare.Close())
	}
	return err
}
