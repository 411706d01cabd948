package ucp

// protocols are those of every worker. An EP that ends calls them in this order, which decides in which order
// its operations end: see TestEndOrder.
var protocols = []*protocol{
	&trafficProtocol, &transferProtocol, &rmaProtocol, &connectProtocol, &streamProtocol, &tupleProtocol,
	&messageProtocol, &tagProtocol, &rndvProtocol, &activeProtocol, &sharedProtocol, &inspectProtocol, &spanProtocol,
}

// NewWorker opens the transports that the context's configuration selects.
// Blocking. Close it before the context. ErrBusy, with what to do instead, if a transport
// gives its device to one worker and another one has it; see "Threads" in the package
// documentation.
func (c *Context) NewWorker(cfg WorkerConfig) (*Worker, error) { return c.newWorker(cfg, protocols) }
