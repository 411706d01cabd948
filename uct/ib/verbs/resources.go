package verbs

// Resources counts the resources that a context has allocated, as in the study of
// scalable endpoints (Zambre, Chandramowlishwaran, Balaji 2018).
type Resources struct {
	Contexts           int
	PDs, MRs, AHs, TDs int
	CQs, SRQs, QPs     int // an XRC target counts once, however many QPs refer to it
	Targets            int // XRC targets, which have no queues; QPs includes them
	XRCDs              int
	// UARPages is the number of mapped UAR pages, with two micro-UARs each. A micro-UAR
	// is used if at least one QP or thread domain is assigned to it, and wasted otherwise.
	UARPages, UUARs, UUARsUsed, UUARsWasted int
	Bytes                                   ResourceBytes
}

// ResourceBytes is the memory in bytes of all objects of each type: their queues, their
// state in this library and in the provider, and in the device if it is a software device
// in this process. It does not include memory of hardware and the kernel, nor stacks.
type ResourceBytes struct {
	// Contexts includes the pages of doorbell records.
	Contexts, PDs, MRs, AHs, TDs int64
	CQs, SRQs, QPs, XRCDs        int64
	UARs                         int64 // on hardware, address space
	// Kept is freed memory that cannot be reused yet, because a peer is accessing it.
	// Total does not include it.
	Kept int64
	// Reserved is address space whose pages are allocated on demand; the fields above
	// count allocated pages. Total does not include it.
	Reserved int64
}

// Total returns the sum in bytes, without Kept and Reserved.
func (b ResourceBytes) Total() int64 {
	return b.Contexts + b.PDs + b.MRs + b.AHs + b.TDs + b.CQs + b.SRQs + b.QPs + b.XRCDs + b.UARs
}

// Add adds o, the resources of another context, to r.
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

// Add adds o, the memory of other objects, to b.
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

// ResourceCounter is implemented by providers that count resources.
type ResourceCounter interface {
	Resources() Resources
}

// Resources returns the resources that the context has allocated; false if its provider
// does not count them. Several goroutines may call it at any time.
func (c *Context) Resources() (Resources, bool) {
	rc, ok := c.p.(ResourceCounter)
	if !ok {
		return Resources{}, false
	}
	return rc.Resources(), true
}

// Register is the micro-UAR in which a QP rings its doorbell, and the locks of a post.
type Register struct {
	UARPage   uint32 // number of the page in its context
	UUAR      uint32 // 0 or 1: the micro-UAR of the page
	BlueFlame bool   // posts may copy small work requests to the micro-UAR
	// RegisterLock means that a post locks the micro-UAR during the store to it, because
	// QPs share it. QueueLock means that a post locks the QP.
	RegisterLock, QueueLock bool
}

// SendCounts counts the posts to a QP since its creation.
type SendCounts struct {
	WQEs       uint64
	Doorbells  uint64 // doorbells, with or without BlueFlame
	BlueFlames uint64 // doorbells that copied the work request to the micro-UAR
}

// DoorbellReporter is implemented by QPProviders that ring doorbells in micro-UARs.
type DoorbellReporter interface {
	Register() Register
	// SendCounts returns the counts. It must not be called concurrently with a post.
	SendCounts() SendCounts
}

// Register returns the micro-UAR in which the QP rings its doorbell; false if its
// provider has no micro-UARs.
func (qp *QP) Register() (Register, bool) {
	r, ok := qp.p.(DoorbellReporter)
	if !ok {
		return Register{}, false
	}
	return r.Register(), true
}

// SendCounts returns the counts of posts; false if the provider does not count them. The
// caller must not post during the call.
func (qp *QP) SendCounts() (SendCounts, bool) {
	r, ok := qp.p.(DoorbellReporter)
	if !ok {
		return SendCounts{}, false
	}
	return r.SendCounts(), true
}
