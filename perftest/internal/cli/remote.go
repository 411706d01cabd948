package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx/perftest/internal/affinity"
	"github.com/gucx/gucx/perftest/internal/launch"
	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/oob"
	"github.com/gucx/gucx/perftest/internal/session"
	"github.com/gucx/gucx/perftest/internal/target"
)

const (
	// defaultPort is that of ucx_perftest.
	defaultPort = 13337
	defaultHost = "127.0.0.1"

	peerName = "peer"
)

// newPeer is the hidden command that a child process runs.
func newPeer() *cobra.Command {
	cpu := -1
	cmd := &cobra.Command{
		Use:    peerName,
		Short:  "Be the target of the process that started this one",
		Hidden: true,
		Args:   usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := layers.FromEnv(os.Environ())
			if err != nil {
				return err
			}
			conn, err := launch.Accept()
			if err != nil {
				return err
			}
			if cpu >= 0 {
				if err := affinity.Process([]int{cpu}); err != nil {
					return errors.Join(err, conn.Close())
				}
			}
			return target.Serve(cmd.Context(), conn, cfg.Set(), target.Options{HelloTimeout: oob.HelloTimeout})
		},
	}
	cmd.Flags().IntVar(&cpu, "cpu", -1, "processor to run on")
	return cmd
}

// newServer is the target for initiators in other shells.
func newServer() *cobra.Command {
	var port int
	var once bool
	cmd := &cobra.Command{
		Use:   "server [ADDRESS]",
		Short: "Be the target of perftest client",
		Long: `Be the target of perftest client, of one client after the other, until a signal.

ADDRESS is where to listen: HOST, HOST:PORT or :PORT, by default ` + defaultHost + `. The
two sides exchange keys that give access to the target's test memory, without
authentication: listen on other addresses only in a network that you trust. The
device decides which hosts can be reached; the fabric shm needs both sides on one.`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := address(args, port)
			if err != nil {
				return err
			}
			return serve(cmd, addr, once)
		},
	}
	cmd.Flags().IntVarP(&port, "port", "p", defaultPort, "port, where ADDRESS has none")
	cmd.Flags().BoolVar(&once, "once", false, "serve one client and exit")
	return cmd
}

// address is what the arguments and the port flag come to.
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

func serve(cmd *cobra.Command, addr string, once bool) error {
	cfg, err := layers.FromEnv(os.Environ())
	if err != nil {
		return &usageError{err}
	}
	ctx := cmd.Context()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	cmd.PrintErrf("perftest: waiting for clients at %s\n", l.Addr())
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		err = target.Serve(ctx, conn, cfg.Set(), target.Options{HelloTimeout: oob.HelloTimeout})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if once {
			return err
		}
		if err != nil {
			cmd.PrintErrf("perftest: client %s: %v\n", conn.RemoteAddr(), err)
		}
	}
}

// newClient measures against a server.
func newClient() *cobra.Command {
	var s settings
	var port int
	cmd := &cobra.Command{
		Use:   "client [ADDRESS]",
		Short: "Measure against perftest server",
		Long:  "Measure against perftest server at ADDRESS: HOST, HOST:PORT or :PORT, by default " + defaultHost + ".\nOf -c only the initiator's processor has an effect; pin the server with taskset.",
		Args:  usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := address(args, port)
			if err != nil {
				return err
			}
			return s.runClient(cmd, addr)
		},
	}
	s.bind(cmd.Flags())
	cmd.Flags().IntVarP(&port, "port", "p", defaultPort, "port, where ADDRESS has none")
	return cmd
}

func (s *settings) runClient(cmd *cobra.Command, addr string) error {
	j, err := s.job()
	if err != nil {
		return err
	}
	if err := j.check(); err != nil {
		return err
	}
	if j.plan.Fabric == loopFabric || j.loopback() {
		return &usageError{errors.New("the loop fabric, like self, does not leave a process: run perftest without a subcommand")}
	}
	dialer := net.Dialer{Timeout: oob.HelloTimeout}
	conn, err := dialer.DialContext(cmd.Context(), "tcp", addr)
	if err != nil {
		return fmt.Errorf("%w; is perftest server running there?", err)
	}
	sess, err := session.New(cmd.Context(), conn, j.config.Set(), session.Options{})
	if err != nil {
		return err
	}
	return errors.Join(j.measure(cmd, sess, nil), sess.Close())
}
