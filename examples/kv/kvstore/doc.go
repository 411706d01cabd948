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
// A lookup is an RDMA get from the table of the server, without the server's CPU: see table.go. A checksum detects that
// the server was writing the slot, and a counter that the server has moved keys. The client then reads again, and calls
// the server after several attempts. The checksum has 32 bits: about one in 4 billion lookups during a write returns a
// wrong value. A client may read only while it knows that the server is alive: see [Config.Lease]. If a client has not
// read for half a lease, it calls the server for its next lookup.
//
// Updates are calls. With a second server, the primary acknowledges an update when both servers have it: the primary
// writes the update to a log in the memory of the backup, which applies the log later: see log.go. No goroutine waits for
// that: see commit.go. If one server exits, the other one continues. A server that starts copies the table before it
// serves: see replica.go. Clients reconnect automatically.
//
// [Client.Watch] reports changes by one-way messages.
//
// # What a real store would need
//
//   - A third party that selects the primary. Here a server that has no connection to the other one waits until it knows
//     that the other one has exited. So no update is lost, but the failure of a host stops the store. The evidence is a
//     refused connection (a firewall must not refuse connections in place of the host), a missing socket path, or a reply
//     of a later start of the other server.
//   - Disks. The table is lost if both servers exit, or if the primary exits while the other server is not in sync.
//   - Updates that a client can retry. An update whose connection fails before the reply returns ErrUnknown, because the
//     server may have executed it. If the client numbered its updates, the server could detect a retry.
//   - A table that grows, values of any length, and several tables, each with a lock and a worker.
//   - Limits for each user, and TLS or a token of ucp: without them, any process that can connect to the address can read
//     and write the table, and act as a replica.
package kvstore
