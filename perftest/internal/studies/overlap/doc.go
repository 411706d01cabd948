// Package overlap measures how much of a processor a message leaves to the program:
// application availability and overhead, as the Sandia micro-benchmarks define host
// processor overhead. An iteration posts, works and waits:
//
//	base        time of an iteration without work
//	work        time of the work alone
//	iteration   time with work, which grows from try to try until this is half as much again as base
//	overhead    iteration - work
//	availability  1 - overhead / base
//
// The other side says that it is ready before each message, so that no receive comes late;
// that is part of an iteration. The measured side sends, or it receives; or it sends and
// the other side works as long between its post and its wait, as the ranks of a program do.
package overlap
