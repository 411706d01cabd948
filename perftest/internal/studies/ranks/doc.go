// Package ranks measures what ranks wait for: messages between two of them and around all of
// them, and the collective operations, by size. Each rank runs the same study; rows are those of
// all.
package ranks
