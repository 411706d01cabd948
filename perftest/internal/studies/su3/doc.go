// Package su3 solves the equations of staggered quarks on a lattice of SU(3) matrices, as MILC's
// su3_rmd does: conjugate gradients with messages to eight neighbors in each product and two sums over
// all ranks in an iteration. Unlike MILC it has all sites in one vector, not the even ones.
//
// With a link matrix U_μ(x) from each site x to its neighbor in each of four directions μ and the signs
// η_μ(x) = (-1)^(x_0 + ... + x_(μ-1)),
//
//	(D χ)(x) = 1/2 Σ_μ η_μ(x) [U_μ(x) χ(x+μ) - U_μ(x-μ)† χ(x-μ)]
//
// and the kernel solves (m² - D²) x = b, again and again with another b. Without fields, with unit matrices, the
// plane waves are eigenvectors, with m² + Σ_μ sin² p_μ, which a test checks.
//
// A site's sum has its terms in one order wherever its neighbors are, and sums over sites are exact
// ([kernel.Sum]), so the bits of a result do not depend on the number of ranks.
package su3
