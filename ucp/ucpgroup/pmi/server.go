package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/gucx/gucx/ucp/ucpgroup"
	"github.com/gucx/gucx/ucs"
)

// Limits that the server sends to clients: those of Hydra.
const (
	kvsName      = "kvs_0"
	nameMost     = 256
	keyMost      = 64
	serverValue  = 1024
	subversion   = "1"
	version      = "1"
	codeNotFound = "-1"
)

// Server is the side of the process manager: a table of keys and values, and fences, for n ranks.
type Server struct {
	conns []net.Conn

	mu     sync.Mutex
	table  map[string]string
	at     []bool // by rank: it has reached the fence
	inside int    // number of ranks that have reached the fence
	left   int    // the first rank that has closed its client; -1 if none has
	err    error
}

// NewServer returns a server for the ranks at the other ends of conns. Serve closes conns.
func NewServer(conns []net.Conn) *Server {
	return &Server{conns: conns, table: map[string]string{}, at: make([]bool, len(conns)), left: -1}
}

// Serve replies to requests until all ranks have closed their clients. If the connection of a rank breaks before, or the
// rank sends a malformed message or aborts, Serve closes the connections of all others, so that no fence waits for
// that rank, and returns a [ucpgroup.RankError].
func (s *Server) Serve() error {
	var wait sync.WaitGroup
	for rank, conn := range s.conns {
		wait.Go(func() {
			if err := s.serve(rank, conn); err != nil {
				s.fail(reasonOf(rank, err))
			}
		})
	}
	wait.Wait()
	return s.err
}

// reasonOf returns an error of serving a rank as an error of the rank that has caused it:
// a request of a rank may show that another rank has disconnected.
func reasonOf(rank int, err error) error {
	var other *ucpgroup.RankError
	if errors.As(err, &other) {
		return other
	}
	return &ucpgroup.RankError{Rank: rank, Err: err}
}

// fail closes all connections.
func (s *Server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	for _, conn := range s.conns {
		_ = conn.Close() // the error does not matter: the job has failed
	}
}

// serve replies to the requests of a rank until the rank has closed its client.
func (s *Server) serve(rank int, conn net.Conn) error {
	in := newReader(conn)
	for {
		l, err := s.next(in)
		if err != nil {
			return err
		}
		answer, last, err := s.handle(rank, l)
		if err != nil {
			return err
		}
		if answer.cmd != "" {
			if _, err := io.WriteString(conn, answer.String()); err != nil {
				return hungUpRank(err)
			}
		}
		if last {
			return conn.Close()
		}
	}
}

func (s *Server) next(in *bufio.Reader) (line, error) {
	l, err := readLine(in)
	if err != nil {
		return line{}, hungUpRank(err)
	}
	return l, nil
}

// hungUpRank is the error of a rank whose connection has broken.
func hungUpRank(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("disconnected before it has closed its client: %w", ucs.ErrConnReset)
	}
	return err
}

// handle returns the reply to a message of a rank. last means that it is the last message.
func (s *Server) handle(rank int, l line) (answer line, last bool, err error) {
	switch l.cmd {
	case "init":
		return message("response_to_init", "rc", "0", "pmi_version", version, "pmi_subversion", subversion), false, nil
	case "get_maxes":
		return message("maxes", "kvsname_max", strconv.Itoa(nameMost), "keylen_max", strconv.Itoa(keyMost), "vallen_max", strconv.Itoa(serverValue)), false, nil
	case "get_my_kvsname":
		return message("my_kvsname", "kvsname", kvsName), false, nil
	case "get_appnum":
		return message("appnum", "appnum", "0"), false, nil
	case "get_universe_size":
		return message("universe_size", "size", strconv.Itoa(len(s.conns))), false, nil
	case "put":
		return s.put(l)
	case "get":
		return s.get(l), false, nil
	case "barrier_in":
		return line{}, false, s.arrive(rank)
	case "finalize":
		return message("finalize_ack"), true, s.leave(rank)
	case "abort":
		return line{}, true, fmt.Errorf("it has aborted with code %.20s: %w", l.value("exitcode"), ucs.ErrCanceled)
	}
	return line{}, false, fmt.Errorf("command %.40q: %w", l.cmd, ucs.ErrUnsupported)
}

// leave handles a rank that closes its client. It returns an error if other ranks wait at the fence, because they would wait
// without limit.
func (s *Server) leave(rank int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside > 0 {
		return fmt.Errorf("it has left, and others are at the fence: %w", ucs.ErrPeerClosed)
	}
	if s.left < 0 {
		s.left = rank
	}
	return nil
}

func (s *Server) put(l line) (line, bool, error) {
	key, value := l.value("key"), l.value("value")
	if len(key) >= keyMost || len(value) >= serverValue {
		return line{}, false, fmt.Errorf("key or value: %w", ucs.ErrTooLong)
	}
	s.mu.Lock()
	s.table[key] = value
	s.mu.Unlock()
	return message("put_result", "rc", "0", "msg", "success"), false, nil
}

func (s *Server) get(l line) line {
	s.mu.Lock()
	value, ok := s.table[l.value("key")]
	s.mu.Unlock()
	if !ok {
		return message("get_result", "rc", codeNotFound, "msg", "key_not_found", "value", "unknown")
	}
	return message("get_result", "rc", "0", "msg", "success", "value", value)
}

// arrive counts a rank at the fence. When the last one arrives, all continue. It returns an error if another rank has closed
// its client, because the rank would wait without limit.
func (s *Server) arrive(rank int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left >= 0 {
		return &ucpgroup.RankError{Rank: s.left, Err: fmt.Errorf("it has left, and rank %d is at a fence: %w", rank, ucs.ErrPeerClosed)}
	}
	if s.at[rank] {
		return fmt.Errorf("it calls a fence while it waits at a fence: %w", ucs.ErrInvalidParam)
	}
	s.at[rank] = true
	if s.inside++; s.inside < len(s.conns) {
		return nil
	}
	s.inside = 0
	clear(s.at)
	for to, conn := range s.conns {
		if _, err := io.WriteString(conn, message("barrier_out").String()); err != nil {
			return &ucpgroup.RankError{Rank: to, Err: hungUpRank(err)}
		}
	}
	return nil
}
