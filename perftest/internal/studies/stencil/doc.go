// Package stencil is a 5-point stencil on a grid that ranks share, as in the study of scalable
// endpoints (Zambre, Chandramowlishwaran, Balaji 2018, with the benchmark that its authors have
// published as rzambre/2d-stencil-verbs). There are two nodes with an equal number of ranks, in a
// ring. Each rank has a band of rows and the same number of threads, which divide its columns. A
// thread has two QPs and a CQ: one QP to the thread with the same columns in the rank above, one to
// that in the rank below. In each iteration it puts its part of the rank's first and last row into
// buffers of these threads and waits for both puts. Then it waits for the other threads of the rank
// and for the puts of its two neighbors. The study divides its grid into columns, so that the
// points of a halo are not contiguous and each is a message of its own; here the number of points
// of a message is a parameter.
//
// Ranks are contexts of one process, or processes.
package stencil
