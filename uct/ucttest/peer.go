package ucttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

// peerEnv names the harness that a child process serves.
const peerEnv = "GUCX_UCTTEST_PEER"

// File descriptors of the child, after the standard three.
const (
	peerRequestFD = 3
	peerReplyFD   = 4
)

// Control is the power over the process that a [Peer] lives in.
type Control interface {
	Kill() error     // ends it at once, without any clean-up of its own
	Stop() error     // suspends it: nothing of it runs
	Continue() error // resumes it
	Wait() error     // waits until it has ended
}

// Peer is the far end of a connection, somewhere else. It has an iface, an EP and
// memory, progresses all the time, and does what it is asked.
type Peer struct {
	Control
	requests io.WriteCloser
	enc      *json.Encoder
	replies  chan reply
	once     sync.Once
}

// NewPeer makes a Peer that is driven over two streams, at the other end of which
// [ServePeer] runs. The Peer closes them.
func NewPeer(requests io.WriteCloser, replies io.ReadCloser, c Control) *Peer {
	p := &Peer{Control: c, requests: requests, enc: json.NewEncoder(requests), replies: make(chan reply, 1)}
	go p.receive(replies)
	return p
}

// receive ends when the peer closes its stream, at the latest when it is dead.
func (p *Peer) receive(r io.ReadCloser) {
	defer close(p.replies)
	defer r.Close()
	dec := json.NewDecoder(r)
	for {
		var m reply
		if dec.Decode(&m) != nil {
			return
		}
		p.replies <- m
	}
}

// Close lets the peer end and waits for it. Idempotent.
func (p *Peer) Close() error {
	var err error
	p.once.Do(func() {
		err = errors.Join(p.requests.Close(), p.Wait())
		for range p.replies {
		}
	})
	return err
}

// PeerMain turns the process into a peer, and does not return, if it was started
// by [ExecPeer] with one of the given names. Call it first in TestMain.
func PeerMain(harnesses map[string]Harness) {
	name := os.Getenv(peerEnv)
	if name == "" {
		return
	}
	h, ok := harnesses[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "ucttest: no harness %q\n", name)
		os.Exit(2)
	}
	requests, replies := os.NewFile(peerRequestFD, "requests"), os.NewFile(peerReplyFD, "replies")
	if err := ServePeer(h, requests, replies); err != nil {
		fmt.Fprintf(os.Stderr, "ucttest: peer %q: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ExecPeer returns a Harness.StartPeer that runs this test binary again; its
// TestMain must call [PeerMain] with the name.
func ExecPeer(name string) func() (*Peer, error) {
	return func() (*Peer, error) { return startProcess(name) }
}

func startProcess(name string) (*Peer, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	childIn, requests, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer childIn.Close()
	replies, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, requests.Close())
	}
	defer childOut.Close()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), peerEnv+"="+name)
	cmd.ExtraFiles = []*os.File{childIn, childOut}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, requests.Close(), replies.Close())
	}
	return NewPeer(requests, replies, &process{cmd: cmd}), nil
}

// process is a child process.
type process struct {
	cmd    *exec.Cmd
	killed bool
}

func (c *process) Kill() error {
	c.killed = true
	return c.cmd.Process.Kill()
}

// Stop returns when all threads are stopped. After the signal a thread may still run until the kernel has
// stopped it.
func (c *process) Stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return unix.Waitid(unix.P_PID, c.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
}

func (c *process) Continue() error { return c.cmd.Process.Signal(syscall.SIGCONT) }

func (c *process) Wait() error {
	late := time.AfterFunc(testenv.Watchdog, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	err := c.cmd.Wait()
	if c.killed {
		return nil
	}
	return err
}
