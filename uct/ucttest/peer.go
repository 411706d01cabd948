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

// Control kills, stops and resumes the process of a [Peer].
type Control interface {
	Kill() error     // kills the process; it runs no clean-up
	Stop() error     // returns when no thread of the process runs
	Continue() error // resumes the process
	Wait() error     // waits until the process has exited
}

// Peer is the remote side of a connection, in another process or goroutine. It has an iface, an EP and memory, calls
// Progress in a loop, and executes requests.
type Peer struct {
	Control
	requests io.WriteCloser
	enc      *json.Encoder
	replies  chan reply
	once     sync.Once
}

// NewPeer returns a Peer that sends requests to a [ServePeer] over one stream and receives its replies over the other.
// The Peer owns both streams and closes them.
func NewPeer(requests io.WriteCloser, replies io.ReadCloser, c Control) *Peer {
	p := &Peer{Control: c, requests: requests, enc: json.NewEncoder(requests), replies: make(chan reply, 1)}
	go p.receive(replies)
	return p
}

// receive returns when the peer closes its stream or is dead.
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

// Close ends the requests, waits until the peer has exited and returns its error. Later calls return nil.
func (p *Peer) Close() error {
	var err error
	p.once.Do(func() {
		err = errors.Join(p.requests.Close(), p.Wait())
		for range p.replies {
		}
	})
	return err
}

// PeerMain runs [ServePeer] and exits if [ExecPeer] started this process; otherwise it returns. TestMain must call it
// first. harnesses maps the names of ExecPeer to harnesses.
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

// ExecPeer returns a Harness.StartPeer that runs this test binary as a child process. TestMain must call [PeerMain] with
// a harness of that name.
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
