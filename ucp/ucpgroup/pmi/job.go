package pmi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucp/ucpgroup"
	"github.com/gucx/gucx/ucs"
)

// grace is how long ranks may go on when one has failed: so that they end with the reason, which
// takes them milliseconds, or seconds where many compete for processors. They are killed then.
const grace = 10 * time.Second

// firstFD is the descriptor of the first of exec.Cmd.ExtraFiles in the child.
const firstFD = 3

// Job is n ranks that are processes of this host, with a process manager of their own: this
// process.
type Job struct {
	cmds   []*exec.Cmd
	failed chan struct{} // closed when a rank has failed
	ended  chan struct{} // closed when all have ended, and the server has
	once   sync.Once
	err    error // of the job

	mu     sync.Mutex
	killed bool    // Kill was called
	errs   []error // by rank: how a process has ended badly by itself
	first  error   // of these
	byKill error   // how one has ended that Kill has ended
}

// Start starts a process for each rank, by the command that command returns, whose environment
// and descriptors it adds to. The process calls [FromEnv]. Errors are those of exec.Cmd.Start; then
// nothing is left running.
func Start(n int, command func(rank int) *exec.Cmd) (*Job, error) {
	if n < 1 || n > ucpgroup.MaxRanks {
		return nil, fmt.Errorf("pmi: job of %d ranks: %w", n, ucs.ErrInvalidParam)
	}
	j := &Job{failed: make(chan struct{}), ended: make(chan struct{})}
	var conns []net.Conn
	for rank := range n {
		conn, cmd, err := startRank(rank, n, command(rank))
		if err != nil {
			j.undo(conns)
			return nil, fmt.Errorf("pmi: start rank %d: %w", rank, err)
		}
		conns, j.cmds = append(conns, conn), append(j.cmds, cmd)
	}
	go j.run(NewServer(conns))
	return j, nil
}

// startRank starts a process with an end of a connection, and returns the other.
func startRank(rank, n int, cmd *exec.Cmd) (net.Conn, *exec.Cmd, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "pmi")
	defer theirs.Close()
	conn, err := connOf(fds[0])
	if err != nil {
		return nil, nil, err
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	fd := firstFD + len(cmd.ExtraFiles) - 1
	cmd.Env = append(cmd.Env, envFD+"="+strconv.Itoa(fd), envRank+"="+strconv.Itoa(rank), envSize+"="+strconv.Itoa(n))
	if err := cmd.Start(); err != nil {
		return nil, nil, ucs.Join(err, conn.Close())
	}
	return conn, cmd, nil
}

// undo ends the ranks that were started when another one could not be.
func (j *Job) undo(conns []net.Conn) {
	for i, cmd := range j.cmds {
		_ = conns[i].Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it says that it was killed
	}
}

// run serves the ranks, and collects them.
func (j *Job) run(s *Server) {
	j.errs = make([]error, len(j.cmds))
	var wait sync.WaitGroup
	for rank, cmd := range j.cmds {
		wait.Go(func() {
			if err := cmd.Wait(); err != nil {
				j.note(rank, err)
				j.fail()
			}
		})
	}
	errServe := s.Serve()
	if errServe != nil { // also that of a rank that ends well without having closed its client
		j.fail()
	}
	wait.Wait()
	j.err = j.reason(errServe)
	close(j.ended)
}

// note keeps how a process has ended badly. What Kill has ended is no reason beside what has ended
// by itself, however late that is seen.
func (j *Job) note(rank int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := &ucpgroup.RankError{Rank: rank, Err: err}
	if j.killed && isKilled(err) {
		j.byKill = at
		return
	}
	if j.errs[rank] = at; j.first == nil {
		j.first = at
	}
}

// isKilled reports whether a process was ended as Kill does.
func isKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// fail says that the job has failed.
func (j *Job) fail() { j.once.Do(func() { close(j.failed) }) }

// hasFailed reports whether the job has failed by now.
func (j *Job) hasFailed() bool {
	select {
	case <-j.failed:
		return true
	default:
		return false
	}
}

// reason is why the job has failed, when all have ended; nil if it has not. A rank that was gone
// first may have the others end badly, and one that is told of another's end may be gone before
// that other's end is seen here.
func (j *Job) reason(errServe error) error {
	var gone *ucpgroup.RankError
	if errors.As(errServe, &gone) && j.errs[gone.Rank] != nil {
		return j.errs[gone.Rank]
	}
	return cmp.Or(j.first, errServe, j.byKill)
}

// Size is how many ranks there are.
func (j *Job) Size() int { return len(j.cmds) }

// PID is the process of a rank.
func (j *Job) PID(rank int) int { return j.cmds[rank].Process.Pid }

// Signal sends a signal to the process of a rank: os.ErrProcessDone if that has ended. Any goroutine
// may call it.
func (j *Job) Signal(rank int, s os.Signal) error { return j.cmds[rank].Process.Signal(s) }

// Kill ends all ranks. Any goroutine may call it.
func (j *Job) Kill() {
	j.mu.Lock()
	j.killed = true
	j.mu.Unlock()
	for _, cmd := range j.cmds {
		_ = cmd.Process.Kill() // it may have ended
	}
}

// Wait returns when all ranks have ended: with nil if they ended well, otherwise with a
// [ucpgroup.RankError] of the first that did not. The others then have 10 seconds to end by
// themselves; they are killed after that, and at once when ctx ends. The error is that of ctx if it
// ends before a rank has failed. Any goroutine may call it.
func (j *Job) Wait(ctx context.Context) error {
	select {
	case <-j.ended:
		return j.err
	case <-ctx.Done():
		if !j.hasFailed() {
			j.Kill()
			<-j.ended
			return ctx.Err()
		}
	case <-j.failed:
	}
	last := time.NewTimer(grace)
	defer last.Stop()
	select {
	case <-j.ended:
	case <-ctx.Done():
	case <-last.C:
	}
	j.Kill()
	<-j.ended
	return j.err
}
