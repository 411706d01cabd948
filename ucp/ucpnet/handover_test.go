package ucpnet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
)

// serveRole is a server that reads the stream of a client to its end and replies with its process id. It listens at the
// address of its arguments (transports, network, address), or on descriptor 3. A line on standard input starts another
// server on the same socket and the same standard input; then this server drains its listener, replies to its clients and
// ends.
func serveRole(args []string, in *bufio.Scanner) error {
	w, err := roleWorker(args[0])
	if err != nil {
		return err
	}
	var l *Listener
	if len(args) == 3 {
		l, err = Listen(context.Background(), w, args[1], args[2])
	} else {
		l, err = listenOnFile(w, os.NewFile(3, "listener"))
	}
	if err != nil {
		return err
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { answer(c) })
		}
	})
	fmt.Println(l.Addr(), os.Getpid())
	if !in.Scan() {
		return w.Close()
	}
	if err := startSuccessor(l, args[0]); err != nil {
		return err
	}
	if err := l.Drain(context.Background()); err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	served.Wait()
	fmt.Println("left")
	return w.Close()
}

// answer replies to a client, which may be gone.
func answer(c net.Conn) {
	_, _ = io.Copy(io.Discard, c)
	_, _ = fmt.Fprint(c, os.Getpid())
	_ = c.Close()
}

// listenOnFile listens on the socket of another process.
func listenOnFile(w *ucp.SharedWorker, f *os.File) (*Listener, error) {
	socket, err := net.FileListener(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return ListenOn(w, socket)
}

// startSuccessor starts another server on the socket of a listener, and returns when it serves.
func startSuccessor(l *Listener, tls string) error {
	socket, err := l.Detach()
	if err != nil {
		return err
	}
	defer socket.Close()
	next := exec.Command(os.Args[0])
	next.Env = append(os.Environ(), roleEnv+"=serve "+tls)
	next.Stdin, next.Stderr, next.ExtraFiles = os.Stdin, os.Stderr, []*os.File{socket}
	out, err := next.StdoutPipe()
	if err != nil {
		return err
	}
	if err := next.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	fmt.Print(line)
	return err
}

// TestListener_Handover: no client fails while servers pass their socket to another process, reply to the clients that
// have reached them, and end.
func TestListener_Handover(t *testing.T) {
	for name, at := range map[string][3]string{
		"sm":           {"sm", "unix", filepath.Join(testenv.SocketDir(t), "s")},
		"tcp":          {"tcp", "tcp", "127.0.0.1:0"},
		"sm at a port": {"sm", "tcp", "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			old := startChild(t, nil, "serve", at[0], at[1], at[2])
			address, oldID, _ := strings.Cut(old.Line(t), " ")
			w := newWorker(t, at[0])
			(&pair{a: w}).serve(t)
			ask := func() (*Conn, error) { return Dial(t.Context(), w, at[1], address) }

			early, err := ask()
			require.NoError(t, err)
			require.NoError(t, writeOne(early))

			var mu sync.Mutex
			seen := map[string]int{} // replies by process
			over := make(chan struct{})
			var clients sync.WaitGroup
			for range 3 {
				clients.Go(func() {
					for {
						id := answered(t, ask)
						mu.Lock()
						seen[id]++
						mu.Unlock()
						select {
						case <-over:
							return
						default:
						}
					}
				})
			}
			old.Tell(t, "go")
			_, newID, _ := strings.Cut(old.Line(t), " ")
			require.NotEqual(t, oldID, newID)
			assert.Equal(t, oldID, answered(t, func() (*Conn, error) { return early, nil }))
			require.Equal(t, "left", old.Line(t))
			close(over)
			clients.Wait()
			for id, n := range seen {
				assert.Contains(t, []string{oldID, newID}, id, n)
			}
			assert.Equal(t, newID, answered(t, ask))
		})
	}
}

// answered returns the reply of the server over a connection.
func answered(t *testing.T, dial func() (*Conn, error)) string {
	c, err := dial()
	if !assert.NoError(t, err) {
		return "nobody"
	}
	assert.NoError(t, c.CloseWrite())
	got, err := io.ReadAll(c)
	assert.NoError(t, err)
	assert.NoError(t, c.Close())
	return string(got)
}
