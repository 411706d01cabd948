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

// grace is the time that ranks have after the failure of one rank to detect the failure, print the reason and exit. It takes
// milliseconds, or seconds on an overloaded machine. Then the job kills them.
const grace = 10 * time.Second

// firstFD is the descriptor of the first of exec.Cmd.ExtraFiles in the child.
const firstFD = 3

// Job is n ranks that are processes of this host. This process is their process manager. Any goroutine may call its
// methods.
type Job struct {
	cmds   []*exec.Cmd
	failed chan struct{} // closed when a rank has failed
	ended  chan struct{} // closed when all ranks and the server have ended
	once   sync.Once
	err    error // result of the job

	mu     sync.Mutex
	killed bool    // Kill was called
	errs   []error // by rank: the failure of a process that the job has not killed
	first  error   // the first of errs in time
	byKill error   // the failure of a process that Kill has killed
}

// Start starts a process for each rank, with the command that command returns. It adds variables and a descriptor to
// the command. The process must call [FromEnv]. Errors are those of exec.Cmd.Start; after an error
// no process is running.
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

// startRank starts a process with one end of a connection, and returns the other end.
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

// undo kills the started ranks after another one could not be started.
func (j *Job) undo(conns []net.Conn) {
	for i, cmd := range j.cmds {
		_ = conns[i].Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error is that the process was killed
	}
}

// run serves the ranks, and waits for their processes.
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
	if errServe != nil { // also if a rank exits with status 0 and has not closed its client
		j.fail()
	}
	wait.Wait()
	j.err = j.reason(errServe)
	close(j.ended)
}

// note stores the failure of a process. A process that Kill has killed is not the reason if another one has failed by
// itself, even if that is detected later.
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

// isKilled reports whether a process was killed by the signal of Kill.
func isKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// fail records that the job has failed.
func (j *Job) fail() { j.once.Do(func() { close(j.failed) }) }

// hasFailed reports whether the job has failed.
func (j *Job) hasFailed() bool {
	select {
	case <-j.failed:
		return true
	default:
		return false
	}
}

// reason returns the reason of the failure after all ranks have ended; nil if the job has succeeded. The rank that
// failed first may cause the failures of the others. A rank that is notified of a failure may exit before
// this process detects that failure.
func (j *Job) reason(errServe error) error {
	var gone *ucpgroup.RankError
	if errors.As(errServe, &gone) && j.errs[gone.Rank] != nil {
		return j.errs[gone.Rank]
	}
	return cmp.Or(j.first, errServe, j.byKill)
}

// Size returns the number of ranks.
func (j *Job) Size() int { return len(j.cmds) }

// PID returns the process id of a rank.
func (j *Job) PID(rank int) int { return j.cmds[rank].Process.Pid }

// Signal sends a signal to the process of a rank: os.ErrProcessDone if that has ended. Any goroutine
// may call it.
func (j *Job) Signal(rank int, s os.Signal) error { return j.cmds[rank].Process.Signal(s) }

// Kill kills all ranks. Any goroutine may call it.
func (j *Job) Kill() {
	j.mu.Lock()
	j.killed = true
	j.mu.Unlock()
	for _, cmd := range j.cmds {
		_ = cmd.Process.Kill() // it may have ended
	}
}

// Wait returns when all ranks have ended: nil if they have succeeded, otherwise a
// [ucpgroup.RankError] of the first that has failed. After a failure the other ranks have 10 s to exit by
// themselves; then Wait kills them. If ctx is done, it kills them immediately, and returns the error of ctx unless
// a rank has failed before. Any goroutine may call it.
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
