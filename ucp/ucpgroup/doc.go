// Package ucpgroup gives n processes, or goroutines, that work together what message-passing
// middleware gives them: ranks from 0 to n-1, messages that are matched by communicator, source
// and tag, and collective operations. It stands on the tagged messages of package ucp.
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
// # Finding each other
//
// A [Bootstrap] swaps the addresses of the ranks' workers: [InProcess] for goroutines; package
// ucp/ucpgroup/pmi for processes that mpiexec, srun or a program of yours has started.
// [Connect] takes addresses that were swapped in another way, and neither blocks nor sends
// anything.
//
// # Messages
//
// Of the 64 bits of a tag in package ucp the user of a communicator has 31 (0 to [MaxTag]); 20
// are the source's rank in the world ([MaxRanks]), 12 the communicator ([MaxComms]), and one is set in
// messages of collective operations. The worker of a rank accepts tagged messages from the workers of the
// group only, and each of them in the name of its own rank only (ucp.Worker.RestrictTags): a worker with a
// group is the group's in this respect.
//
// Messages between two ranks of a communicator keep their order. A receive gets the message that
// was sent first among those that it matches; a message goes to the receive that was posted first
// among those that match it. A message that comes before its receive is kept, within the limits of
// package ucp ("Messages" there). So a rank that sends far more than its receiver has posted
// receives for has to wait, and a receiver must not wait for a message that is behind many others
// that it does not receive.
//
// # Requests
//
// Isend, Irecv and the operations whose names begin with I return at once. Their [Request] is
// tested, waited for and given back; a nil one says that a send has ended already. Operations make
// progress in every call of the group that waits or tests, and in [Group.Progress]; so one that
// was begun earlier never holds up one that is waited for.
//
// Isend, Irecv, Test, Iprobe, Progress and the beginnings of collective operations do not block,
// start no goroutine and look at no clock, unless the group has failed: ranks may be step
// functions of a program that gives each a time of its own, on one goroutine.
//
// # Collective operations
//
// Every rank of the communicator calls them, in the same order, with lengths that agree. Where they
// do not, a rank that gets a message of another length than it expects ends the group; lengths that
// lead ranks to different algorithms may leave them waiting for each other, until ctx ends. Several
// may be under way, also of different kinds; messages of the user never match theirs. They return
// when this rank's part is over and its buffers are its own again; only Barrier says that the
// others have come that far. One that fails on a rank, is given up as ctx ends, or is refused there
// for a parameter (ErrInvalidParam), would leave the others waiting: it ends the group.
//
// # Errors
//
// A rank that closes its group or its worker has left: what waits for a message of that rank ends
// with a [RankError] that wraps ErrPeerClosed, and so do sends to it. A rank whose process
// dies, or is not reached any more, ends the group: every operation ends with a [RankError] that
// names it and wraps the reason, on all ranks, as those that notice tell the others. So does a
// rank that cannot go on and says so by [Group.Abort]. What is then left is [Group.Close].
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
