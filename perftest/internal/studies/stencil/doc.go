// Package stencil is a 5-point stencil on a grid that ranks share, as in the study of scalable
// endpoints (Zambre, Chandramowlishwaran, Balaji 2018, with the benchmark that its authors
// have published as rzambre/2d-stencil-verbs). There are two nodes with as many ranks, in a
// ring; each rank has a band of rows and the same number of threads, which divide its
// columns. A thread has two QPs, one to the thread with its columns in the rank above and
// one below, and a CQ; in each iteration it puts its part of the rank's first and last row
// into buffers of those threads, waits for both, then for the other threads of the rank and
// for what its two neighbors put. The study cuts its grid the other way, into columns, so that the
// points of a halo are not side by side and each is a message of its own; here how many go
// into a message is a parameter.
//
// Ranks are contexts of one process, or processes.
package stencil
