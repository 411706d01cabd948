// Package dgemm multiplies matrices that are stored on a server, A*B=C, as the study of scalable
// endpoints does (Zambre, Chandramowlishwaran, Balaji 2018, with the benchmark that its authors
// have published as rzambre/ga-verbs). The matrices are stored by rows, so a tile needs a message
// for each of its rows. A thread gets a tile of A and one of B, waits for both, and multiplies
// them. It puts the tile of C when its sum is complete, and waits for that. It has three buffers
// with an MR each, posts one work request per call, all signaled, and polls when its QP is full or
// when it waits.
package dgemm
