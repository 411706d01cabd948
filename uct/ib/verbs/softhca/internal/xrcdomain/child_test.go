package xrcdomain

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

// roleEnv makes the test binary a member of a domain; it names the file.
const roleEnv = "GUCX_XRCDOMAIN_TEST_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(roleEnv); path != "" {
		if err := runMember(path); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}

// gidFor is the GID of a test's member.
func gidFor(n int) [16]byte { return [16]byte{0xfe, 0x80, 14: byte(n >> 8), 15: byte(n)} }

func joinPath(path string, n int) (*Domain, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return Join(int(f.Fd()), unix.O_CREAT, gidFor(n), func() {})
}

// runMember joins as member 1000, says so, and does what the lines of its input say, each
// answered by a line:
//
//	srq          takes an SRQ number: it
//	unsrq N      gives it back: "ok"
//	qp N         makes a target QP with N in its area: its number
//	open N       refers to a target QP: "ok"
//	close N      takes that back: "true" if it was the last
//	hold         takes the lock for changes and keeps it: "ok"
//
// It leaves at the end of the input.
func runMember(path string) error {
	d, err := joinPath(path, 1000)
	if err != nil {
		return err
	}
	fmt.Println("joined")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var n uint32
		cmd, args, _ := strings.Cut(in.Text(), " ")
		_, _ = fmt.Sscan(args, &n)
		fmt.Println(memberDoes(d, cmd, n))
	}
	return d.Close()
}

func memberDoes(d *Domain, cmd string, n uint32) any {
	var out any = "ok"
	var err error
	switch cmd {
	case "srq":
		out, err = d.AddSRQ(7)
	case "unsrq":
		err = d.RemoveSRQ(n)
	case "qp":
		var number uint32
		if number, err = d.AddQP(); err == nil {
			out = number
			d.Area(number)[0].Store(uint64(n))
		}
	case "open":
		err = d.OpenQP(n)
	case "close":
		out, err = d.CloseQP(n)
	case "hold":
		err = d.lock.change()
	default:
		err = fmt.Errorf("unknown command %q", cmd)
	}
	if err != nil {
		return err
	}
	return out
}

// child is a member in a process of its own.
type child struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startMember(t testing.TB, path string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(os.Args[0])}
	c.Env = append(os.Environ(), roleEnv+"="+path, "GORACE=atexit_sleep_ms=0")
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	c.in, c.out = in, bufio.NewScanner(out)
	t.Cleanup(func() { _ = c.in.Close(); _ = c.Wait() })
	require.Equal(t, "joined", c.line(t))
	return c
}

func (c *child) line(t testing.TB) string {
	t.Helper()
	require.True(t, c.out.Scan(), "the member said nothing")
	return c.out.Text()
}

// tell gives a command and returns the answer.
func (c *child) tell(t testing.TB, format string, args ...any) string {
	t.Helper()
	_, err := fmt.Fprintf(c.in, format+"\n", args...)
	require.NoError(t, err)
	return c.line(t)
}

// number is tell for commands that answer with a number.
func (c *child) number(t testing.TB, format string, args ...any) (n uint32) {
	t.Helper()
	_, err := fmt.Sscan(c.tell(t, format, args...), &n)
	require.NoError(t, err)
	return n
}

// kill ends the process by SIGKILL, and waits until it is gone.
func (c *child) kill(t testing.TB) {
	t.Helper()
	require.NoError(t, c.Process.Kill())
	_ = c.Wait()
}

// leave ends the process in order.
func (c *child) leave(t testing.TB) {
	t.Helper()
	require.NoError(t, c.in.Close())
	require.NoError(t, c.Wait())
}
