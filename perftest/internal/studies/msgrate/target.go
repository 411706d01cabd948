package msgrate

import (
	"errors"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/studies/rclink"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Target is the destination of messages: memory, and the QPs to it.
type Target interface {
	// Accept creates a QP for each peer, connected to it, and allocates n bytes of memory.
	Accept(peers []rclink.Addr, n int) (Landing, error)
	// Memory returns the current contents of the memory.
	Memory() ([]byte, error)
	Close() error
}

// Landing describes the objects of a Target.
type Landing struct {
	QPs  []rclink.Addr // in the order of the peers
	Addr uint64
	RKey uint32
}

// local is a Target on a context of this process.
type local struct {
	ctx  *verbs.Context
	mr   *verbs.MR
	undo cleanup.Stack
}

// NewTarget opens a target on dev, in this process. It has no work during a measurement: messages
// are one-sided.
func NewTarget(dev *verbs.Device) (Target, error) {
	ctx, err := dev.Open()
	if err != nil {
		return nil, err
	}
	t := &local{ctx: ctx}
	t.undo.Add(ctx.Close)
	return t, nil
}

func (t *local) Accept(peers []rclink.Addr, n int) (Landing, error) {
	if t.mr != nil {
		return Landing{}, errors.New("target is in use")
	}
	pd, err := t.ctx.AllocPD()
	if err != nil {
		return Landing{}, err
	}
	t.undo.Add(pd.Close)
	if err := t.memory(pd, n); err != nil {
		return Landing{}, err
	}
	cq, err := t.ctx.CreateCQ(verbs.CQInitAttr{Depth: 1})
	if err != nil {
		return Landing{}, err
	}
	t.undo.Add(cq.Close)
	l := Landing{Addr: t.mr.Addr(), RKey: t.mr.RKey()}
	for _, peer := range peers {
		qp, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq})
		if err != nil {
			return Landing{}, err
		}
		t.undo.Add(qp.Close)
		addr, err := rclink.Local(qp)
		if err != nil {
			return Landing{}, err
		}
		if err := rclink.Connect(qp, peer); err != nil {
			return Landing{}, err
		}
		l.QPs = append(l.QPs, addr)
	}
	return l, nil
}

func (t *local) memory(pd *verbs.PD, n int) error {
	buf, err := t.ctx.AllocBuffer(n)
	if err != nil {
		return err
	}
	t.undo.Add(buf.Close)
	if t.mr, err = pd.RegMR(buf.Bytes(), rclink.AllAccess); err == nil {
		t.undo.Add(t.mr.Close)
	}
	return err
}

func (t *local) Memory() ([]byte, error) {
	if t.mr == nil {
		return nil, errors.New("target has no memory yet")
	}
	return t.mr.Bytes(), nil
}

func (t *local) Close() error { return t.undo.Run() }
