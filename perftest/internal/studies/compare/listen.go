package compare

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Ports below those that Linux assigns to sockets without a port (ip_local_port_range).
const (
	firstPort = 20_000
	lastPort  = 32_000
	portTries = 100
)

// freePort returns a TCP port without listener. Another process may use the port before the caller
// does; then the run fails.
func freePort() (port int, err error) {
	for range portTries {
		port = firstPort + rand.IntN(lastPort-firstPort)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// lookInterval is the time between two checks for a listening server.
const lookInterval = 5 * time.Millisecond

// socketTables list the TCP sockets of this network namespace (proc(5)).
var socketTables = []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"}

// awaitListener waits until a process listens on the port. A connection would show that too, but
// ucx_perftest accepts only one connection.
func awaitListener(ctx context.Context, port int) error {
	t := time.NewTicker(lookInterval)
	defer t.Stop()
	for {
		if up, err := listens(port); up || err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("port %d: %w", port, context.Cause(ctx))
		}
	}
}

// listens reports whether a TCP socket listens on the port.
func listens(port int) (bool, error) {
	for _, name := range socketTables {
		f, err := os.Open(name)
		if os.IsNotExist(err) {
			continue // without IPv6
		}
		if err != nil {
			return false, err
		}
		up := listensIn(f, port)
		f.Close()
		if up {
			return true, nil
		}
	}
	return false, nil
}

// stateListen is TCP_LISTEN of the kernel's tcp_states.h, as the tables print it.
const stateListen = "0A"

// listensIn searches for a listener in a socket table. The fields are the line number, local
// address:port, remote address:port, state, and others, in hexadecimal.
func listensIn(table io.Reader, port int) bool {
	suffix := fmt.Sprintf(":%04X", port)
	for lines := bufio.NewScanner(table); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) > 3 && f[3] == stateListen && strings.HasSuffix(f[1], suffix) {
			return true
		}
	}
	return false
}
