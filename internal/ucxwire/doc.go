// Package ucxwire encodes and decodes the bytes that UCX's UCP exchanges with its peers over a
// transport with active messages: worker addresses, wireup messages, private data of the socket
// connection manager, remote keys, and the headers of all protocols.
//
// The layouts are those of UCX 1.13 to 1.23, whose integers are little-endian. [Releases] has in
// what these differ, and which of them were tried; docs/ucx.md says what works with each.
//
// Everything that is decoded may come from an untrusted peer. A decoder checks lengths and counts,
// and returns views: byte slices of what it returns are parts of its argument. It reports false, or
// an error that is [ErrMalformed], for bytes that are no such message. It does not check what only
// the caller knows: endpoint and request ids, addresses of memory, offsets.
//
// Append functions extend b with the encoding. Decoding what they append returns the same value.
// Nothing here blocks, and headers of messages are encoded and decoded without allocation.
package ucxwire

import "encoding/binary"

var le = binary.LittleEndian
