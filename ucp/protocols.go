package ucp

// protocols are the protocols of every worker. When an EP closes or fails, it calls them in this order. The order determines
// the order in which its operations complete: see TestEndOrder.
var protocols = []*protocol{
	&trafficProtocol, &transferProtocol, &rmaProtocol, &connectProtocol, &streamProtocol, &tupleProtocol,
	&messageProtocol, &tagProtocol, &rndvProtocol, &activeProtocol, &sharedProtocol, &inspectProtocol, &spanProtocol,
}

// NewWorker opens the transports that the context's configuration selects.
// It blocks. The caller must close the worker before the context. ErrBusy, with advice in its text, if the device of a
// transport permits one worker only and another one uses it; see "Threads" in the package
// documentation.
func (c *Context) NewWorker(cfg WorkerConfig) (*Worker, error) { return c.newWorker(cfg, protocols) }
