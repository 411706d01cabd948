package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// programEnv makes this test binary the program.
const programEnv = "EXAMPLE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) == "" {
		os.Exit(m.Run())
	}
	main()
}

// program is the program with arguments, as a process that ends with this one.
func program(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// TestProcesses: a client calls a server in another process, which then ends as it is told.
func TestProcesses(t *testing.T) {
	for _, over := range []string{"gucx", "tcp"} {
		t.Run(over, func(t *testing.T) {
			server := program(t, "-over", over, "-listen", "127.0.0.1:0")
			out, err := server.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			address := strings.TrimSpace(strings.TrimPrefix(line, "listening at "))
			said, err := program(t, "-over", over, "-dial", address, "hello", "there").Output()
			if err != nil {
				t.Fatal(err)
			}
			if want := "the server says: hello there\n"; string(said) != want {
				t.Errorf("got %q, want %q", said, want)
			}
			if err := server.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := server.Wait(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestBench: the table has a row for each variant of each service.
func TestBench(t *testing.T) {
	t.Setenv(programEnv, "1")
	t.Setenv("GUCX_TLS", "")
	t.Setenv("GUCX_SPIN_POLLS", "0")
	var out bytes.Buffer
	if err := runBench(&out, "", 1, 5*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, s := range services {
		for _, v := range variants {
			if s.over(v.over) && !strings.Contains(out.String(), s.name+", "+v.name) {
				t.Errorf("%s, %s is missing in\n%s", s.name, v.name, out.String())
			}
		}
	}
}
