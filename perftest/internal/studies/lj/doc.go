// Package lj computes the motion of Lennard-Jones atoms, as LAMMPS' melt and its benchmark in.lj do: atoms
// of a crystal that melts, in a periodic box that is cut into a domain for each rank. Ranks send the positions of
// atoms near their faces to their neighbors in each step; when an atom has moved far enough, atoms migrate to the
// ranks in whose domains they are and lists of neighbors are made anew.
//
// Quantities are in reduced units: ε = σ = m = k = 1. A position is a fraction of the edge of the box in 64 bits,
// so that differences of positions are exact and find the nearest image by themselves, and forces are added up as
// integers. So the bits of a result do not depend on the number of ranks nor on the order of neighbors. (Anton
// computes with such numbers for the same reason: Shaw et al., ISCA 2007.)
package lj
