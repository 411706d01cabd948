// Package ucxwire encodes and decodes the bytes that UCX's UCP exchanges with its peers over a
// transport with active messages: worker addresses, wireup messages, private data of the socket
// connection manager, remote keys, and the headers of all protocols.
//
// The layouts are those of UCX 1.13 to 1.23, with little-endian integers. [Releases] lists the
// differences, and the releases that were tested; docs/ucx.md describes the limits of each.
//
// The input of a decoder may be from an untrusted peer. A decoder checks lengths and counts.
// The byte slices in its result are parts of its argument. For malformed bytes it returns false, or
// an error that matches [ErrMalformed]. It does not check values that only
// the caller can check: endpoint and request ids, addresses of memory, offsets.
//
// Append functions append the encoding to b. Decoding returns the same value.
// No function blocks, and headers of messages are encoded and decoded without allocation.
package ucxwire

import "encoding/binary"

var le = binary.LittleEndian
