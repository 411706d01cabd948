// Package ucpgroup implements message passing between n processes or goroutines, as in MPI: they are ranks from 0 to n-1,
// messages are matched by communicator, source and tag, and there are collective operations. The package uses the tagged
// messages of package ucp.
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
// A tag of package ucp has 64 bits: 31 are the tag of the user (0 to [MaxTag]), 20 the rank of the source in the world
// ([MaxRanks]), and 12 the communicator ([MaxComms]); one bit is set in messages of collective operations. The worker of a
// rank accepts tagged messages only from the workers of the
// group, and from each of them only with its own rank as the source (ucp.Worker.RestrictTags). So a worker with a
// group cannot receive other tagged messages.
//
// Messages between two ranks of a communicator are ordered. A receive gets the first sent message that matches it, and a
// message goes to the first posted receive that matches it. An unexpected message is stored, within the limits of package
// ucp ("Messages" in its documentation). So a rank must wait if its receiver has not posted receives for many of its
// messages.
//
// # Requests
//
// Isend, Irecv and the other operations with names that begin with I return at once. Wait and Test complete and
// release their [Request]; a nil Request means that a send is complete already. All operations make
// progress in every call of the group that waits or tests, and in [Group.Progress], so the caller may wait for operations in
// any order.
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
// ranks. If an operation fails on one rank, is abandoned because ctx is done, or is rejected because of a parameter
// (ErrInvalidParam), the group fails on all ranks, because the other ranks would wait for this one.
//
// # Errors
//
// After a rank has closed its group or its worker, operations that wait for a message of that rank, and sends to
// it, fail with a [RankError] that wraps ErrPeerClosed. If the process of a rank
// dies or becomes unreachable, the group ends: every operation on all ranks fails with a [RankError] that
// has the rank and wraps the reason, because ranks that detect the failure notify the others. [Group.Abort] makes the group
// fail in the same way. After a failure the program can only call [Group.Close].
//
// The transport determines when the death of a process is detected: sm, tcp and rc over the software HCA detect it at once;
// with an adapter it is detected by the next message or keepalive to the process (ucp.Config.KeepaliveInterval). A rank also
// counts as dead if it makes no progress for ucp.Config.WireupTimeout (a minute) while another rank sends its first message
// to it. If ranks compute for longer than that, let them connect before, by a barrier.
//
// # Allocations
//
// Send, Recv, Isend, Irecv and their requests allocate nothing once pools have grown, nor does
// Barrier. A communicator stores the schedule of a completed collective operation, with up to 1 MiB of scratch memory, for its
// next one.
//
// # Goroutines
//
// A group belongs to the goroutine that owns its worker, with its communicators and requests.
package ucpgroup
