// Package sp is the SP benchmark of the NAS Parallel Benchmarks, written from their
// specification (Bailey et al., RNR-94-007, and NAS-95-020): the compressible Navier-Stokes
// equations on a cube, implicit in time, with an approximate factorization into sweeps along x,
// y and z, each of which solves scalar systems with five diagonals. Forces make a polynomial
// the steady state; a run ends with norms that are published for each class, to be met within
// [Epsilon].
//
//	class.go     sizes and published norms          exact.go     exact solution, initial values
//	medium.go    the gas, its derived state         stencil.go   fourth differences at boundaries
//	cell.go      the points of a cell               residual.go  right-hand sides
//	eigen.go     eigenvectors                       sweep.go     lines with five diagonals
//	layout.go    cells of ranks                     face.go      what messages have of a cell
//	driver.go    the time step of a rank            work.go      what it is made of
//	norm.go      the result                         run.go       all steps of a rank
//	group.go     messages over ucp/ucpgroup         study.go     runs over protocols of UCP
//	program.go   the message pattern                cost.go      what computation takes
//
// # Ranks
//
// The grid is shared out as in the multipartition scheme (Bruno and Cappello 1988; NAS-95-020):
// q*q ranks cut it into q*q*q cells, and each has q of them on a diagonal. A rank exchanges two planes
// of all its cells with six neighbors at the begin of a step. In a sweep each rank has one cell in each
// of q stages; it posts the receive of what comes from the stage before, assembles its rows while
// that is under way, waits, eliminates, and sends what the next cell needs. Back substitution does the
// same in the other direction, with the change to the next eigenvectors between post and wait.
// Ranks talk over a [Comm]; [Over] is the one over package ucpgroup, with all messages of a rank in
// registered memory.
//
// # The message pattern
//
// [Program] is what a rank does in a time step, as a list of [Event]: work of a kind and an amount,
// receives and sends with peer, tag and bytes, and waits for all that was posted. It
// comes from the same driver that computes. A model of a machine turns work into time with
// [Costs], those of [ClassA] or from [Measure], and repeats the list Class.Steps times; all steps
// are alike, so that a few of them tell the time of one:
//
//	costs := sp.ClassA
//	events, _ := sp.Program(classC, 64, rank)
//	for range classC.Steps {
//		for _, e := range events {
//			switch e.Kind {
//			case sp.Compute:  // the rank's clock goes on by costs.Time(e), without progress
//			case sp.PostRecv: // irecv of e.Bytes from e.Peer, with tag e.Tag
//			case sp.PostSend: // isend of e.Bytes to e.Peer, with tag e.Tag
//			case sp.Wait:     // progress until all that was posted is complete
//			}
//		}
//	}
package sp
