package kvstore

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
)

// roleEnv makes this test binary a server in a process of its own. Its value is a Config in JSON.
const roleEnv = "KVSTORE_TEST_SERVER"

// hang is after how long nothing will happen any more.
const hang = 3 * time.Minute

func TestMain(m *testing.M) {
	role, client := os.Getenv(roleEnv), os.Getenv(clientEnv)
	if role == "" && client == "" {
		os.Exit(m.Run())
	}
	run, value := serveRole, role
	if client != "" {
		run, value = runClientRole, client
	}
	if err := run(value); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveRole serves until standard input ends.
func serveRole(role string) error {
	var cfg Config
	if err := json.Unmarshal([]byte(role), &cfg); err != nil {
		return err
	}
	c, err := gucx.Open()
	if err != nil {
		return err
	}
	s, err := Listen(context.Background(), c, cfg)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	go func() {
		for ; s.Serving() != nil; time.Sleep(time.Millisecond) {
		}
		fmt.Println("serving")
		if os.Getenv(serviceTimeEnv) != "" {
			reportForever(func() report { return reportServer(s) })
		}
	}()
	bufio.NewScanner(os.Stdin).Scan()
	return s.Close()
}

// process is a server in a process of its own, which is killed when the test ends.
type process struct {
	t   testing.TB
	cfg Config
	tls string // transports, as GUCX_TLS; "" means the default
	cmd *exec.Cmd
	out <-chan string // lines, except reports

	client   *clientRole       // what the process is; a server with cfg if that is nil
	onReport func(line string) // called with each report; may be nil
}

func startProcess(t testing.TB, cfg Config) *process {
	t.Helper()
	p := &process{t: t, cfg: cfg}
	p.start()
	t.Cleanup(p.kill)
	return p
}

// startReplicas starts two servers, of which the first one is the primary, and waits until they are in sync.
func startReplicas(t testing.TB, cfg Config) [2]*process {
	t.Helper()
	return startReplicasOver(t, "all", cfg)
}

// startReplicasOver is startReplicas with servers that use the given transports.
func startReplicasOver(t testing.TB, tls string, cfg Config) [2]*process {
	t.Helper()
	if tls == "tcp" {
		testenv.SkipRace(t, "the worker of a server reads the table for clients while the server writes it: checksums find that")
	}
	cfg.Network = "unix"
	a, b := cfg, cfg
	a.Address, b.Address = freshName(), freshName()
	a.Other, b.Other = b.Address, a.Address
	a.New = true
	p := [2]*process{{t: t, cfg: a, tls: tls}, {t: t, cfg: b, tls: tls}}
	for _, p := range p {
		p.start()
		t.Cleanup(p.kill)
	}
	p[0].line("serving")
	p[1].line("serving")
	p[0].cfg.New = false // from the next start on
	return p
}

// start starts the process, and waits until it listens.
func (p *process) start() {
	p.t.Helper()
	name, role := roleEnv, any(p.cfg)
	if p.client != nil {
		name, role = clientEnv, p.client
	}
	value, err := json.Marshal(role)
	require.NoError(p.t, err)
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), name+"="+string(value), "GORACE=atexit_sleep_ms=0")
	if p.tls != "" {
		p.cmd.Env = append(p.cmd.Env, "GUCX_TLS="+p.tls)
	}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	_, err = p.cmd.StdinPipe() // ends with this process
	require.NoError(p.t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, p.cmd.Start())
	lines := make(chan string, 2)
	p.out = lines
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			if line, found := strings.CutPrefix(scanner.Text(), reportPrefix); !found {
				lines <- scanner.Text()
			} else if p.onReport != nil {
				p.onReport(line)
			}
		}
	}()
	p.line("listening")
}

// line waits for a line of the process.
func (p *process) line(want string) {
	p.t.Helper()
	select {
	case line := <-p.out:
		require.Equal(p.t, want, line)
	case <-time.After(hang):
		require.Fail(p.t, "the process is silent", want)
	}
}

// kill ends the process at once. After that onReport is not called.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	for range p.out {
	}
	_ = p.cmd.Wait()
}

var names uatomic.Int64

// freshName is an abstract name of a unix socket that no other test has.
func freshName() string { return fmt.Sprintf("@gucx-kvstore-%d-%d", os.Getpid(), names.Inc()) }

func newContext(t testing.TB) *ucp.Context {
	t.Helper()
	c, err := gucx.Open()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// listen makes a server in this process that is closed when the test ends.
func listen(t testing.TB, cfg Config) *Server {
	t.Helper()
	cfg.Network, cfg.Address = "unix", freshName()
	s, err := Listen(t.Context(), newContext(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// dial connects a client that is closed when the test ends.
func dial(t testing.TB, addresses ...string) *Client {
	t.Helper()
	cl, err := Dial(t.Context(), newContext(t), ClientConfig{Network: "unix", Addresses: addresses})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, cl.Close()) })
	return cl
}

// long is a text that no limit permits.
var long = strings.Repeat("x", MaxValue+1)
