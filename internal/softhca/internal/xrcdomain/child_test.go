package xrcdomain

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
)

// roleEnv makes the test binary a member of a domain; its value is the file.
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

// gidFor returns the GID of a member of a test.
func gidFor(n int) [16]byte { return [16]byte{0xfe, 0x80, 14: byte(n >> 8), 15: byte(n)} }

func joinPath(path string, n int) (*Domain, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return Join(int(f.Fd()), unix.O_CREAT, gidFor(n), func() {})
}

// runMember joins as member 1000, prints a line, and executes the commands on its input. It replies to each
// with a line:
//
//	srq          adds an SRQ: its number
//	unsrq N      removes an SRQ: "ok"
//	qp N         adds a target QP with N in its area: its number
//	open N       opens a target QP: "ok"
//	close N      closes a target QP: "true" if it was the last reference
//	hold         acquires the lock for changes and never releases it: "ok"
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
		err = d.lock.lockChanges()
	default:
		err = fmt.Errorf("unknown command %q", cmd)
	}
	if err != nil {
		return err
	}
	return out
}

// child is a member in another process.
type child struct{ *testenv.Subprocess }

func startMember(t testing.TB, path string) *child {
	t.Helper()
	c := &child{testenv.StartSubprocess(t, testenv.Self(roleEnv+"="+path))}
	require.Equal(t, "joined", c.Line(t))
	return c
}

// do sends a command and returns the reply.
func (c *child) do(t testing.TB, format string, args ...any) string {
	t.Helper()
	c.Tell(t, format, args...)
	return c.Line(t)
}

// number is do for commands whose reply is a number.
func (c *child) number(t testing.TB, format string, args ...any) (n uint32) {
	t.Helper()
	_, err := fmt.Sscan(c.do(t, format, args...), &n)
	require.NoError(t, err)
	return n
}
