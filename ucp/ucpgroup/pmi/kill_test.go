package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpgroup"
	"github.com/gucx/gucx/ucs"
)

// TestJob_RankKilled: one rank of several is killed during messages and collective operations. The others fail with its
// rank in the error, and leak nothing.
func TestJob_RankKilled(t *testing.T) {
	for _, tls := range []string{"sm", "tcp", `\rc`} {
		for _, work := range []string{"storm", "idle", "barrier", "wildcard"} {
			killRanks(t, work, "GUCX_TLS="+tls)
		}
	}
	for _, work := range []string{"storm", "barrier", "wildcard"} {
		killRanks(t, work, "GUCX_TLS=xrc", "GUCX_TAG_PROTO=tupleq")
	}
}

// killRanks is a test of ranks with an environment.
func killRanks(t *testing.T, work string, env ...string) {
	t.Run(strings.Join(env, ",")+"/"+work, func(t *testing.T) {
		for range testenv.Rounds(1, 50) {
			killOne(t, work, env)
		}
	})
}

// killOne starts ranks, kills one when all are working, and checks the errors of the others.
func killOne(t *testing.T, work string, env []string) {
	const n = 4
	outs, theirs := make([]*bufio.Reader, n), make([]*os.File, n)
	j, err := Start(n, func(rank int) *exec.Cmd {
		out, in, err := os.Pipe()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, out.Close()) })
		outs[rank], theirs[rank] = bufio.NewReader(out), in
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(append(os.Environ(), roleVar+"="+work, "GUCX_LOG_LEVEL=error", "GORACE=atexit_sleep_ms=0"), env...)
		cmd.Stdout, cmd.Stderr = in, os.Stderr
		return cmd
	})
	require.NoError(t, err)
	for _, in := range theirs {
		require.NoError(t, in.Close())
	}
	victim := 1 + rand.IntN(n-1)
	for rank, out := range outs {
		lines := 1
		if rank == victim && work == "storm" {
			lines += rand.IntN(20)
		}
		for range lines {
			line, err := out.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "ready\n", line)
		}
	}
	require.NoError(t, unix.Kill(j.PID(victim), unix.SIGKILL))
	for rank, out := range outs {
		rest, err := io.ReadAll(out)
		require.NoError(t, err)
		if rank != victim {
			assert.Contains(t, string(rest), fmt.Sprintf("rank %d: ", victim), "%s on rank %d", work, rank)
			assert.Contains(t, string(rest), "left nothing", "on rank %d", rank)
		}
	}
	require.EqualError(t, j.Wait(t.Context()), fmt.Sprintf("rank %d: signal: killed", victim))
}

// workers are the work of ranks until one of them is killed. They return its error.
var workers = map[string]func(ctx context.Context, c *ucpgroup.Comm) error{
	"storm": storm,
	"barrier": func(ctx context.Context, c *ucpgroup.Comm) error {
		fmt.Println("ready")
		for {
			if err := c.Barrier(ctx); err != nil {
				return err
			}
		}
	},
	// Rank 0 waits for the others, and each of them for rank 0: nothing is sent.
	"idle": func(ctx context.Context, c *ucpgroup.Comm) error {
		fmt.Println("ready")
		var reqs []*ucpgroup.Request
		for q := range c.Size() {
			if q != c.Rank() && (c.Rank() == 0 || q == 0) {
				r, err := c.Irecv(q, 1, make([]byte, 8), nil)
				if err != nil {
					return err
				}
				reqs = append(reqs, r)
			}
		}
		_, _, err := ucpgroup.WaitAny(ctx, reqs...)
		return err
	},
	"wildcard": func(ctx context.Context, c *ucpgroup.Comm) error {
		fmt.Println("ready")
		_, err := c.Recv(ctx, ucpgroup.AnySource, ucpgroup.AnyTag, make([]byte, 8))
		return err
	},
}

// storm makes each rank send to each other one, with all lengths, with collective operations in between.
func storm(ctx context.Context, c *ucpgroup.Comm) error {
	sizes := []int{0, 8, 900, 7000, 50_000, 300_000}
	for round := 0; ; round++ {
		if round > 0 {
			fmt.Println("ready")
		}
		var reqs []*ucpgroup.Request
		for q := range c.Size() {
			for _, size := range sizes {
				in, err := c.Irecv(q, size, make([]byte, size), nil)
				if err != nil {
					return err
				}
				out, err := c.Isend(q, size, make([]byte, size), nil)
				if err != nil {
					return err
				}
				reqs = append(reqs, in, out)
			}
		}
		if err := ucpgroup.WaitAll(ctx, reqs...); err != nil {
			return err
		}
		sum := make([]float64, 1000*(round%3))
		if err := ucpgroup.Allreduce(ctx, c, nil, sum, ucpgroup.Sum[float64]); err != nil {
			return err
		}
	}
}

// playWorker is a rank that works until another one is killed, and prints its error.
func playWorker(work func(context.Context, *ucpgroup.Comm) error) int {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Watchdog)
	defer cancel()
	owner, err := gucx.Open()
	if err != nil {
		return fault(err)
	}
	w, err := owner.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return fault(err)
	}
	boot, err := FromEnv()
	if err != nil {
		return fault(err)
	}
	defer func() { _ = boot.Close() }() // the process manager has closed the connection
	g, err := ucpgroup.New(ctx, w, boot)
	if err != nil {
		return fault(err)
	}
	if err := g.World().Barrier(ctx); err != nil { // all are connected
		return fault(err)
	}
	err = work(ctx, g.World())
	var gone *ucpgroup.RankError
	if !errors.As(err, &gone) || !errors.Is(err, ucs.ErrConnReset) {
		return fault(err)
	}
	fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
	_ = g.Close(ctx) // the same error
	if err := errors.Join(w.Close(), owner.Close()); err != nil {
		return fault(err)
	}
	fmt.Println("left nothing")
	return 0
}

func fault(err error) int {
	fmt.Fprintln(os.Stderr, "rank:", err)
	return 30
}
