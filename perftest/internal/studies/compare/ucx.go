package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// Names of the programs of UCX, and of the Debian package that contains them.
const (
	ucxPerftest = "ucx_perftest"
	ucxInfo     = "ucx_info"
	ucxPackage  = "ucx-utils"
)

// ErrMissing is the error if UCX is not installed.
var ErrMissing = errors.New("skipped: " + ucxPerftest + " is missing; install the package " + ucxPackage)

// ucx runs ucx_perftest.
type ucx struct {
	path           string
	client, server int // CPUs
	limit          time.Duration
}

// findUCX searches for the program in the PATH.
func findUCX(client, server int, limit time.Duration) (*ucx, error) {
	path, err := exec.LookPath(ucxPerftest)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrMissing, err)
	}
	return &ucx{path: path, client: client, server: server, limit: limit}, nil
}

// maxUCXWarmup is the default of -w.
const maxUCXWarmup = 10_000

// args returns the common arguments of client and server. A tenth of the operations is for warm-up.
func (u *ucx) args(c Case, ops int) []string {
	args := []string{"-t", c.UCX.Test, "-s", strconv.Itoa(c.Size), "-n", strconv.Itoa(ops),
		"-w", strconv.Itoa(min(ops/10+1, maxUCXWarmup)), "-f", "-v"} // only the final results, as CSV
	if c.Layout == LayoutUCP {
		return args
	}
	return append(args, "-x", c.UCX.Transport, "-d", c.UCX.Device, "-D", c.ucxLayout())
}

// run measures about ops operations and returns the nanoseconds per operation.
func (u *ucx) run(ctx context.Context, c Case, ops int) (ns float64, err error) {
	ctx, cancel := limited(ctx, u.limit)
	defer cancel()
	var out string
	if c.UCX.Loop {
		out, err = u.loop(ctx, c, ops)
	} else {
		out, err = u.pair(ctx, c, ops)
	}
	if err != nil {
		return 0, err
	}
	if ns, err = parseUCX(out, ops); err != nil {
		return 0, fmt.Errorf("%s: %w", u.path, err)
	}
	return ns, nil
}

// loop runs a process that sends to itself.
func (u *ucx) loop(ctx context.Context, c Case, ops int) (out string, err error) {
	p := u.process(ctx, c, append([]string{"-l", "-c", strconv.Itoa(u.client)}, u.args(c, ops)...))
	err = p.run(ctx)
	return p.stdout.String(), err
}

// pair runs a server and, when it listens, a client.
func (u *ucx) pair(ctx context.Context, c Case, ops int) (out string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	port, err := freePort()
	if err != nil {
		return "", err
	}
	at := []string{"-p", strconv.Itoa(port)}
	server := u.process(ctx, c, append(append(at, "-c", strconv.Itoa(u.server)), u.args(c, ops)...))
	if err := server.start(ctx); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() {
		err := server.wait(ctx)
		if err != nil {
			cancel(err) // the client would wait for it
		}
		ended <- err
	}()
	client := u.process(ctx, c, append(append([]string{"127.0.0.1", "-c", strconv.Itoa(u.client)}, at...), u.args(c, ops)...))
	if err = awaitListener(ctx, port); err == nil {
		err = client.run(ctx)
	}
	if err != nil {
		cancel(err)
	}
	if serverErr := <-ended; err == nil {
		err = serverErr
	}
	return client.stdout.String(), err
}

// quietEnv prevents warnings of UCX about variables of other programs.
const quietEnv = "UCX_WARN_UNUSED_ENV_VARS=n"

func (u *ucx) process(ctx context.Context, c Case, args []string) *process {
	p := newProcess(ctx, u.path, args...)
	p.cmd.Env = append(append(os.Environ(), quietEnv), c.env()...)
	return p
}

// versionLine is the line of the version in the output of ucx_info -v: "# Version 1.13.1" up to
// 1.13, "# Library version: 1.14.0" since.
var versionLine = regexp.MustCompile(`(?i)version:?\s+(\d[\w.]*)`)

// ucxVersion returns the version that ucx_info prints; "unknown" after an error.
func ucxVersion(ctx context.Context) string {
	p := newProcess(ctx, ucxInfo, "-v")
	if p.run(ctx) == nil {
		if m := versionLine.FindStringSubmatch(p.stdout.String()); m != nil {
			return m[1]
		}
	}
	return "unknown"
}
