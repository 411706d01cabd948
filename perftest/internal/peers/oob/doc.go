// Package oob is the out-of-band channel between the two processes of a
// measurement: they agree on what to open, swap addresses and check memory by it.
// Nothing that is measured passes through it.
//
// It runs over any stream connection: a socket pair to a child process, or TCP.
// One side sends a Request and waits for the Reply. A message is a frame:
//
//	0       4     5     6       8        12
//	| magic | ver | kind | zero  | length | JSON payload of length bytes
//
// All numbers are big endian. A frame with another magic, version or kind, with a
// nonzero reserved field or with a length over MaxPayload is refused before its
// payload is read; so is a payload with unknown or missing fields.
package oob
