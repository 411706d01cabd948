// Package kernel times computations of ranks over several transports, which take turns, and checks
// that the result is the same over each and on a single rank, bit for bit. Packages su3 and lj are such
// computations.
//
// Results do not depend on the number of ranks because a [Sum] is exact: a kernel adds all that ranks
// add up as Sums.
package kernel
