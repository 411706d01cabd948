// Package ucprpc has requests and replies over the active messages of package ucp.
//
//	var cfg ucprpc.ServerConfig
//	cfg.Handlers.Handle(echo, ucprpc.HandlerConfig{}, func(c *ucprpc.Call) error {
//		c.Reply = append(c.Reply, c.Data...)
//		return nil
//	})
//	s, err := ucprpc.Listen(ctx, context, "tcp", "10.0.0.1:7000", cfg)
//
//	cl, err := ucprpc.Dial(ctx, context, "tcp", "10.0.0.1:7000", ucprpc.ClientConfig{})
//	reply, err := cl.Call(ctx, echo, request, buf)
//
// Requests and replies may have any length up to Limits. If buf has room for the reply, this package allocates nothing for a
// call and its handler. A request contains its deadline: the context of a handler ends when its caller stops waiting.
//
// # Goroutines
//
// Any goroutine may use clients, peers and memory. A goroutine that waits makes progress for all others, if no other goroutine
// does. So a single caller needs no switch between goroutines. While a client has no callers, a goroutine of the client makes
// progress; it sleeps until something arrives.
//
// A handler runs in a goroutine, or, if it is quick, inline in the goroutine that makes progress: see HandlerConfig. A
// handler that needs another process need not wait for it: it starts a call by Peer.Start or a put by Memory.StartPut,
// and returns ErrPending. The callback of that operation calls Call.Finish. So a service of several processes needs
// no switch between goroutines. A handler that panics ends the process.
//
// # Limits
//
// A server limits the requests in progress and their bytes, for each peer and for each worker, and rejects further
// requests with CodeBusy. Replies that a peer does not receive count against the limit of that peer only. A peer that
// sends malformed messages is disconnected. Server.Stats counts all of these.
//
// # Failures
//
// A Client whose connection has failed connects again, with exponential, randomized pauses. It sends requests that were
// not sent over the next connection. Requests that may have run fail with CodeLost, unless their Method is idempotent.
// During Server.Shutdown clients connect to another server, and no call fails.
//
// # Security
//
// As for Listen and Dial of package ucp: without TLS or a token, any process that reaches the address may call.
package ucprpc
