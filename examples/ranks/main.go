// Command ranks computes how heat spreads in a rod whose cells are divided among ranks. In each step,
// each rank exchanges its outer cells with its neighbors. A collective operation detects when
// the temperatures no longer change.
//
//	go run ./examples/ranks            four processes, which it starts itself
//	mpiexec -n 8 ranks                 ranks of a process manager
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"
	"os/signal"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpgroup"
	"github.com/gucx/gucx/ucp/ucpgroup/pmi"
)

const (
	processes = 4
	cells     = 30 // number of cells of the rod
	left      = 100.0
	right     = 0.0
	settled   = 1e-4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	boot, err := pmi.FromEnv()
	if errors.Is(err, pmi.ErrAbsent) {
		check(start(ctx))
		return
	}
	check(err)
	check(run(ctx, boot, func(line string) { fmt.Println(line) }))
	check(boot.Close())
}

// start runs this program as several processes, and waits for them.
func start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	job, err := pmi.Start(processes, func(int) *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd
	})
	if err != nil {
		return err
	}
	return job.Wait(ctx)
}

// run is one rank. Rank 0 prints the result.
func run(ctx context.Context, boot ucpgroup.Bootstrap, say func(string)) (err error) {
	c, err := gucx.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	group, err := ucpgroup.New(ctx, w, boot)
	if err != nil {
		return err
	}
	mean, steps, err := spread(ctx, group.World())
	if err != nil {
		group.Abort(err) // the others do not wait for this rank
	}
	if err == nil && group.World().Rank() == 0 {
		say(fmt.Sprintf("%d ranks: %.2f degrees on average after %d steps", boot.Size(), mean, steps))
	}
	return errors.Join(err, group.Close(ctx))
}

// spread computes steps until the temperatures no longer change, and returns the mean temperature.
func spread(ctx context.Context, c *ucpgroup.Comm) (mean float64, steps int, err error) {
	n, me := c.Size(), c.Rank()
	mine := cells*(me+1)/n - cells*me/n
	rod, next := make([]float64, mine+2), make([]float64, mine+2) // including one cell of each neighbor
	if me == 0 {
		rod[0], next[0] = left, left
	}
	if me == n-1 {
		rod[mine+1], next[mine+1] = right, right
	}
	for change := math.Inf(1); change > settled; steps++ {
		if err := exchange(ctx, c, rod); err != nil {
			return 0, 0, err
		}
		most := []float64{0}
		for i := 1; i <= mine; i++ {
			next[i] = (rod[i-1] + rod[i+1]) / 2
			most[0] = max(most[0], math.Abs(next[i]-rod[i]))
		}
		copy(rod[1:mine+1], next[1:mine+1])
		if err := ucpgroup.Allreduce(ctx, c, nil, most, ucpgroup.Max[float64]); err != nil {
			return 0, 0, err
		}
		change = most[0]
	}
	sum := []float64{0}
	for _, degrees := range rod[1 : mine+1] {
		sum[0] += degrees
	}
	err = ucpgroup.Allreduce(ctx, c, nil, sum, ucpgroup.Sum[float64])
	return sum[0] / cells, steps, err
}

// exchange sends the outer cells to the neighbors and receives theirs.
func exchange(ctx context.Context, c *ucpgroup.Comm, rod []float64) error {
	const tag = 1
	last := len(rod) - 1
	var reqs []*ucpgroup.Request
	for _, side := range []struct{ rank, mine, theirs int }{{c.Rank() - 1, 1, 0}, {c.Rank() + 1, last - 1, last}} {
		if side.rank < 0 || side.rank == c.Size() {
			continue
		}
		in, err := c.Irecv(side.rank, tag, ucpgroup.Bytes(rod[side.theirs:][:1]), nil)
		if err != nil {
			return err
		}
		out, err := c.Isend(side.rank, tag, ucpgroup.Bytes(rod[side.mine:][:1]), nil)
		if err != nil {
			return err
		}
		reqs = append(reqs, in, out)
	}
	return ucpgroup.WaitAll(ctx, reqs...)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
