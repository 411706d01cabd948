package ucxpeer_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp/ucxpeer"
)

// asGoPeer makes the test binary the process that testGoKilled kills.
const asGoPeer = "GUCX_TEST_UCXPEER_PROCESS"

// runGoPeer prints its address, reads that of UCX, and then has operations of many types in progress: no puts and gets, whose completions UCX aborts for,
// until it is killed. It prints a line now and then.
func runGoPeer(in io.Reader, out io.Writer) error {
	w, err := ucxpeer.NewWorker(ucxpeer.Config{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%x\n", w.Address())
	var address string
	if _, err := fmt.Fscan(in, &address); err != nil {
		return err
	}
	b, err := hex.DecodeString(address)
	if err != nil {
		return err
	}
	ep, err := w.NewEP(b, ucxpeer.EPConfig{PeerErrors: true})
	if err != nil {
		return err
	}
	receive := make([]byte, 1<<20)
	var pending []*ucxpeer.Request
	for step := 0; ep.Err() == nil; step++ {
		if step%1000 == 0 && step < 1<<20 {
			fmt.Fprintln(out, step)
		}
		for len(pending) > 0 && pending[0].Done() {
			pending = pending[1:]
		}
		if len(pending) < 16 && step%10 == 0 {
			var r *ucxpeer.Request
			switch step / 10 % 4 {
			case 0:
				r, err = ep.SendActive(7, []byte("header"), receive[:1000], &ucxpeer.OpParams{Reply: true})
			case 1:
				r, err = ep.TagSendSync(uint64(step), receive[:100], nil)
			case 2:
				r, err = w.TagRecv(receive, 1000, all, nil, nil)
			default:
				r, err = ep.Flush()
			}
			if err != nil {
				return err
			}
			pending = append(pending, r)
		}
		w.Progress()
	}
	return ep.Err()
}

// testGoKilled kills the Go side at random points, running and stopped: the program with UCX gets its error, and another peer of
// that program continues, also while the one is stopped. One that continues after it was stopped loses nothing.
func testGoKilled(t *testing.T, ucx string) {
	random := rand.New(rand.NewPCG(11, 7))
	self, err := os.Executable()
	require.NoError(t, err)
	for round := range testenv.Rounds(5, 200) {
		w := newWorker(t, ucxpeer.Config{})
		p := &pair{startUCX(t, ucx, w), nil, ""}
		p.do("errors")
		p.ep = connectTo(t, w, p.program, ucxpeer.EPConfig{PeerErrors: true})
		p.do("connect %x", w.Address())
		addr, key := p.memory()
		goesOn := func(seed int) {
			want := pattern(1000, seed)
			require.NoError(t, p.wait(p.ep.Put(want, addr, key, nil)))
			require.NoError(t, p.wait(p.ep.Flush()))
			got := make([]byte, len(want))
			require.NoError(t, p.wait(p.ep.Get(got, addr, key, nil)))
			require.Equal(t, want, got)
		}
		goesOn(round)

		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), asGoPeer+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan())
		p.do("connect %s", lines.Text()) // later commands use this one
		fmt.Fprintln(in, p.do("address"))
		p.command("tagsend 1000 %d 1", 1<<20)
		for range 1 + random.IntN(20) {
			require.True(t, lines.Scan())
			w.Progress()
		}

		stopped := round%2 == 1
		if stopped {
			require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
			goesOn(round + 2)
			if round%4 == 1 { // the process continues
				require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
				assert.Empty(t, p.result(), "the message of UCX")
			}
		}
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
		if !stopped || round%4 == 3 {
			p.until(func() bool { return len(p.lines) > 0 })
			<-p.lines // the result of the send
		}
		assert.NotEmpty(t, p.do("lost"), "the error of UCX")
		goesOn(round + 1)
		require.NoError(t, p.ep.Err())
		require.NoError(t, w.Close())
		require.NoError(t, p.in.Close())
	}
}
