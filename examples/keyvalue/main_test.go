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
func startServer(t *testing.T, at string) (cmd *exec.Cmd, addr string) {
	cmd = process(t, "-listen", at)
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
	server, addr := startServer(t, "127.0.0.1:0")
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
	t.Cleanup(func() { assert.NoError(t, cl.calls.Close()) })
	return cl
}

// TestReadsWhileWritten: a value that one client reads while others write it is always one that
// was written, and the newest once its writer has been answered.
func TestReadsWhileWritten(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	_, addr := startServer(t, "127.0.0.1:0")
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

// TestServerRestarted: a client whose server was killed goes on with the next one at the address, whose table is empty.
func TestServerRestarted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	server, addr := startServer(t, "127.0.0.1:0")
	cl := openClient(t, ctx, addr)
	require.NoError(t, cl.set(ctx, "k", "v"))
	require.NoError(t, server.Process.Kill())
	_ = server.Wait()
	startServer(t, addr)
	_, err := cl.get(ctx, "k")
	require.ErrorIs(t, err, errNoKey)
	require.NoError(t, cl.set(ctx, "k", "w"))
	value, err := cl.get(ctx, "k")
	require.NoError(t, err)
	assert.Equal(t, "w", value)
}

// TestTable_Set: whatever a request holds, the table stays as it is.
func TestTable_Set(t *testing.T) {
	table := make(table, slots*slotLen)
	for _, request := range []string{"", "\x01", "\x02\x00k", "\x00\x00value", "\xff\xffk", "\x01\x00k" + strings.Repeat("x", maxContent)} {
		assert.ErrorIs(t, table.set([]byte(request)), errTooLong, "%q", request)
	}
	for i := range slots {
		require.NoError(t, table.set(fmt.Appendf(nil, "\x06\x00%06dvalue", i)))
	}
	assert.ErrorIs(t, table.set([]byte("\x01\x00kvalue")), errFull)
	assert.NoError(t, table.set([]byte("\x06\x00000007other")))
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
