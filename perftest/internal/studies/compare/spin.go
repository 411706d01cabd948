package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/perftest/internal/measure/affinity"
)

// Spinners are idle-class processes, one for each CPU: if a virtual CPU halts, the host may move it
// when it wakes up.

// spinName is the hidden command of a spinner.
const spinName = "spin"

// newSpin returns the command that a spinner runs.
func newSpin() *cobra.Command {
	return &cobra.Command{
		Use:    spinName + " CPU",
		Short:  "Keep a CPU from halting until standard input ends; started by compare-ucx",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cpu, err := strconv.Atoi(args[0])
			if err != nil {
				return err
			}
			go exitAtEOF(cmd.InOrStdin())
			return spin(cpu)
		},
	}
}

// exitAtEOF ends the process with its parent, which owns the other end of the pipe.
func exitAtEOF(r io.Reader) {
	_, _ = io.Copy(io.Discard, r) // also after an error
	os.Exit(0)
}

// spin returns only if it cannot start.
func spin(cpu int) error {
	undo, err := affinity.Thread(cpu)
	if err != nil {
		return err
	}
	defer undo()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return os.NewSyscallError("sched_setattr", err)
	}
	for {
		mmio.Pause()
	}
}

// startSpinners starts one spinner on each CPU. stop ends them.
func startSpinners(ctx context.Context, self string, command []string, cpus []int) (stop func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var running []*process
	stop = func() {
		cancel(errors.New("stopped"))
		for _, p := range running {
			_ = p.wait(ctx) // it was killed
		}
	}
	for _, cpu := range cpus {
		p := newProcess(ctx, self, append(append([]string{}, command...), spinName, strconv.Itoa(cpu))...)
		p.cmd.Cancel = func() error { return p.cmd.Process.Kill() } // it reads nothing
		if _, err := p.cmd.StdinPipe(); err != nil {
			stop()
			return nil, err
		}
		if err := p.start(ctx); err != nil {
			stop()
			return nil, fmt.Errorf("idle spinner: %w", err)
		}
		running = append(running, p)
	}
	return stop, nil
}
