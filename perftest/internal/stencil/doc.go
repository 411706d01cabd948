// Package stencil is a 5-point stencil on a grid that ranks share by rows, as in the study
// of scalable endpoints (Zambre, Chandramowlishwaran, Balaji 2018). There are two nodes with
// as many ranks, in a line; each rank has the same number of threads, which
// divide its columns. A thread has two QPs, one to the thread with its columns in the rank
// above and one below, and a CQ; in each iteration it puts its part of the rank's
// first and last row into buffers of those threads, waits for both, and then for all.
//
// Ranks are contexts of one process: what ranks share in a process they do not share here
// either.
package stencil
