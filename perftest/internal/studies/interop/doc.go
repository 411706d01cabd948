// Package interop measures messages between UCX and gucx, and within each, over UCX's tcp transport: two processes on
// loopback, of which either may be the program with UCX that testdata/side.c is.
//
// Both programs speak the same protocol, so that all pairs are measured alike, by the clock of the initiator. Commands come
// on stdin and results go to stdout, a line each. A result begins with "ok", or with "failed:" and the reason.
//
//	(at the start)              ok NAME VERSION
//	address                     ok ADDRESS         of its worker, in hexadecimal
//	memory BYTES WIDTH          ok RADDR KEY       of the memory that the other side puts into and gets from
//	connect ADDRESS             ok                 to the other side
//	key RADDR KEY               ok                 of the other side's memory
//	prepare TEST BYTES          ok                 fills what leaves and clears what arrives
//	serve TEST BYTES COUNT WIDTH   ok              when the run of the other side has ended
//	run TEST BYTES COUNT WIDTH  ok NANOSECONDS
//	check TEST BYTES            ok                 the bytes that arrived are right
//
// COUNT is the number of operations, WIDTH of how many may be in flight. A program exits at the end of stdin.
package interop
