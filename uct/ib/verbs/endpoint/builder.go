package endpoint

import "github.com/gucx/gucx/uct/ib/verbs"

// builder makes the objects of one thread after the other. As neighbors share, the
// newest object of a kind is the one to share.
type builder struct {
	dev     *verbs.Device
	cfg     Config
	threads int
	set     *Set

	next  Endpoint    // what the next thread gets
	spare cqAndQueues // objects that no thread gets
}

// cqAndQueues are the objects that a plan with Spare makes twice.
type cqAndQueues struct {
	cq  *verbs.CQ
	qps []*verbs.QP
}

// first says whether thread t is the first of those that share an object.
func first(t, ways int) bool { return t%ways == 0 }

// sharers is how many threads share the object that t does: fewer at the end.
func (b *builder) sharers(t, ways int) int { return min(ways, b.threads-t/ways*ways) }

func (b *builder) thread(t int) error {
	p := b.cfg.Plan
	if first(t, p.Context) {
		if err := b.context(); err != nil {
			return err
		}
	}
	if first(t, p.PD) {
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

// queues makes the CQ and the QPs of thread t, if it does not share older ones.
func (b *builder) queues(t int, q *cqAndQueues) (err error) {
	p := b.cfg.Plan
	if first(t, p.CQ) {
		if q.cq, err = b.cq(b.sharers(t, p.CQ)); err != nil {
			return err
		}
	}
	if first(t, p.QP) {
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
