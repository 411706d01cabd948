package ucprpc

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/all"
)

// roleEnv makes this test binary a server process. Its value has the transports and the address.
const roleEnv = "GUCX_TEST_UCPRPC_SERVER"

func TestMain(m *testing.M) {
	role := strings.Fields(os.Getenv(roleEnv))
	if len(role) == 0 {
		testenv.Main(m)
	}
	if err := serveRole(role[0], role[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveRole serves until standard input ends.
func serveRole(tls, address string) error {
	c, err := ucp.NewContext(ucp.Config{TLS: config.Allow(strings.Split(tls, ",")...)}, all.Components()...)
	if err != nil {
		return err
	}
	s, err := Listen(ucpContext, c, "unix", address, testServer())
	if err != nil {
		return err
	}
	fmt.Println("ready")
	bufio.NewScanner(os.Stdin).Scan()
	return s.Close()
}

// startServer starts a server process, which is killed when the test ends.
func startServer(t testing.TB, tls, address string) *testenv.Subprocess {
	t.Helper()
	cmd := testenv.Self(roleEnv + "=" + tls + " " + address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := testenv.StartSubprocess(t, cmd)
	require.Equal(t, "ready", p.Line(t))
	return p
}

var names uatomic.Int64

// freshName is an abstract name that no other test has.
func freshName() string { return fmt.Sprintf("@gucx-ucprpc-%d-%d", os.Getpid(), names.Inc()) }

func newContext(t testing.TB, tls string) *ucp.Context {
	t.Helper()
	c, err := ucp.NewContext(ucp.Config{TLS: config.Allow(strings.Split(tls, ",")...)}, all.Components()...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// sets are the sets of transports for tests.
var sets = []string{"sm", "tcp", `\rc`}

func overAll(t *testing.T, f func(t *testing.T, tls string)) {
	for _, tls := range sets {
		t.Run(tls, func(t *testing.T) { f(t, tls) })
	}
}

const hang = testenv.Watchdog

// listen starts a server that is closed when the test ends.
func listen(t testing.TB, c *ucp.Context, address string, cfg ServerConfig) *Server {
	t.Helper()
	s, err := Listen(t.Context(), c, "unix", address, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// dial connects a client that is closed when the test ends. Unless cfg says otherwise, only a hang reaches its limit for
// connecting again.
func dial(t testing.TB, c *ucp.Context, address string, cfg ClientConfig) *Client {
	t.Helper()
	cfg.WaitConnected = cmp.Or(cfg.WaitConnected, hang)
	cl, err := Dial(t.Context(), c, "unix", address, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, cl.Close()) })
	return cl
}

// newPair returns a client of a server, in one context.
func newPair(t testing.TB, tls string, cfg ServerConfig) (*Server, *Client) {
	t.Helper()
	c := newContext(t, tls)
	s := listen(t, c, freshName(), cfg)
	return s, dial(t, c, s.Addr().String(), ClientConfig{})
}

// eventually waits until ok reports true.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !ok(); time.Sleep(time.Millisecond) {
		require.False(t, time.Now().After(end), "it does not happen")
	}
}
