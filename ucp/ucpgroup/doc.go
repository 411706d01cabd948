// Package ucpgroup is message passing between n processes or goroutines, as in
// MPI: ranks from 0 to n-1, messages that are matched by communicator, source
// and tag, and collective operations. It uses the tagged messages of package ucp.
//
//	group, err := ucpgroup.New(ctx, worker, bootstrap)
//	world := group.World()
//	if world.Rank() == 0 {
//		err = world.Send(ctx, 1, tag, data)
//	} else {
//		st, err := world.Recv(ctx, ucpgroup.AnySource, tag, buf)
//	}
//	err = ucpgroup.Allreduce(ctx, world, nil, numbers, ucpgroup.Sum[float64])
//
// # Bootstrap
//
// A [Bootstrap] exchanges the addresses of the ranks' workers: [InProcess] for goroutines; package
// ucp/ucpgroup/pmi for processes that mpiexec, srun or a program of yours has started.
// [Connect] uses addresses that the caller has exchanged, and neither blocks nor sends
// anything.
//
// # Messages
//
// Of the 64 bits of a tag in package ucp the user of a communicator has 31 (0 to [MaxTag]); 20
// are the source's rank in the world ([MaxRanks]), 12 the communicator ([MaxComms]), and one is set in
// messages of collective operations. The worker of a rank accepts tagged messages only from the workers of the
// group, and from each of them only with its own rank as the source (ucp.Worker.RestrictTags). So a worker with a
// group cannot receive other tagged messages.
//
// Messages between two ranks of a communicator are ordered. Among the messages that match a receive, it gets the
// one that was sent first; among the receives that match a message, it goes to the one that was posted
// first. An unexpected message is stored, within the limits of
// package ucp ("Messages" there). So a rank that sends far more than its receiver has posted
// receives for must wait.
//
// # Requests
//
// Isend, Irecv and the other operations with names that begin with I return at once. Wait and Test complete and
// release their [Request]; a nil Request means that a send is complete already. All operations make
// progress in every call of the group that waits or tests, and in [Group.Progress], so an earlier
// operation never blocks one that the caller waits for.
//
// Isend, Irecv, Test, Iprobe, Progress and the calls that begin collective operations do not block,
// start no goroutine and read no clock, unless the group has failed. So a simulator can run many ranks, each with
// its own time, on one goroutine.
//
// # Collective operations
//
// Every rank of the communicator must call them, in the same order, with lengths that agree. If lengths
// differ, a rank that receives a message of an unexpected length ends the group; if ranks choose different
// algorithms for different lengths, they may wait for each other until ctx is done. Several operations
// may be in flight, also of different types; messages of the user never match theirs. A call returns
// when this rank's part is complete and its buffers belong to the caller again; only Barrier waits for all
// ranks. If an operation fails on one rank, is abandoned because ctx is done, or is rejected there
// for a parameter (ErrInvalidParam), the others would wait for it: it ends the group.
//
// # Errors
//
// After a rank has closed its group or its worker, operations that wait for a message of that rank, and sends to
// it, fail with a [RankError] that wraps ErrPeerClosed. If the process of a rank
// dies or becomes unreachable, the group ends: every operation on all ranks fails with a [RankError] that
// has the rank and wraps the reason, because ranks that detect the failure notify the others. [Group.Abort] ends the
// group in the same way. After that only [Group.Close] is useful.
//
// Who notices the end of a process depends on the transport: sm, tcp and rc over the software HCA
// notice it when it happens, an adapter when something is sent to the process or it is asked
// whether it lives (ucp.Config.KeepaliveInterval). A rank that makes
// no progress for ucp.Config.WireupTimeout (a minute) while another one sends its first message
// to it counts as dead, too: have ranks that compute for longer connect first, by a barrier.
//
// # Allocations
//
// Send, Recv, Isend, Irecv and their requests allocate nothing once pools have grown, nor does
// Barrier. Collective operations keep their schedules, and up to 1 MiB of scratch memory, for
// the next one of the communicator.
//
// # Goroutines
//
// A group belongs to the goroutine that owns its worker, with its communicators and requests.
package ucpgroup
