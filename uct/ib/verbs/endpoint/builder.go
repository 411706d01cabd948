package endpoint

import "github.com/gucx/gucx/uct/ib/verbs"

// builder creates the objects of the threads in order. Threads that share an object have consecutive numbers, so a
// thread shares the newest object of each type or creates a new one.
type builder struct {
	dev     *verbs.Device
	cfg     Config
	threads int
	set     *Set

	next  Endpoint    // newest objects, for the next thread
	spare cqAndQueues // newest objects of Plan.Spare, which no thread uses
}

// cqAndQueues are the objects that a plan with Spare creates twice.
type cqAndQueues struct {
	cq  *verbs.CQ
	qps []*verbs.QP
}

// isFirst reports whether thread t is the first of the ways threads that share an object.
func isFirst(t, ways int) bool { return t%ways == 0 }

// sharers returns the number of threads that share an object with thread t: ways, or fewer for the last object.
func (b *builder) sharers(t, ways int) int { return min(ways, b.threads-t/ways*ways) }

func (b *builder) thread(t int) error {
	p := b.cfg.Plan
	if isFirst(t, p.Context) {
		if err := b.context(); err != nil {
			return err
		}
	}
	if isFirst(t, p.PD) {
		if err := b.pd(); err != nil {
			return err
		}
	}
	used := cqAndQueues{b.next.CQ, b.next.QPs}
	if err := b.queues(t, &used); err != nil {
		return err
	}
	if p.Spare {
		if err := b.queues(t, &b.spare); err != nil {
			return err
		}
	}
	e := &b.next
	e.CQ, e.QPs = used.cq, used.qps
	e.SharedBy = Shares{
		Context: t / p.Context, PD: t / p.PD, CQ: t / p.CQ, QP: t / p.QP,
		CQUsers: b.sharers(t, p.CQ), QPUsers: b.sharers(t, p.QP),
	}
	b.set.Endpoints = append(b.set.Endpoints, *e)
	return nil
}

func (b *builder) context() error {
	ctx, err := b.dev.Open()
	if err != nil {
		return err
	}
	b.set.undo.Add(ctx.Close)
	b.set.contexts = append(b.set.contexts, ctx)
	b.next.Context = ctx
	return nil
}

func (b *builder) pd() (err error) {
	if b.next.PD, err = b.next.Context.AllocPD(); err == nil {
		b.set.undo.Add(b.next.PD.Close)
	}
	return err
}

// queues creates the CQ and the QPs of thread t in q, unless the thread shares those in q.
func (b *builder) queues(t int, q *cqAndQueues) (err error) {
	p := b.cfg.Plan
	if isFirst(t, p.CQ) {
		if q.cq, err = b.cq(b.sharers(t, p.CQ)); err != nil {
			return err
		}
	}
	if isFirst(t, p.QP) {
		q.qps, err = b.qps(q.cq)
	}
	return err
}

func (b *builder) cq(users int) (*verbs.CQ, error) {
	cq, err := b.next.Context.CreateCQ(verbs.CQInitAttr{
		Depth: b.cfg.CQDepth * users, SingleThreaded: users == 1 && !b.cfg.LockCQ,
	})
	if err == nil {
		b.set.undo.Add(cq.Close)
	}
	return cq, err
}

func (b *builder) qps(cq *verbs.CQ) (qps []*verbs.QP, err error) {
	attr := verbs.QPInitAttr{Type: b.cfg.Type, SendCQ: cq, RecvCQ: cq, Cap: b.cfg.Cap}
	if level := b.cfg.Plan.Domain; level > 0 {
		if attr.TD, err = b.next.Context.AllocTD(verbs.TDInitAttr{Sharing: level}); err != nil {
			return nil, err
		}
		b.set.undo.Add(attr.TD.Close)
	}
	for range b.cfg.QPs {
		qp, err := b.next.PD.CreateQP(attr)
		if err != nil {
			return nil, err
		}
		b.set.undo.Add(qp.Close)
		qps = append(qps, qp)
	}
	return qps, nil
}
