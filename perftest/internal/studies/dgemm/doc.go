// Package dgemm multiplies matrices that lie on a server, A*B=C, as the study of scalable
// endpoints does (Zambre, Chandramowlishwaran, Balaji 2018, with the benchmark that its
// authors have published as rzambre/ga-verbs). The matrices are stored by rows, so a tile is
// a message for each of its rows. A thread gets a tile of A and one of B, waits for both,
// multiplies them, and puts the tile of C, as far as its sum has come, and waits for that.
// It has three buffers with an MR each, posts one work request in a call, asks for a
// completion of each, and polls when its QP is full or when it waits.
package dgemm
