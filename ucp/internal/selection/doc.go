// Package selection chooses the pairs of a local and a remote resource over which two workers connect. [Rank]
// scores every pair for one [wireup.Role], from the numbers in the addresses of both workers and from nothing else, so that
// both sides choose the same pairs. [Choices] explains it. The package is pure: it does no I/O and has no state.
package selection
