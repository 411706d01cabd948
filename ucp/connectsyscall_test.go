package ucp_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

func init() {
	roles.Register("faulty", faultyRole)
	roles.Register("faultyhost", faultyHostRole)
}

// connectCalls are system calls of a connection setup, with errors that they return.
var connectCalls = []struct {
	name   string
	number uint32
	errno  unix.Errno
}{
	{"socket", unix.SYS_SOCKET, unix.EMFILE},
	{"connect", unix.SYS_CONNECT, unix.EACCES},
	{"accept4", unix.SYS_ACCEPT4, unix.EMFILE},
	{"sendmsg", unix.SYS_SENDMSG, unix.ENOBUFS},
	{"recvmsg", unix.SYS_RECVMSG, unix.ENOMEM},
	{"setsockopt", unix.SYS_SETSOCKOPT, unix.ENOMEM},
	{"getsockopt", unix.SYS_GETSOCKOPT, unix.ENOBUFS},
	{"memfd_create", unix.SYS_MEMFD_CREATE, unix.EMFILE},
	{"ftruncate", unix.SYS_FTRUNCATE, unix.ENOMEM},
	{"eventfd2", unix.SYS_EVENTFD2, unix.EMFILE},
	{"epoll_ctl", unix.SYS_EPOLL_CTL, unix.ENOMEM},
	{"pipe2", unix.SYS_PIPE2, unix.EMFILE},
	{"process_vm_readv", unix.SYS_PROCESS_VM_READV, unix.EPERM},
	{"mmap of shared memory", unix.SYS_MMAP, unix.ENOMEM}, // the runtime needs other calls of mmap
}

// forbidCall makes connectCalls[index] fail in all threads of this process from now on.
func forbidCall(index string) (unix.Errno, error) {
	i, err := strconv.Atoi(index)
	if err != nil {
		return 0, err
	}
	c := connectCalls[i]
	action := testenv.SyscallErrno | uint32(c.errno)
	if c.number == unix.SYS_MMAP {
		return c.errno, testenv.ForbidSharedMappings(action, unix.SECCOMP_FILTER_FLAG_TSYNC)
	}
	return c.errno, testenv.ForbidSyscalls(action, unix.SECCOMP_FILTER_FLAG_TSYNC, c.number)
}

// openFaulty opens a worker whose connections take at most the given time.
func openFaulty(c *roles.Side, wireup string) (*ucp.Worker, error) {
	limit, err := time.ParseDuration(wireup)
	if err != nil {
		return nil, err
	}
	ctx, err := ucppair.OpenContextWith(ucp.Config{WireupTimeout: limit}, c.Args[0])
	if err != nil {
		return nil, err
	}
	return ctx.NewWorker(ucp.WorkerConfig{})
}

// faultyRole opens a worker, makes a system call fail from then on, dials and puts. It prints "done", "errno" if the
// error is that of the call, "timeout", or another error. Its arguments are transports, the connect timeout, the index
// of the call, network and address.
func faultyRole(c *roles.Side) error {
	w, err := openFaulty(c, c.Args[1])
	if err != nil {
		return err
	}
	errno, err := forbidCall(c.Args[2])
	if err != nil {
		return err
	}
	c.Printf("%s", dialOutcome(dialAndPut(w, c.Args[3], c.Args[4]), errno))
	c.NextLine()
	return w.Close()
}

// faultyHostRole listens, makes a system call fail from then on, and serves.
func faultyHostRole(c *roles.Side) error {
	w, err := openFaulty(c, c.Args[1])
	if err != nil {
		return err
	}
	l, err := w.Listen(context.Background(), c.Args[3], c.Args[4], ucp.ListenConfig{})
	if err != nil {
		return err
	}
	if _, err := forbidCall(c.Args[2]); err != nil {
		return err
	}
	c.Printf("%s", l.Addr())
	return c.UntilParentEnds(func(ctx context.Context) error { return w.Until(ctx, func() bool { return false }) })
}

func dialOutcome(err error, errno unix.Errno) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, errno):
		return "errno"
	case errors.Is(err, ucs.ErrTimedOut):
		return "timeout"
	default:
		return err.Error()
	}
}

// dialAndPut puts 64 KiB into the memory that the listener publishes as "all", if there is any.
func dialAndPut(w *ucp.Worker, network, address string) error {
	ctx, stop := context.WithTimeout(context.Background(), testenv.Watchdog)
	defer stop()
	p, err := w.Dial(ctx, network, address, ucp.DialConfig{})
	if err != nil {
		return err
	}
	if key := p.Keys["all"]; key != nil {
		if err := p.EP.PutWait(ctx, make([]byte, 64<<10), key.Addr(), key, nil); err != nil {
			return fmt.Errorf("put: %w", err)
		}
		if err := p.EP.FlushWait(ctx); err != nil {
			return fmt.Errorf("flush: %w", err)
		}
	}
	return p.EP.CloseWait(ctx, ucp.CloseFlush)
}

// faultyCases are transports and the index of the network.
var faultyCases = []struct {
	tls     string
	network int
	silent  string // the call that fails without an error: Dial times out
}{
	{tls: "sm,tcp", network: 0},
	{tls: "tcp", network: 1},
	{tls: "sm", network: 2, silent: "accept4"},
}

// TestDial_SyscallFails: if one system call fails from then on, in all threads, Dial succeeds without it or returns the
// errno. If a transport cannot accept the connection of the peer, Dial times out. The listener frees the resources of
// that peer and serves others.
func TestDial_SyscallFails(t *testing.T) {
	testenv.SkipShort(t, "processes, and 7 s until a dead path times out")
	testenv.SkipRace(t, "processes")
	for _, tc := range faultyCases {
		n := networks[tc.network]
		t.Run(tc.tls+"/"+n.name, func(t *testing.T) {
			p := ucppair.New(t, tlsets.Real(tc.tls), ucppair.FromEnv(t, "TLS="+tc.tls))
			l := listen(t, &p.B, n.network, n.address(t), ucp.ListenConfig{Keys: map[string]*ucp.Mem{"all": p.B.Mem}})
			failed := false
			for i, call := range connectCalls {
				wireup, want := time.Minute, []string{"done", "errno"}
				if call.name == tc.silent {
					wireup, want = time.Second, []string{"timeout"}
				}
				c := roles.New(t, "faulty", tc.tls, wireup, i, n.network, l.Addr())
				said := linesOf(p, c, 1)
				require.Len(t, said, 1, call.name)
				assert.Contains(t, want, said[0], call.name)
				failed = failed || said[0] == "errno"
				require.NoError(t, c.In.Close())
				assert.NoError(t, c.Cmd.Wait(), call.name)
				p.Until(func() bool { return p.B.W.EPs().Len() == 0 })
			}
			assert.True(t, failed, "no call makes Dial fail")
			c := roles.New(t, "dial", tc.tls, n.network, l.Addr(), "close")
			require.Equal(t, []string{"connected"}, linesOf(p, c, 1), "a later peer")
			c.Kill(t)
		})
	}
}

// TestListen_SyscallFails: if one system call of the listener fails, a dialer connects without it or gets an error. It
// does not hang, and can dial other listeners. A listener that cannot accept is like one that is stopped: the context
// of Dial limits the wait.
func TestListen_SyscallFails(t *testing.T) {
	testenv.SkipShort(t, "processes, and half a second for each timeout")
	testenv.SkipRace(t, "processes")
	const wireup = 500 * time.Millisecond
	for _, tc := range faultyCases {
		n := networks[tc.network]
		t.Run(tc.tls+"/"+n.name, func(t *testing.T) {
			cfg := ucppair.FromEnv(t, "TLS="+tc.tls)
			cfg.WireupTimeout = wireup
			p := ucppair.New(t, tlsets.Real(tc.tls), cfg)
			failed := false
			for i, call := range connectCalls {
				if call.name == "accept4" {
					continue
				}
				c := roles.New(t, "faultyhost", tc.tls, wireup, i, n.network, n.address(t))
				where := linesOf(p, c, 1)
				require.Len(t, where, 1, call.name)
				err := dialAndPut(p.A.W, n.network, where[0])
				assert.NotErrorIs(t, err, context.DeadlineExceeded, call.name)
				failed = failed || err != nil
				c.Kill(t)
				p.Until(func() bool { return p.A.W.EPs().Len() == 0 })
			}
			assert.True(t, failed, "no call makes Dial fail")
			p.A.W.Context().Configuration().WireupTimeout = time.Minute // a busy machine may take long to connect
			l := listen(t, &p.B, n.network, n.address(t), ucp.ListenConfig{})
			_, err := dialTo(p, l, ucp.DialConfig{})
			require.NoError(t, err, "another listener afterwards")
		})
	}
}
