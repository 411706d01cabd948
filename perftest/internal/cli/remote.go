package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/measure/affinity"
	"github.com/gucx/gucx/perftest/internal/peers/launch"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
	"github.com/gucx/gucx/perftest/internal/peers/session"
	"github.com/gucx/gucx/perftest/internal/peers/target"
	"github.com/gucx/gucx/uct"
)

const (
	// defaultPort is the port of ucx_perftest.
	defaultPort = 13337
	defaultHost = "127.0.0.1"

	peerName = "peer"

	// serverPatience limits the wait for a reply of a server, which may be busy with another client, or on a dead host.
	serverPatience = time.Minute
	// serverDelay is longer than an idle server takes to reply.
	serverDelay = time.Second
)

// newPeer makes the hidden command of a child process.
func (p Program) newPeer() *cobra.Command {
	cpu := -1
	cmd := &cobra.Command{
		Use:    peerName,
		Short:  "Run as the target of the process that started this one",
		Hidden: true,
		Args:   usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.config()
			if err != nil {
				return err
			}
			conn, err := launch.Accept()
			if err != nil {
				return err
			}
			if cpu >= 0 {
				measureBeforePinning()
				if err := affinity.Process([]int{cpu}); err != nil {
					return errors.Join(err, conn.Close())
				}
			}
			err = target.Serve(cmd.Context(), conn, cfg.Set(), target.Options{})
			if errors.Is(err, target.ErrDisconnected) {
				return nil // the initiator has died or was interrupted
			}
			return err
		},
	}
	cmd.Flags().IntVar(&cpu, "cpu", -1, "CPU to run on")
	return cmd
}

// newServer makes the command of the target for initiators in other shells.
func (p Program) newServer() *cobra.Command {
	var port int
	var once bool
	cmd := &cobra.Command{
		Use:   "server [ADDRESS]",
		Short: "Run as the target of perftest client",
		Long: `Run as the target of perftest client, one client after the other, until a
signal.

ADDRESS is where to listen: HOST, HOST:PORT or :PORT, by default ` + defaultHost + `. The
two sides exchange keys that give access to the target's test memory, without
authentication: listen on other addresses only in a network that you trust. The
device decides which hosts can be reached; the fabric shm needs both sides on
one.`,
		Example: `  perftest server                    on 127.0.0.1:13337
  taskset -c 0 perftest server       on CPU 0
  GUCX_TCP_DEVICES=eth0 perftest server :13337         also for other hosts`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := address(args, port)
			if err != nil {
				return err
			}
			return p.serve(cmd, addr, once)
		},
	}
	cmd.Flags().IntVarP(&port, "port", "p", defaultPort, "port, if ADDRESS has none")
	cmd.Flags().BoolVar(&once, "once", false, "serve one client and exit")
	return cmd
}

// address returns the address of the arguments and the port flag.
func address(args []string, port int) (string, error) {
	if port < 0 || port > 65535 {
		return "", &usageError{fmt.Errorf("port %d is outside 0..65535", port)}
	}
	host := defaultHost
	if len(args) > 0 {
		host = args[0]
	}
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host, nil
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

func (p Program) serve(cmd *cobra.Command, addr string, once bool) error {
	cfg, err := p.config()
	if err != nil {
		return &usageError{err}
	}
	ctx := cmd.Context()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; choose another port with -p", err)
	} else if err != nil {
		return err
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	cmd.PrintErrf("%s: waiting for clients at %s\n", p.Name, l.Addr())
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		err = target.Serve(ctx, conn, cfg.Set(), target.Options{HelloTimeout: oob.HelloTimeout, Device: ownDevice(cfg)})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if once {
			return err
		}
		if err != nil {
			cmd.PrintErrf("%s: client %s: %v\n", p.Name, conn.RemoteAddr(), err)
		}
	}
}

// ownDevice returns a function that chooses the device of a server: that of the client, unless GUCX_NET_DEVICES of the server
// excludes it or the client names none. Then it is the first one with the transport that the server's list has, as hosts may name
// their devices differently. nil without a list.
func ownDevice(cfg layers.Config) func(oob.Params) string {
	if cfg.UCP.NetDevices.Names() == nil {
		return nil
	}
	return func(p oob.Params) string {
		list, _ := allowed(cfg.UCP, cfg.Components(p.Fabric)) // after an error the client's device is opened, which says why
		if first, permitted := pickResource(list, p.Transport, p.Device); permitted {
			return cmp.Or(p.Device, first.Device)
		}
		if own, ok := pickResource(list, p.Transport, ""); ok {
			return own.Device
		}
		return p.Device
	}
}

// newClient makes the command that measures against a server.
func (p Program) newClient() *cobra.Command {
	s := settings{own: p.Own}
	var port int
	cmd := &cobra.Command{
		Use:   "client [ADDRESS]",
		Short: "Measure against perftest server",
		Long: `Measure against perftest server at ADDRESS: HOST, HOST:PORT or :PORT, by
default ` + defaultHost + `. A server has one client at a time. Only the
initiator's CPU of -c has an effect; pin the server with taskset.`,
		Example: `  perftest client -s 8               against a server on this host
  GUCX_TCP_DEVICES=eth0 perftest client HOST -x tcp    on another host`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := address(args, port)
			if err != nil {
				return err
			}
			jobs, err := s.jobs()
			if err != nil {
				return err
			}
			if err := checkRemote(jobs); err != nil {
				return &usageError{err}
			}
			return runJobs(cmd, jobs, func(j *job) error { return j.runClient(cmd, addr) })
		},
	}
	s.bind(cmd.Flags())
	s.complete(cmd)
	cmd.Flags().IntVarP(&port, "port", "p", defaultPort, "port, if ADDRESS has none")
	return cmd
}

// checkRemote rejects jobs without a target in another process.
func checkRemote(jobs []*job) error {
	for _, j := range jobs {
		if j.plan.Fabric == loopFabric || j.loopback() {
			return errors.New("the loop fabric and self work within one process: run perftest without a subcommand")
		}
	}
	return nil
}

func (j *job) runClient(cmd *cobra.Command, addr string) error {
	dialer := net.Dialer{Timeout: oob.HelloTimeout}
	conn, err := dialer.DialContext(cmd.Context(), "tcp", addr)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w; is perftest server running there?", err)
	} else if err != nil {
		return err
	}
	if err := j.checkReach(conn.RemoteAddr()); err != nil {
		return errors.Join(&usageError{err}, conn.Close())
	}
	sess, err := j.greet(cmd, conn)
	if err != nil {
		return err
	}
	j.remote = true
	return errors.Join(j.measure(cmd, sess, nil), sess.Close())
}

// softDevice is the prefix of device names of the software HCA.
const softDevice = "softhca"

// checkReach rejects a server on another host if the transport reaches this host only.
func (j *job) checkReach(server net.Addr) error {
	if isLocal(server) {
		return nil
	}
	switch {
	case strings.HasPrefix(j.transport.Device, softDevice):
		return fmt.Errorf("%v is another host, and the %s fabric of the software HCA reaches processes of this host only: use -x tcp, or a device of rxe (hardware.md)", server, j.plan.Fabric)
	case j.transport.Kind == uct.DeviceShm:
		return fmt.Errorf("%v is another host, and %s reaches processes of this host only: use -x tcp", server, j.plan.Transport)
	}
	return nil
}

// isLocal reports whether an address is one of this host.
func isLocal(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true // let the transport decide
	}
	return slices.ContainsFunc(addrs, func(own net.Addr) bool {
		n, ok := own.(*net.IPNet)
		return ok && n.IP.Equal(tcp.IP)
	})
}

// greet opens a session with a server, and prints a message if the server does not reply soon.
func (j *job) greet(cmd *cobra.Command, conn net.Conn) (*session.Session, error) {
	answered := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case <-answered:
		case <-time.After(serverDelay):
			if !j.settings.quiet {
				cmd.PrintErrf("%s: waiting for the server at %v, which has one client at a time\n", cmd.Root().Name(), conn.RemoteAddr())
			}
		}
	})
	s, err := session.New(cmd.Context(), conn, j.config.Set(), session.Options{Patience: serverPatience})
	close(answered)
	wait.Wait() // it may be writing
	if errors.Is(err, session.ErrSilent) {
		err = fmt.Errorf("%w; does the server have another client?", err)
	}
	return s, err
}
