package cli

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
	"github.com/gucx/gucx/ucs/config"
)

// servingIn starts a server in a network namespace, as on another host, and returns it with its address.
func servingIn(t *testing.T, c *testenv.Cable, env string) (p *running, addr string) {
	exe, err := os.Executable()
	require.NoError(t, err)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	args := []string{"netns", "exec", c.NS, exe, "server", c.FarAddr.String(), "-p", "0"}
	cmd := exec.Command("ip", args...)
	own := rerun(w)
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = append(own.Env, env), own.Stderr, own.SysProcAttr
	p = newRunning(cmd, r)
	p.begin(t, w)
	words := strings.Fields(p.line(t, "waiting for clients"))
	return p, words[len(words)-1]
}

// A server and a client on two hosts are two commands: here the hosts are network namespaces with a cable between them.
// The devices are those of docs/perftest.md.
func TestTwoHosts_TCP(t *testing.T) {
	c := testenv.NewCable(t)
	server, addr := servingIn(t, c, "GUCX_TCP_DEVICES="+c.Far)

	client := func(args ...string) (code int, out, errs string) {
		var stdout, stderr bytes.Buffer
		cmd := rerun(&stderr, append(append([]string{"client", addr}, args...), quick...)...)
		cmd.Env = append(cmd.Env, "GUCX_TCP_DEVICES="+c.Near)
		cmd.Stdout = &stdout
		err := cmd.Run()
		if err != nil {
			require.ErrorAs(t, err, new(*exec.ExitError))
		}
		return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
	code, out, errs := client("-x", "tcp", "-t", "put_lat,am_lat,put_bw", "-o", "json")
	require.Equal(t, exitOK, code, errs)
	run, recs := records(t, out)
	assert.Len(t, recs, 3*2*2, "tests, sizes, and the layers uct and ucp")
	assert.Equal(t, c.Near, run.Settings.Device)

	for transport, want := range map[string]string{"sm": "another host, and sm reaches", "rc": "fabric of the software HCA reaches processes of this host only"} {
		code, _, errs := client("-x", transport, "-t", "put_lat")
		assert.Equal(t, exitUsage, code, errs)
		assert.Contains(t, errs, want)
	}

	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	code, stderr := server.wait(t)
	assert.Equal(t, 143, code, stderr)
}

// A server opens the device that the client names if GUCX_NET_DEVICES of the server permits it, otherwise its own.
func TestOwnDevice(t *testing.T) {
	var cfg layers.Config
	assert.Nil(t, ownDevice(cfg), "without a list the client decides")
	cfg.UCP.NetDevices = config.Allow("softhca0:1")
	choose := ownDevice(cfg)
	for client, want := range map[string]string{"rxe9:1": "softhca0:1", "softhca0": "softhca0", "softhca0:1": "softhca0:1", "": "softhca0:1"} {
		assert.Equal(t, want, choose(oob.Params{Transport: "rc", Device: client, Fabric: "shm"}), client)
	}
	assert.Equal(t, "eth0", choose(oob.Params{Transport: "tcp", Device: "eth0", Fabric: "shm"}), "the list has no device of tcp")
}
