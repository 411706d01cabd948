// Package ranks measures the waits of ranks: messages between two of them and around all of them,
// and the collective operations, by size. Each rank runs the same study; rows cover all ranks.
package ranks
