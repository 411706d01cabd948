// Package kvstore is a replicated key-value store in the memory of one or two servers.
//
//	s, err := kvstore.Listen(ctx, c, kvstore.Config{Address: "10.0.0.1:7000"})
//
//	cl, err := kvstore.Dial(ctx, c, kvstore.ClientConfig{Addresses: []string{"10.0.0.1:7000"}})
//	err = cl.Put(ctx, "colour", []byte("blue"))
//	value, err := cl.Get(ctx, "colour", buf)
//
// # What it shows
//
// A lookup is a get from the table of the server, whose program takes no part: see table.go. The client notices by a
// checksum that the server was writing the slot, and by a counter that the server has moved keys. It reads again, and
// calls the server after some attempts. Updates are calls.
//
// # What a real store would need
//
// Limits of memory by user, a table that grows, values of any length, and updates that clients can repeat: one whose
// connection fails before the reply returns ErrUnknown, as it may have run. Without TLS or a token of ucp any process
// that reaches the address may read and write everything.
package kvstore
