package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/ucs"
)

// roleEnv has the test's program be the command.
const roleEnv = "KEYVALUE_TEST_COMMAND"

// hang is after how long nothing will happen any more.
const hang = 3 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func Example() {
	_ = run(context.Background(), os.Stdout, "", "", nil)
	// Output: blue
}

// process is the command in a process of its own.
func process(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleEnv+"=1", "GORACE=atexit_sleep_ms=0") // else it takes a second to end
	return cmd
}

// startServer starts a server in a process of its own.
func startServer(t *testing.T) (cmd *exec.Cmd, addr string) {
	cmd = process(t, "-listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	require.True(t, ok, line)
	return cmd, addr
}

// TestProcesses: clients of other processes write and read, and the server ends in order.
func TestProcesses(t *testing.T) {
	server, addr := startServer(t)
	for _, step := range []struct{ command, want string }{
		{"get colour", "keyvalue: no such key\n"},
		{"set colour blue", ""},
		{"get colour", "blue\n"},
		{"set colour " + strings.Repeat("x", maxContent), "keyvalue: key and value are too long, or the key is empty\n"},
		{"set colour", "keyvalue: want: set KEY VALUE, or get KEY\n"},
	} {
		out, _ := process(t, append([]string{"-dial", addr}, strings.Fields(step.command)...)...).CombinedOutput()
		assert.Equal(t, step.want, string(out), step.command)
	}
	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, server.Wait())
}

// openClient is a client in this process.
func openClient(t *testing.T, ctx context.Context, addr string) *client {
	c, err := gucx.Open()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	cl, err := dialServer(ctx, c, addr)
	require.NoError(t, err)
	t.Cleanup(cl.close)
	return cl
}

// TestReadsWhileWritten: a value that one client reads while others write it is always one that
// was written, and the newest once its writer has been answered.
func TestReadsWhileWritten(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	_, addr := startServer(t)
	reader, writer := openClient(t, ctx, addr), openClient(t, ctx, addr)
	value := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 1+i%200) }
	require.NoError(t, writer.set(ctx, "k", value(0)))

	written := make(chan error, 1)
	const writes = 500
	go func() {
		for i := range writes {
			if err := writer.set(ctx, "k", value(i)); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for done := false; !done; {
		select {
		case err := <-written:
			require.NoError(t, err)
			done = true
		default:
		}
		got, err := reader.get(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, strings.Repeat(got[:1], len(got)), got)
	}
	got, err := reader.get(ctx, "k")
	require.NoError(t, err)
	assert.Equal(t, value(writes-1), got)
}

// TestServerKilled: a client is told that its server has died, also while it waits for a reply.
func TestServerKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	server, addr := startServer(t)
	cl := openClient(t, ctx, addr)
	require.NoError(t, cl.set(ctx, "k", "v"))
	require.NoError(t, server.Process.Kill())
	_ = server.Wait()
	_, err := cl.reply(ctx)
	assert.ErrorIs(t, err, ucs.ErrConnReset)
	assert.ErrorIs(t, cl.set(ctx, "k", "v"), ucs.ErrEPFailed)
	_, err = cl.get(ctx, "k")
	assert.ErrorIs(t, err, ucs.ErrEPFailed)
}

// TestServer_Set: whatever a request holds, the server answers, and its table stays as it is.
func TestServer_Set(t *testing.T) {
	c, err := gucx.Open()
	require.NoError(t, err)
	defer c.Close()
	s, err := newServer(t.Context(), c, "127.0.0.1:0")
	require.NoError(t, err)
	defer s.close()
	for _, request := range []string{"", "\x01", "\x02\x00k", "\x00\x00value", "\xff\xffk", "\x01\x00k" + strings.Repeat("x", maxContent)} {
		assert.ErrorIs(t, s.set([]byte(request)), errTooLong, "%q", request)
	}
	for i := range slots {
		require.NoError(t, s.set(fmt.Appendf(nil, "\x06\x00%06dvalue", i)))
	}
	assert.ErrorIs(t, s.set([]byte("\x01\x00kvalue")), errFull)
	assert.NoError(t, s.set([]byte("\x06\x00000007other")))
}

// FuzzReadSlot: a slot may hold anything, as it comes from a peer.
func FuzzReadSlot(f *testing.F) {
	whole := make([]byte, slotLen)
	writeSlot(whole, "key", "value")
	f.Add(whole)
	f.Add(make([]byte, slotLen))
	f.Fuzz(func(t *testing.T, slot []byte) {
		slot = append(slot, make([]byte, slotLen)...)[:slotLen]
		key, value, err := readSlot(slot)
		if err != nil || key == "" {
			return
		}
		again := make([]byte, slotLen)
		writeSlot(again, key, value)
		assert.Equal(t, slot[:slotHead+len(key)+len(value)], again[:slotHead+len(key)+len(value)])
	})
}
