// Package dgemm multiplies matrices that lie on a server, A*B=C, as the study of scalable
// endpoints does (Zambre, Chandramowlishwaran, Balaji 2018): threads get tiles of A and
// B, multiply them, and put tiles of C. Each thread has three buffers with an MR each,
// posts one work request at a time and asks for a completion of each.
package dgemm
