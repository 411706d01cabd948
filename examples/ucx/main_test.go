package main

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/ucxpeer"
)

const limit = 60 * time.Second

// includeEnv names a folder with UCX's headers, where they are not installed.
const includeEnv = "GUCX_TEST_UCX_INCLUDE"

// buildSum builds testdata/sum.c. The test skips if that cannot be built here.
func buildSum(t *testing.T) string {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("there is no gcc to build testdata/sum.c")
	}
	binary := filepath.Join(t.TempDir(), "sum")
	args := []string{"-O1", "-o", binary, "testdata/sum.c"}
	if include := os.Getenv(includeEnv); include != "" {
		args = append(args, "-I", include)
	}
	args = append(args, "-l:libucp.so.0", "-l:libucs.so.0", "-Wl,--allow-shlib-undefined")
	if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		t.Skipf("testdata/sum.c cannot be built here, as libucx-dev is not installed: %v\n%.300s", err, out)
	}
	return binary
}

// sumCommand runs it over tcp of loopback, as long as this process lives.
func sumCommand(ctx context.Context, binary string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), "UCX_TLS=tcp", "UCX_NET_DEVICES=lo", "UCX_LOG_LEVEL=error")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// startService runs the service in Go until the test ends. It returns the context of the service and its address.
func startService(t *testing.T) (context.Context, string) {
	ctx, stop := context.WithTimeout(context.Background(), limit)
	addr := make(chan string, 1)
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, serve(ctx, "127.0.0.1:0", func(a string) { addr <- a })) })
	t.Cleanup(func() { stop(); serving.Wait() })
	return ctx, <-addr
}

// TestGoServesC has clients with UCX call the service in Go, with requests of all lengths.
func TestGoServesC(t *testing.T) {
	binary := buildSum(t)
	runtime.LockOSThread() // Pdeathsig is that of the thread
	defer runtime.UnlockOSThread()
	ctx, addr := startService(t)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	for _, length := range []string{"0", "1", "10000", "1000000"} {
		out, err := sumCommand(ctx, binary, "call", port, length, "3").Output()
		require.NoError(t, err, "%s bytes", length)
		assert.True(t, strings.HasPrefix(string(out), "sum: "), "%s", out)
	}
}

// layoutOf is the layout of the release that the program uses: 1.13 can abort when it has rejected a client, as
// LayoutAuto makes it do.
func layoutOf(t *testing.T, binary string) ucxpeer.Layout {
	out, err := exec.Command(binary, "version").Output()
	require.NoError(t, err)
	_, minor, _ := strings.Cut(strings.TrimSpace(string(out)), ".")
	n, err := strconv.Atoi(minor)
	require.NoError(t, err)
	if n < 14 {
		return ucxpeer.LayoutBefore14
	}
	return ucxpeer.LayoutSince14
}

// TestGoCallsC has the client in Go call a service with UCX.
func TestGoCallsC(t *testing.T) {
	binary := buildSum(t)
	layout := layoutOf(t, binary)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, stop := context.WithTimeout(context.Background(), limit)
	defer stop()
	cmd := sumCommand(ctx, binary, "serve", "0")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	addr := strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	for _, n := range []int{0, 1, 10000, 1000000} {
		data := make([]byte, n)
		want := uint64(0)
		for i := range data {
			data[i] = byte(i * 7)
			want += uint64(data[i])
		}
		sum, err := call(ctx, addr, layout, data)
		require.NoError(t, err, "%d bytes", n)
		assert.Equal(t, want, sum)
	}
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
}

// TestGoCallsGo needs no UCX.
func TestGoCallsGo(t *testing.T) {
	ctx, addr := startService(t)
	sum, err := call(ctx, addr, ucxpeer.LayoutAuto, []byte{1, 2, 3})
	require.NoError(t, err)
	assert.Equal(t, uint64(6), sum)
}
