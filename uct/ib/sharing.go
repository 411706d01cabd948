package ib

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// categories are what the library of endpoints calls the values of Endpoints.
var categories = [...]endpoint.Category{
	EndpointsAuto:          endpoint.Dynamic,
	EndpointsMPIEverywhere: endpoint.MPIEverywhere,
	Endpoints2xDynamic:     endpoint.TwoXDynamic,
	EndpointsDynamic:       endpoint.Dynamic,
	EndpointsSharedDynamic: endpoint.SharedDynamic,
	EndpointsStatic:        endpoint.Static,
	EndpointsMPIThreads:    endpoint.MPIThreads,
}

// Sharing makes the queues of one iface as its category of endpoints has them. It
// belongs to the owner of the iface.
type Sharing struct {
	md   *MD
	plan endpoint.Plan
	lock bool // completion queues take their lock
	auto bool // the category was not asked for: without room for a thread domain there is none

	used, spare queues
	spares      map[*verbs.QP]*verbs.QP // spare of each QP
}

// queues are what a category with spares has twice.
type queues struct {
	td *verbs.TD // nil outside thread domains
	cq *verbs.CQ
}

// OpenSharing begins the queues of an iface of transport on port; what it makes
// is closed by functions that undo gets. ErrBusy if the MD has an iface of the transport there and one of
// the two does not share it.
func (md *MD) OpenSharing(transport string, port uint8, e Endpoints, undo func(step func() error)) (*Sharing, error) {
	if err := md.owners.join(exclusivePort{transport, port}, e); err != nil {
		return nil, md.opError("open "+transport, err)
	}
	undo(func() error { md.owners.leave(exclusivePort{transport, port}); return nil })
	s := &Sharing{md: md, plan: categories[e].Plan(1), lock: e == EndpointsMPIThreads, auto: e == EndpointsAuto,
		spares: map[*verbs.QP]*verbs.QP{}}
	for _, q := range s.sets() {
		if err := s.allocDomain(q, undo); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// sets are the queues to make, the ones that are used first.
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

// TD is the thread domain of the iface; nil if its queues take locks, as they do where the device has no thread
// domains, or, with EndpointsAuto, none left.
func (s *Sharing) TD() *verbs.TD { return s.used.td }

// CreateCQ makes the completion queue of the iface, closed by functions that undo gets.
func (s *Sharing) CreateCQ(attr verbs.CQInitAttr, undo func(step func() error)) (_ *verbs.CQ, err error) {
	attr.SingleThreaded = !s.lock
	for _, q := range s.sets() {
		if q.cq, err = s.md.ctx.CreateCQ(attr); err != nil {
			return nil, fmt.Errorf("create cq: %w", err)
		}
		undo(q.cq.Close)
		attr.Channel = nil // no completion comes to the spare one
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
