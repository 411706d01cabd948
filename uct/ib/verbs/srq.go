package verbs

// SRQ is a shared receive queue: its QPs take receives from it in the order in
// which messages arrive. PostRecv may be called by several goroutines unless the
// queue is in a thread domain.
type SRQ struct {
	pd   *PD
	p    SRQProvider
	up   parents
	life lifetime
}

// CreateSRQ makes a shared receive queue. ErrTooLong beyond the limits of
// DeviceAttr, ErrInvalidParam for negative values or a thread domain of another
// context.
func (pd *PD) CreateSRQ(attr SRQInitAttr) (*SRQ, error) {
	const op = "create SRQ"
	dev := &pd.ctx.attr
	if attr.MaxWR < 1 || attr.MaxSGE < 0 {
		return nil, invalid(op, "max_wr %d, max_sge %d", attr.MaxWR, attr.MaxSGE)
	}
	if attr.MaxWR > dev.MaxSRQWR {
		return nil, tooLong(op, "max_wr", attr.MaxWR, dev.MaxSRQWR)
	}
	if attr.MaxSGE > dev.MaxSRQSGE {
		return nil, tooLong(op, "max_sge", attr.MaxSGE, dev.MaxSRQSGE)
	}
	srq := &SRQ{pd: pd, up: parents{&pd.life}}
	if attr.TD != nil {
		if attr.TD.ctx != pd.ctx {
			return nil, invalid(op, "thread domain of another context")
		}
		srq.up = append(srq.up, &attr.TD.life)
	}
	if err := srq.up.adopt(op); err != nil {
		return nil, err
	}
	p, err := pd.ctx.p.CreateSRQ(srq, attr)
	if err != nil {
		srq.up.release()
		return nil, err
	}
	srq.p = p
	return srq, nil
}

// PD is the protection domain of the queue.
func (s *SRQ) PD() *PD { return s.pd }

// Number is the SRQN: 24 bits.
func (s *SRQ) Number() uint32 { return s.p.Number() }

// PostRecv posts receives in order. n is how many were posted; err is why wr[n]
// was not: ErrNoResource (bare) when the queue is full, ErrInvalidParam for too
// many SGEs. The memory belongs to the device until the receive completes.
func (s *SRQ) PostRecv(wr []RecvWR) (n int, err error) { return s.p.PostRecv(wr) }

// Modify sets the attributes in mask. SRQMaskMaxWR is ErrUnsupported: queues do
// not resize.
func (s *SRQ) Modify(attr SRQAttr, mask SRQAttrMask) error {
	if mask&^(SRQMaskMaxWR|SRQMaskLimit) != 0 {
		return invalid("modify SRQ", "unknown attributes %#x", mask)
	}
	return s.p.Modify(attr, mask)
}

// Query returns the attributes.
func (s *SRQ) Query() (SRQAttr, error) { return s.p.Query() }

// Provider returns the provider's half.
func (s *SRQ) Provider() SRQProvider { return s.p }

// Close destroys the queue; receives that are posted get no completion. ErrBusy
// while QPs use it. Idempotent.
func (s *SRQ) Close() error {
	return s.life.close("close SRQ", func() error {
		if err := s.p.Close(); err != nil {
			return err
		}
		s.up.release()
		return nil
	})
}
