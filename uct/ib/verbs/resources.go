package verbs

// Resources counts what a context has allocated: the currency of the study of
// scalable endpoints (Zambre, Chandramowlishwaran, Balaji 2018).
type Resources struct {
	PDs, MRs, AHs, TDs int
	CQs, SRQs, QPs     int
	// UARPages are mapped, with two micro-UARs each. A micro-UAR is used when at
	// least one QP or thread domain has it, and wasted otherwise.
	UARPages, UUARs, UUARsUsed, UUARsWasted int
	// QueueBytes is the memory of queues, doorbell records and UAR pages.
	QueueBytes int64
}

// Add adds the resources of another context.
func (r *Resources) Add(o Resources) {
	r.PDs += o.PDs
	r.MRs += o.MRs
	r.AHs += o.AHs
	r.TDs += o.TDs
	r.CQs += o.CQs
	r.SRQs += o.SRQs
	r.QPs += o.QPs
	r.UARPages += o.UARPages
	r.UUARs += o.UUARs
	r.UUARsUsed += o.UUARsUsed
	r.UUARsWasted += o.UUARsWasted
	r.QueueBytes += o.QueueBytes
}

// ResourceCounter is implemented by providers that count.
type ResourceCounter interface {
	Resources() Resources
}

// Resources returns what the context has allocated; false if its provider does
// not count.
func (c *Context) Resources() (Resources, bool) {
	rc, ok := c.p.(ResourceCounter)
	if !ok {
		return Resources{}, false
	}
	return rc.Resources(), true
}
