package pmi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp/ucpgroup"
	"github.com/gucx/gucx/ucs"
)

// roleVar makes the test binary a rank.
const roleVar = "PMI_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); workers[role] != nil {
		os.Exit(playWorker(workers[role]))
	} else if role != "" {
		os.Exit(playRole(role))
	}
	testenv.Main(m)
}

// socketPair is both ends of a connection.
func socketPair(t testing.TB) (a, b net.Conn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	a, err = connOf(fds[0])
	require.NoError(t, err)
	b, err = connOf(fds[1])
	require.NoError(t, err)
	return a, b
}

// served returns n clients of a server, and a channel for the result of the server.
func served(t testing.TB, n int) (*Server, []*Client, <-chan error) {
	theirs, ours := make([]net.Conn, n), make([]net.Conn, n)
	for i := range n {
		theirs[i], ours[i] = socketPair(t)
	}
	ended, s := make(chan error, 1), NewServer(theirs)
	go func() { ended <- s.Serve() }()
	clients := make([]*Client, n)
	for i := range n {
		var err error
		clients[i], err = NewClient(ours[i], i, n)
		require.NoError(t, err)
	}
	return s, clients, ended
}

// each calls f for all clients at the same time.
func each(clients []*Client, f func(c *Client) error) error {
	errs := make([]error, len(clients))
	var wait sync.WaitGroup
	for i, c := range clients {
		wait.Go(func() { errs[i] = f(c) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func TestClient_Exchange(t *testing.T) {
	const n = 3
	_, clients, ended := served(t, n)
	value := func(rank, round int) []byte { return []byte(strings.Repeat(string(rune('a'+rank)), 700*round)) }
	for round := range 4 {
		key := "key" + string(rune('0'+round))
		require.NoError(t, each(clients, func(c *Client) error {
			if err := c.Put(t.Context(), key, value(c.Rank(), round)); err != nil {
				return err
			}
			if err := c.Fence(t.Context()); err != nil {
				return err
			}
			for q := range c.Size() {
				got, err := c.Get(t.Context(), q, key)
				if err != nil {
					return err
				}
				if string(got) != string(value(q, round)) {
					return errors.New("another value")
				}
			}
			return nil
		}))
	}
	_, err := clients[0].Get(t.Context(), 1, "nothing")
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	require.ErrorIs(t, clients[0].Put(t.Context(), strings.Repeat("k", 60), nil), ucs.ErrTooLong)
	require.ErrorIs(t, clients[0].Put(t.Context(), "k", make([]byte, maxValue+1)), ucs.ErrTooLong)
	for _, key := range []string{"two words", "a=b", "line\ncmd=abort", "tab\t", "\u00a0", ""} {
		require.ErrorIs(t, clients[0].Put(t.Context(), key, nil), ucs.ErrInvalidParam, "%q", key)
		_, err := clients[0].Get(t.Context(), 0, key)
		require.ErrorIs(t, err, ucs.ErrInvalidParam, "%q", key)
		require.ErrorContains(t, err, "key", "%q", key)
	}
	require.NoError(t, each(clients, (*Client).Close))
	require.NoError(t, clients[0].Close())
	require.NoError(t, <-ended)
}

// TestFence_TwiceAtOnce: a rank that enters a fence twice before the fence completes counts once.
func TestFence_TwiceAtOnce(t *testing.T) {
	_, clients, ended := served(t, 2)
	_, err := io.WriteString(clients[0].conn, strings.Repeat(message("barrier_in").String(), 2))
	require.NoError(t, err)
	_, err = readLine(clients[0].in)
	require.ErrorIs(t, hungUp(err), ucs.ErrConnReset, "rank 1 is not at the fence")
	err = <-ended
	var at *ucpgroup.RankError
	require.ErrorAs(t, err, &at)
	assert.Equal(t, 0, at.Rank)
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	require.ErrorIs(t, clients[1].Fence(t.Context()), ucs.ErrConnReset)
	for _, c := range clients {
		require.NoError(t, c.conn.Close())
	}
}

// TestFence_RankGone: ranks at a fence get an error if another one has died, left, or aborted.
func TestFence_RankGone(t *testing.T) {
	for name, end := range map[string]func(c *Client) error{
		"gone":    func(c *Client) error { return c.conn.Close() },
		"left":    func(c *Client) error { _ = c.Close(); return nil },
		"aborted": func(c *Client) error { return c.Abort(3) },
	} {
		t.Run(name, func(t *testing.T) {
			s, clients, ended := served(t, 3)
			waiting := make(chan error, 2)
			for _, c := range clients[:2] {
				go func() { waiting <- c.Fence(t.Context()) }()
			}
			testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.inside == 2
			})
			require.NoError(t, end(clients[2]))
			require.ErrorIs(t, <-waiting, ucs.ErrConnReset)
			require.ErrorIs(t, <-waiting, ucs.ErrConnReset)
			require.ErrorContains(t, <-ended, "rank 2")
			for _, c := range clients {
				_ = c.conn.Close()
			}
		})
	}
}

// silentConn blocks reads and writes until it is closed.
type silentConn struct {
	net.Conn
	closed chan struct{}
	once   sync.Once
}

func (c *silentConn) Read([]byte) (int, error) {
	<-c.closed
	return 0, net.ErrClosed
}

func (c *silentConn) Write([]byte) (int, error) { return 0, unix.EPIPE }

func (c *silentConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// TestFence_NoRankToTell: the reason is the rank that cannot be notified of the end of a fence, not the last rank at
// the fence.
func TestFence_NoRankToTell(t *testing.T) {
	theirs, ours := socketPair(t)
	s := NewServer([]net.Conn{&silentConn{closed: make(chan struct{})}, theirs})
	s.inside = 1 // the first one has entered, and has disconnected
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	c, err := NewClient(ours, 1, 2)
	require.NoError(t, err)
	require.ErrorIs(t, c.Fence(t.Context()), ucs.ErrConnReset)
	err = <-ended
	require.ErrorContains(t, err, "rank 0")
	require.ErrorIs(t, err, unix.EPIPE)
	require.NoError(t, ours.Close())
}

// TestFence_AfterARankLeft: so they do if a rank has left before.
func TestFence_AfterARankLeft(t *testing.T) {
	_, clients, ended := served(t, 2)
	require.NoError(t, clients[0].Close())
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
	defer cancel()
	require.ErrorIs(t, clients[1].Fence(ctx), ucs.ErrConnReset)
	err := <-ended
	require.ErrorContains(t, err, "rank 0: it has left, and rank 1 is at a fence")
	require.ErrorIs(t, err, ucs.ErrPeerClosed)
	require.NoError(t, clients[1].conn.Close())
}

func TestFence_ContextEnds(t *testing.T) {
	_, clients, ended := served(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() { waiting <- clients[0].Fence(ctx) }()
	cancel()
	require.ErrorIs(t, <-waiting, context.Canceled)
	for _, c := range clients {
		require.NoError(t, c.conn.Close())
	}
	require.Error(t, <-ended)
}

// greeting is the reply to the greeting of a client.
const greeting = "cmd=response_to_init pmi_version=1 rc=0\n"

// TestClient_Answers: an invalid reply of a process manager is an error.
func TestClient_Answers(t *testing.T) {
	for name, tt := range map[string]struct {
		answers string
		want    error
	}{
		"hangs up":         {"", ucs.ErrConnReset},
		"half a line":      {"cmd=response", ucs.ErrConnReset},
		"no message":       {"hello\n", ucs.ErrInvalidParam},
		"other command":    {"cmd=maxes\n", ucs.ErrInvalidParam},
		"other version":    {"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n", ucs.ErrUnsupported},
		"refused":          {"cmd=response_to_init rc=-1 msg=no\n", ucs.ErrRejected},
		"no lengths":       {"cmd=response_to_init pmi_version=1 rc=0\ncmd=maxes\n", ucs.ErrInvalidParam},
		"negative length":  {greeting + "cmd=maxes keylen_max=64 vallen_max=-1\n", ucs.ErrInvalidParam},
		"no table":         {greeting + "cmd=maxes keylen_max=64 vallen_max=1024\ncmd=my_kvsname rc=0\n", ucs.ErrInvalidParam},
		"line without end": {strings.Repeat("x", 10*maxLine), ucs.ErrTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			theirs, ours := socketPair(t)
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				_, _ = io.WriteString(theirs, tt.answers)
				_, _ = io.CopyN(io.Discard, theirs, 10) // the client may disconnect first
				_ = theirs.(*net.UnixConn).CloseWrite()
			}()
			_, err := NewClient(ours, 0, 1)
			require.ErrorIs(t, err, tt.want)
			require.NoError(t, ours.Close())
			<-answered
			require.NoError(t, theirs.Close())
		})
	}
}

// TestJoin_EmptyPieces: a value with empty pieces is rejected, with any number of them.
func TestJoin_EmptyPieces(t *testing.T) {
	asked := 0
	_, err := join(func(i int) (string, error) {
		if asked++; i == 0 {
			return "1000000.", nil
		}
		return "", nil
	})
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	require.LessOrEqual(t, asked, 2)
}

// TestPieces: the pieces of a value are joined to the same value, and none exceeds the limit.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "value")
		room := rapid.IntRange(minRoom, 300).Draw(t, "room")
		pieces, err := split(value, room)
		require.NoError(t, err)
		for _, p := range pieces {
			require.LessOrEqual(t, len(p), room)
			require.NotContains(t, p, " ")
		}
		got, err := join(func(i int) (string, error) { return pieces[i], nil })
		require.NoError(t, err)
		require.Equal(t, string(value), string(got))
	})
}

func FuzzParseLine(f *testing.F) {
	for _, s := range []string{
		"cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_result rc=-1 msg=key not found value=unknown",
		"cmd=put kvsname=a key=b value=c=d", "", "=", "cmd=", "x=1", "cmd=a cmd=b", "  cmd=a\t b=c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := parseLine(text)
		if err != nil {
			require.ErrorIs(t, err, ucs.ErrInvalidParam)
			return
		}
		again, err := parseLine(strings.TrimSuffix(l.String(), "\n"))
		require.NoError(t, err)
		assert.Equal(t, l, again)
	})
}

func FuzzReadLine(f *testing.F) {
	f.Add([]byte("cmd=a b=c\ncmd=d\n"))
	f.Add([]byte("cmd=a"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		in := newReader(strings.NewReader(string(stream)))
		for range len(stream) + 1 {
			if _, err := readLine(in); err != nil && !errors.Is(err, ucs.ErrInvalidParam) {
				return
			}
		}
		t.Fatal("more lines than bytes")
	})
}

func FuzzJoin(f *testing.F) {
	f.Add("2.YWJj", "ZGVm")
	f.Add("1.", "")
	f.Add("99999999.", "a")
	f.Fuzz(func(t *testing.T, first, rest string) {
		value, err := join(func(i int) (string, error) {
			if i == 0 {
				return first, nil
			}
			if i > 100 {
				return "", io.EOF
			}
			return rest, nil
		})
		if err == nil {
			require.LessOrEqual(t, len(value), maxValue)
		}
	})
}

// FuzzServer: a rank that sends anything gets replies, or is disconnected. The server ends.
func FuzzServer(f *testing.F) {
	f.Add("cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=barrier_in\ncmd=finalize\n")
	f.Add("cmd=put key=a value=b\ncmd=get key=a\ncmd=get key=c\ncmd=nothing\n")
	f.Fuzz(func(t *testing.T, text string) {
		theirs, ours := net.Pipe()
		go func() {
			_, _ = io.WriteString(ours, text)
			_ = ours.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(ours)) }()
		_ = NewServer([]net.Conn{theirs}).Serve()
	})
}

// playRole runs the role of a rank.
func playRole(role string) int {
	c, err := FromEnv()
	if err != nil {
		return 3
	}
	switch role {
	case "fail":
		if c.Rank() == 1 {
			return 7
		}
		if err := c.Fence(context.Background()); !errors.Is(err, ucs.ErrConnReset) {
			return 4
		}
		return 5
	case "hang", "leave", "leave well":
		if c.Fence(context.Background()) != nil { // without it, a late rank would not find the process manager
			return 6
		}
		if code := map[string]int{"leave": 7}[role]; role != "hang" && c.Rank() == 1 {
			return code
		}
		for { // it is killed
			_ = unix.Pause() // without cgo the runtime reports this wait as a deadlock
		}
	}
	if c.Put(context.Background(), "a", []byte{byte(c.Rank())}) != nil || c.Fence(context.Background()) != nil {
		return 8
	}
	for q := range c.Size() {
		if b, err := c.Get(context.Background(), q, "a"); err != nil || len(b) != 1 || b[0] != byte(q) {
			return 9
		}
	}
	if _, err := FromEnv(); err != ErrAbsent {
		return 10
	}
	if c.Close() != nil {
		return 11
	}
	return 0
}

func startRole(t testing.TB, n int, role string) *Job {
	j, err := Start(n, func(int) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0") // otherwise each needs a second to exit
		return cmd
	})
	require.NoError(t, err)
	return j
}

func TestJob(t *testing.T) {
	require.NoError(t, startRole(t, 4, "exchange").Wait(t.Context()))
}

func TestJob_Fails(t *testing.T) {
	err := startRole(t, 3, "fail").Wait(t.Context())
	require.EqualError(t, err, "rank 1: exit status 7")
}

func TestJob_Killed(t *testing.T) {
	j := startRole(t, 2, "hang")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, j.Wait(ctx), context.Canceled)
}

// TestJob_KilledAfterAFailure: a failure is reported, although the context is canceled too, and other ranks are killed
// then.
func TestJob_KilledAfterAFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for role, want := range map[string]string{"leave": "rank 1: exit status 7", "leave well": "rank 1: disconnected before it has closed its client"} {
		for range testenv.Rounds(5, 50) {
			j := startRole(t, 2, role)
			<-j.failed
			require.ErrorContains(t, j.Wait(ctx), want)
		}
	}
}

func TestStart_NoProgram(t *testing.T) {
	_, err := Start(3, func(rank int) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		if cmd.Env = append(os.Environ(), roleVar+"=hang"); rank == 2 {
			cmd.Path = "/nonexistent/program"
		}
		return cmd
	})
	require.ErrorContains(t, err, "start rank 2")
	_, err = Start(0, nil)
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
}

func TestFromEnv(t *testing.T) {
	_, err := FromEnv()
	require.Equal(t, ErrAbsent, err)
	t.Setenv(envFD, "many")
	_, err = FromEnv()
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
}

// TestClient_NoAnswer: the wait for a process manager that does not reply is limited.
func TestClient_NoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		start := time.Now()
		_, err := NewClient(ours, 0, 2)
		require.ErrorIs(t, err, ucs.ErrTimedOut)
		require.Equal(t, answerLimit, time.Since(start))
		require.NoError(t, errors.Join(ours.Close(), theirs.Close()))
	})
}

// TestClient_ContextEnds: a call returns when its context is canceled.
func TestClient_ContextEnds(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *Client) error{
		"put":   func(ctx context.Context, c *Client) error { return c.Put(ctx, "a", []byte{1}) },
		"get":   func(ctx context.Context, c *Client) error { _, err := c.Get(ctx, 0, "a"); return err },
		"fence": func(ctx context.Context, c *Client) error { return c.Fence(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, theirs) }()
				c := &Client{conn: ours, in: newReader(ours), size: 2, keyLen: keyMost, valueLen: serverValue}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				require.ErrorIs(t, call(ctx, c), context.DeadlineExceeded)
				require.Equal(t, time.Second, time.Since(start))
				require.ErrorIs(t, call(ctx, c), context.DeadlineExceeded)
				require.Error(t, call(t.Context(), c), "it cannot be used any more")
				require.NoError(t, errors.Join(ours.Close(), theirs.Close()))
			})
		})
	}
}

// TestClient_LateAnswer: a late reply is not the reply to the next call, which fails at once.
func TestClient_LateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		late := make(chan struct{})
		go func() {
			in := newReader(theirs)
			_, _ = readLine(in)
			<-late
			_, _ = io.WriteString(theirs, message("get_result", "rc", "0", "value", "late").String())
			_, _ = io.Copy(io.Discard, in)
		}()
		c := &Client{conn: ours, in: newReader(ours), size: 2}
		_, err := c.Get(t.Context(), 0, "a")
		require.ErrorIs(t, err, ucs.ErrTimedOut)
		close(late)
		start := time.Now()
		_, err = c.Get(t.Context(), 1, "b")
		require.ErrorIs(t, err, ucs.ErrTimedOut)
		require.ErrorIs(t, c.Close(), ucs.ErrTimedOut)
		require.Zero(t, time.Since(start))
		require.NoError(t, theirs.Close())
	})
}

// exchangeUnder makes four ranks of a command exchange values.
func exchangeUnder(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, append(args, os.Args[0])...)
	cmd.Env = append(os.Environ(), roleVar+"=exchange")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestMpiexec: the process manager of MPICH.
func TestMpiexec(t *testing.T) { exchangeUnder(t, testenv.Command(t, "mpiexec"), "-n", "4") }

// TestSrun: the process manager of Slurm.
func TestSrun(t *testing.T) {
	srun := testenv.Command(t, "srun")
	if out, err := exec.CommandContext(t.Context(), testenv.Command(t, "scontrol"), "ping").CombinedOutput(); err != nil {
		t.Skipf("no Slurm controller: %v: %s", err, out)
	}
	exchangeUnder(t, srun, "--mpi=pmi2", "-n", "4", "--overcommit")
}
