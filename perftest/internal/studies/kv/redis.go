package kv

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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
)

// redisProgram is the program of Redis in Debian's package.
const redisProgram = "redis-server"

// startLimit is the maximum time for the start of a server.
const startLimit = 30 * time.Second

// startRedis starts a server that stores nothing on disk and listens on a unix socket. It adds the stop of the server
// to undo.
func startRedis(ctx context.Context, undo *cleanup.Stack) (*server, error) {
	program, err := exec.LookPath(redisProgram)
	if err != nil {
		return nil, &MissingError{err}
	}
	dir, err := os.MkdirTemp("", "perftest-kv-")
	if err != nil {
		return nil, err
	}
	undo.Add(func() error { return os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	cmd := exec.Command(program, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", dir, "--logfile", "log")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	undo.Add(func() error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error shows that it was killed
		return nil
	})
	s := &server{addresses: []string{socket}, pids: []int{cmd.Process.Pid}}
	for end := time.Now().Add(startLimit); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("unix", socket)
		switch {
		case err == nil:
			return s, conn.Close()
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case time.Now().After(end):
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			return nil, fmt.Errorf("%s: %w; %s", redisProgram, err, strings.TrimSpace(string(log)))
		}
	}
}

// MissingError is the error if a server is not installed.
type MissingError struct{ Err error }

// Error implements error.
func (e *MissingError) Error() string { return "redis: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Err }

// redis is a connection with RESP, the protocol of Redis, without pipelining.
type redis struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

func dialRedis(path string) (*redis, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	return &redis{conn: conn, in: bufio.NewReader(conn)}, nil
}

var errReply = errors.New("redis: malformed reply")

// command sends a command and returns the line of the reply.
func (r *redis) command(args ...string) (string, error) {
	r.out = append(r.out[:0], '*')
	r.out = append(strconv.AppendInt(r.out, int64(len(args)), 10), "\r\n"...)
	for _, a := range args {
		r.out = append(r.out, '$')
		r.out = append(strconv.AppendInt(r.out, int64(len(a)), 10), "\r\n"...)
		r.out = append(append(r.out, a...), "\r\n"...)
	}
	if _, err := r.conn.Write(r.out); err != nil {
		return "", err
	}
	line, err := r.in.ReadSlice('\n')
	switch {
	case err != nil:
		return "", err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return "", errReply
	case line[0] == '-':
		return "", fmt.Errorf("redis: %s", line[1:len(line)-2])
	}
	return string(line[:len(line)-2]), nil
}

// get returns a value: in buf, if the capacity is sufficient.
func (r *redis) get(key string, buf []byte) ([]byte, error) {
	line, err := r.command("GET", key)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(line[1:])
	if line[0] != '$' || err != nil || n < -1 || n > maxValue {
		return nil, errReply
	}
	if n < 0 {
		return nil, fmt.Errorf("redis: no key %s", key)
	}
	if cap(buf) < n+2 {
		buf = make([]byte, n+2)
	}
	buf = buf[:n+2]
	if _, err := io.ReadFull(r.in, buf); err != nil || string(buf[n:]) != "\r\n" {
		return nil, errors.Join(err, errReply)
	}
	return buf[:n], nil
}

func (r *redis) put(key string, value []byte) error {
	line, err := r.command("SET", key, string(value))
	if err == nil && line != "+OK" {
		err = errReply
	}
	return err
}

func (r *redis) close() error { return r.conn.Close() }
