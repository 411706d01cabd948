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
// calls the server after some attempts. The checksum has 32 bits: one of some 4 billion lookups that meet a write takes a
// mixture for a value. A client reads only while it knows that the server is alive: see [Config.Lease]. A client that
// reads less often than once in half a lease calls the server for the first lookup after a pause.
//
// Updates are calls. With a second server they are acknowledged when both have them: the primary writes them into a log in
// the memory of the backup, which applies it later: see log.go. No goroutine waits for that: see commit.go. When one of
// the servers ends the other one continues, and one that starts gets all before it serves: see replica.go. Clients connect
// again by themselves.
//
// [Client.Watch] reports changes by one-way messages.
//
// # What a real store would need
//
//   - A third party that decides which server is the primary. Here a server that does not hear of the other one, but
//     does not know either that it has ended, waits: no update is lost, but a host that fails stops the store. It
//     knows that from a refused connection, which a firewall must not fake, from a path of a socket that does not
//     exist, or from a later start of the other one that replies.
//   - Disks. If both servers end, or one of them while the other one is not in sync, the table is lost.
//   - Updates that a client can repeat. One whose connection fails before the reply returns ErrUnknown, as it may have
//     run; a number of the client for each update would let the server recognize a repetition.
//   - A table that grows, values of any length, and several tables, each with a lock and a worker.
//   - Limits for each user, and TLS or a token of ucp: without, any process that reaches the address may read and write
//     everything, and pretend to be a replica.
package kvstore
