package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/gucx/gucx/ucp/ucpgroup"
	"github.com/gucx/gucx/ucs"
)

// Variables of the environment by which a process manager describes a rank.
const (
	envFD   = "PMI_FD"
	envRank = "PMI_RANK"
	envSize = "PMI_SIZE"
)

// Client is the connection of a rank to the process manager. It belongs to one goroutine.
type Client struct {
	conn       net.Conn
	in         *bufio.Reader
	rank, size int

	kvs      string // the name of the table
	keyLen   int    // maximum length of a key in bytes
	valueLen int    // maximum length of a value in bytes
	done     bool
	broken   error // error of a call without a reply; the reply may still arrive, so no further call is sent
}

var _ ucpgroup.Bootstrap = (*Client)(nil)

// ErrAbsent means that no process manager with this protocol has started the process.
var ErrAbsent = fmt.Errorf("pmi: %s is not set: %w", envFD, ucs.ErrUnsupported)

// FromEnv returns a client on the connection to the process manager that the environment names, and does the
// handshake. It can be called once: it unsets the variable, also for children. The caller must close the client when
// the rank has finished. If the connection breaks before, also because the garbage collector frees the client, the
// process manager assumes that the rank has died. Errors: [ErrAbsent];
// ErrInvalidParam; ErrUnsupported for another version of the protocol; ErrTimedOut if the process
// manager does not reply within a minute, also of Put, Get and Close.
func FromEnv() (*Client, error) {
	text := os.Getenv(envFD)
	if text == "" {
		return nil, ErrAbsent
	}
	var numbers [3]int
	for i, name := range []string{envFD, envRank, envSize} {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil || n < 0 {
			return nil, fmt.Errorf("pmi: %s=%q: %w", name, os.Getenv(name), ucs.ErrInvalidParam)
		}
		numbers[i] = n
	}
	conn, err := connOf(numbers[0])
	if err != nil {
		return nil, fmt.Errorf("pmi: %s=%s: %w", envFD, text, err)
	}
	if err := os.Unsetenv(envFD); err != nil {
		return nil, ucs.Join(err, conn.Close())
	}
	c, err := NewClient(conn, numbers[1], numbers[2])
	if err != nil {
		return nil, ucs.Join(err, conn.Close())
	}
	return c, nil
}

// connOf makes a connection from an inherited descriptor, which it then owns.
func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "pmi")
	if f == nil {
		return nil, ucs.ErrInvalidParam
	}
	conn, err := net.FileConn(f)
	return conn, errors.Join(err, f.Close())
}

// NewClient does the handshake with the process manager at the other end of conn, as a rank of size ranks. conn then
// belongs to the client.
func NewClient(conn net.Conn, rank, size int) (*Client, error) {
	if size < 1 || size > ucpgroup.MaxRanks || rank < 0 || rank >= size {
		return nil, fmt.Errorf("pmi: rank %d of %d: %w", rank, size, ucs.ErrInvalidParam)
	}
	c := &Client{conn: conn, in: newReader(conn), rank: rank, size: size}
	hello, err := c.request(context.Background(), message("init", "pmi_version", "1", "pmi_subversion", "1"), "response_to_init")
	if err != nil {
		return nil, err
	}
	if v := hello.value("pmi_version"); v != "1" {
		return nil, fmt.Errorf("pmi: the process manager speaks version %q: %w", v, ucs.ErrUnsupported)
	}
	maxes, err := c.request(context.Background(), message("get_maxes"), "maxes")
	if err != nil {
		return nil, err
	}
	if c.keyLen, err = maxes.number("keylen_max"); err != nil {
		return nil, err
	}
	if c.valueLen, err = maxes.number("vallen_max"); err != nil {
		return nil, err
	}
	name, err := c.request(context.Background(), message("get_my_kvsname"), "my_kvsname")
	if err != nil {
		return nil, err
	}
	if c.kvs = name.value("kvsname"); c.kvs == "" {
		return nil, fmt.Errorf("pmi: the table has no name: %w", ucs.ErrInvalidParam)
	}
	return c, nil
}

// answerLimit limits the time of a reply of the process manager, except to a fence. It is far more than a reply takes,
// also on another host with many ranks.
const answerLimit = time.Minute

// request is callBy for calls that are not fences. ErrTimedOut if there is no reply within answerLimit.
func (c *Client) request(ctx context.Context, l line, answer string) (line, error) {
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	got, err := c.callBy(limited, l, answer)
	switch {
	case err == nil:
		return got, nil
	case ctx.Err() != nil && errors.Is(err, limited.Err()):
		return line{}, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		return line{}, fmt.Errorf("pmi: %s: no answer within %v: %w", l.cmd, answerLimit, ucs.ErrTimedOut)
	}
	return line{}, err
}

// callBy is call with a context. If ctx is done first, it returns the error of ctx.
func (c *Client) callBy(ctx context.Context, l line, answer string) (line, error) {
	if err := ctx.Err(); err != nil {
		return line{}, err
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.conn.SetDeadline(time.Unix(1, 0)) // fails only when closed
		close(over)
	})
	got, err := c.call(l, answer)
	if stop() {
		return got, err
	}
	<-over
	if err == nil { // the reply arrived before ctx was done
		return got, c.conn.SetDeadline(time.Time{})
	}
	return line{}, ctx.Err()
}

// call sends a message and returns the reply, which must be for this command and report
// success.
func (c *Client) call(l line, answer string) (line, error) {
	if c.broken != nil {
		return line{}, c.broken
	}
	_, err := io.WriteString(c.conn, l.String())
	var got line
	if err == nil {
		got, err = readLine(c.in)
	}
	if err != nil {
		c.broken = hungUp(err)
		return line{}, c.broken
	}
	if got.cmd != answer {
		return line{}, fmt.Errorf("pmi: %s: the answer is %.40q: %w", l.cmd, got.cmd, ucs.ErrInvalidParam)
	}
	if rc := got.value("rc"); rc != "" && rc != "0" {
		return line{}, fmt.Errorf("pmi: %s: rc %.20s %.80s: %w", l.cmd, rc, got.value("msg"), ucs.ErrRejected)
	}
	return got, nil
}

// hungUp returns err, as ErrConnReset if it means that the process manager has closed the connection.
func hungUp(err error) error {
	for _, gone := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, gone) {
			return fmt.Errorf("pmi: the process manager has closed the connection, as it does when a rank has ended: %w", ucs.ErrConnReset)
		}
	}
	return err
}

// Rank implements ucpgroup.Bootstrap.
func (c *Client) Rank() int { return c.rank }

// Size implements ucpgroup.Bootstrap.
func (c *Client) Size() int { return c.size }

// Put implements ucpgroup.Bootstrap. ErrTooLong for a key that, with its suffix, exceeds the limit of
// the process manager, and for a value of more than 1 MiB. ErrInvalidParam, also of
// Get, for a key that is empty or contains white space or '='.
func (c *Client) Put(ctx context.Context, key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	pieces, err := split(value, c.room(key))
	if err != nil {
		return err
	}
	for i, piece := range pieces {
		name := pieceKey(c.rank, key, i)
		if len(name) >= c.keyLen {
			return fmt.Errorf("pmi: key %q: %w", name, ucs.ErrTooLong)
		}
		if _, err := c.request(ctx, message("put", "kvsname", c.kvs, "key", name, "value", piece), "put_result"); err != nil {
			return err
		}
	}
	return nil
}

// room returns the maximum length of a piece of a value in bytes, by the limits of the process manager and of a line.
func (c *Client) room(key string) int {
	longest := pieceKey(c.rank, key, maxValue)
	frame := message("put", "kvsname", c.kvs, "key", longest, "value", "")
	return min(c.valueLen, maxLine-len(frame.String())) - 1 // the limits include a terminating zero
}

// Get implements ucpgroup.Bootstrap.
func (c *Client) Get(ctx context.Context, rank int, key string) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return join(func(piece int) (string, error) {
		name := pieceKey(rank, key, piece)
		got, err := c.request(ctx, message("get", "kvsname", c.kvs, "key", name), "get_result")
		if errors.Is(err, ucs.ErrRejected) {
			err = fmt.Errorf("%w: %w", ucs.ErrInvalidParam, err)
		}
		return got.value("value"), err
	})
}

// Fence implements ucpgroup.Bootstrap. It fails with ErrConnReset if the process manager closes the connection,
// as the one of a [Job] does when a rank has died.
func (c *Client) Fence(ctx context.Context) error {
	_, err := c.callBy(ctx, message("barrier_in"), "barrier_out")
	return err
}

// Close implements ucpgroup.Bootstrap. Idempotent.
func (c *Client) Close() error {
	if c.done {
		return nil
	}
	c.done = true
	_, err := c.request(context.Background(), message("finalize"), "finalize_ack")
	return ucs.Join(err, c.conn.Close())
}

// Abort requests the process manager to end all ranks, with code as the reason.
func (c *Client) Abort(code int) error {
	c.done = true
	_, err := io.WriteString(c.conn, message("abort", "exitcode", strconv.Itoa(code)).String())
	return ucs.Join(hungUp(err), c.conn.Close())
}
