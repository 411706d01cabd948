package verbs

// Resources counts what a context has allocated: the currency of the study of
// scalable endpoints (Zambre, Chandramowlishwaran, Balaji 2018).
type Resources struct {
	Contexts           int
	PDs, MRs, AHs, TDs int
	CQs, SRQs, QPs     int // an XRC target counts once, whatever stands for it
	Targets            int // of QPs: XRC targets, which have no queues
	XRCDs              int
	// UARPages are mapped, with two micro-UARs each. A micro-UAR is used when at
	// least one QP or thread domain has it, and wasted otherwise.
	UARPages, UUARs, UUARsUsed, UUARsWasted int
	Bytes                                   ResourceBytes
}

// ResourceBytes is the memory of all objects of a kind: their queues, what the
// library and the provider keep of them, and what the device does if it lives in this
// process. What hardware and the kernel keep is not in it, nor are stacks.
type ResourceBytes struct {
	// Contexts includes the pages that doorbell records are in.
	Contexts, PDs, MRs, AHs, TDs int64
	CQs, SRQs, QPs, XRCDs        int64
	UARs                         int64 // address space, on hardware
	// Kept was freed and is not used again yet, as a peer is in the middle of an access
	// to it. It is not in Total.
	Kept int64
	// Reserved is address space of which pages are taken when they are needed, and
	// counted above then. It is not in Total.
	Reserved int64
}

// Total is the sum.
func (b ResourceBytes) Total() int64 {
	return b.Contexts + b.PDs + b.MRs + b.AHs + b.TDs + b.CQs + b.SRQs + b.QPs + b.XRCDs + b.UARs
}

// Add adds the resources of another context.
func (r *Resources) Add(o Resources) {
	r.Contexts += o.Contexts
	r.PDs += o.PDs
	r.MRs += o.MRs
	r.AHs += o.AHs
	r.TDs += o.TDs
	r.CQs += o.CQs
	r.SRQs += o.SRQs
	r.QPs += o.QPs
	r.Targets += o.Targets
	r.XRCDs += o.XRCDs
	r.UARPages += o.UARPages
	r.UUARs += o.UUARs
	r.UUARsUsed += o.UUARsUsed
	r.UUARsWasted += o.UUARsWasted
	r.Bytes.Add(o.Bytes)
}

// Add adds the memory of other objects.
func (b *ResourceBytes) Add(o ResourceBytes) {
	b.Contexts += o.Contexts
	b.PDs += o.PDs
	b.MRs += o.MRs
	b.AHs += o.AHs
	b.TDs += o.TDs
	b.CQs += o.CQs
	b.SRQs += o.SRQs
	b.QPs += o.QPs
	b.XRCDs += o.XRCDs
	b.UARs += o.UARs
	b.Kept += o.Kept
	b.Reserved += o.Reserved
}

// ResourceCounter is implemented by providers that count.
type ResourceCounter interface {
	Resources() Resources
}

// Resources returns what the context has allocated, at any time and from any
// goroutine; false if its provider does not count.
func (c *Context) Resources() (Resources, bool) {
	rc, ok := c.p.(ResourceCounter)
	if !ok {
		return Resources{}, false
	}
	return rc.Resources(), true
}

// Register is where a QP rings its doorbell, and which locks it takes on the way.
type Register struct {
	UARPage   uint32 // number of the page in its context
	UUAR      uint32 // 0 or 1: the micro-UAR of the page
	BlueFlame bool   // short work requests may be copied to it
	// RegisterLock is taken for the store to the register, because QPs share it;
	// QueueLock for the whole of a post.
	RegisterLock, QueueLock bool
}

// SendCounts is what has been posted to a QP since it was made.
type SendCounts struct {
	WQEs       uint64
	Doorbells  uint64 // rung, by BlueFlame or not
	BlueFlames uint64 // of them with the work request in the register
}

// DoorbellReporter is implemented by QPProviders that ring doorbells in micro-UARs.
type DoorbellReporter interface {
	Register() Register
	// SendCounts is called by the goroutine that posts, or when none does.
	SendCounts() SendCounts
}

// Register says where the QP rings its doorbell; false if its provider has no
// such registers.
func (qp *QP) Register() (Register, bool) {
	r, ok := qp.p.(DoorbellReporter)
	if !ok {
		return Register{}, false
	}
	return r.Register(), true
}

// SendCounts tells what has been posted; false if the provider does not count. Call
// it from the goroutine that posts, or when none does.
func (qp *QP) SendCounts() (SendCounts, bool) {
	r, ok := qp.p.(DoorbellReporter)
	if !ok {
		return SendCounts{}, false
	}
	return r.SendCounts(), true
}
