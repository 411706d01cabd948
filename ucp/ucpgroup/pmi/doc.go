// Package pmi lets the ranks of package ucpgroup find each other by the process manager that has
// started them: Hydra's mpiexec, Slurm's srun, or a [Job] of this package. It speaks version 1.1
// of the wire protocol of PMI (Balaji and others, "PMI: A Scalable Parallel Process-Management
// Interface for Extreme-Scale Systems", 2010), as Hydra's proxies do: lines of text over the
// descriptor that PMI_FD names. Supported process managers:
//
//	mpiexec -n 4 program             MPICH, and MPI libraries that are derived from it
//	srun --mpi=pmi2 -n 4 program     Slurm: its plugin pmi2 also accepts clients of version 1.1
//	                                 (tested with Slurm 22.05)
//
//	boot, err := pmi.FromEnv()
//	group, err := ucpgroup.New(ctx, worker, boot)
//
// [Job] is the other side, for a program that starts ranks on this host itself.
package pmi
