package handshake

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/workeraddr"
	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts in testdata print into them")

// TestScripts runs testdata/*.txt. A script has blocks of commands, "----" and
// their output, separated by empty lines. Commands:
//
//	worker a|b uuid=N res=rc,ud,sm@device   declares a side; both before the rest
//	need a rma|amo|am|rma_bw|am_bw an operation needs a lane
//	deliver a [n]                           a gets its n oldest messages
//	drop a                                  a's oldest message is lost
//	repeat a                                a's oldest message arrives, and will arrive again
//	failnext a open|connect rc              the next such action fails
//	break a lane [reset|unreachable]        a lane fails; reset: the peer is gone
//	path a l r                              a cannot connect resource l to r of the peer
//	settle                                  every message is delivered
//	rails a 2                               how many lanes bandwidth roles may have
//	retry 10s                               when both try failed pairs again
//	idle                                    both permit that idle lanes close
//	rest a                                  a has had no operations for a while
//	wait 3s                                 time passes for both
//	lost a                                  messages that a has sent may be lost
//	knows a                                 a knows the other side's id of the connection
//	close a                                 the user closes the connection
//	state                                   prints both sides
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			in, err := os.ReadFile(file)
			require.NoError(t, err)
			out := runScript(t, string(in))
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(out), 0o644))
				return
			}
			assert.Equal(t, string(in), out)
		})
	}
}

func runScript(t *testing.T, text string) string {
	var out strings.Builder
	s := script{t: t, addrs: map[string]*wireup.Address{}}
	for i, block := range strings.Split(strings.TrimRight(text, "\n"), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		commands, _, found := strings.Cut(block, "\n----")
		out.WriteString(commands + "\n")
		s.out = nil
		for line := range strings.Lines(commands) {
			if f := strings.Fields(line); len(f) > 0 && f[0] != "#" {
				s.command(f)
			}
		}
		if found || len(s.out) > 0 {
			out.WriteString("----\n")
		}
		for _, line := range s.out {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

type script struct {
	t     *testing.T
	addrs map[string]*wireup.Address
	a, b  *side
	out   []string
}

func (s *script) command(f []string) {
	switch f[0] {
	case "worker":
		s.worker(f)
	case "wait":
		d, err := time.ParseDuration(f[1])
		require.NoError(s.t, err)
		pass(s.a, s.b, d)
		s.flushLogs()
	case "retry":
		d, err := time.ParseDuration(f[1])
		require.NoError(s.t, err)
		s.side("a").conn.p.Retry, s.side("b").conn.p.Retry = d, d
	case "idle":
		s.side("a").conn.p.Idle, s.side("b").conn.p.Idle = true, true
	case "settle":
		settle(s.t, s.a, s.b)
		s.flushLogs()
	case "state":
		s.out = append(s.out, s.a.state(), s.b.state())
	default:
		s.act(s.side(f[1]), f)
		s.flushLogs()
	}
}

func (s *script) flushLogs() {
	s.out = append(append(s.out, s.a.log...), s.b.log...)
	s.a.log, s.b.log = nil, nil
}

func (s *script) side(name string) *side {
	if s.a == nil {
		require.Len(s.t, s.addrs, 2, "declare both workers first")
		s.a, s.b = link(s.t, s.addrs["a"], s.addrs["b"])
	}
	switch name {
	case "a":
		return s.a
	case "b":
		return s.b
	}
	require.Fail(s.t, "no side "+name)
	return nil
}

func (s *script) worker(f []string) {
	uuid, err := strconv.ParseUint(strings.TrimPrefix(f[2], "uuid="), 0, 64)
	require.NoError(s.t, err)
	names := strings.Split(strings.TrimPrefix(f[3], "res="), ",")
	s.addrs[f[1]] = workeraddr.Make(s.t, uuid, names...)
}

func (s *script) act(x *side, f []string) {
	switch f[0] {
	case "rest":
		x.handle(Event{Kind: NoOperations})
	case "need":
		x.handle(Event{Kind: NeedLane, Role: roleNamed(s.t, f[2])})
	case "deliver":
		n := 1
		if len(f) > 2 {
			var err error
			n, err = strconv.Atoi(f[2])
			require.NoError(s.t, err)
		}
		for range n {
			x.deliver(s.t)
		}
	case "drop":
		x.inbox = x.inbox[1:]
	case "repeat":
		x.receive(s.t, x.inbox[0])
	case "failnext":
		x.fails[f[2]+" "+f[3]] = true
	case "break":
		lane, err := strconv.Atoi(f[2])
		require.NoError(s.t, err)
		st := map[string]ucs.Status{"": ucs.StatusTimedOut, "reset": ucs.StatusConnReset, "unreachable": ucs.StatusUnreachable}
		x.handle(Event{Kind: LaneFailed, Lane: lane, Status: st[strings.Join(f[3:], " ")]})
	case "path":
		l, err := strconv.Atoi(f[2])
		require.NoError(s.t, err)
		r, err := strconv.Atoi(f[3])
		require.NoError(s.t, err)
		x.handle(Event{Kind: PathFailed, Local: l, Remote: r, Status: ucs.StatusTimedOut})
	case "lost":
		x.handle(Event{Kind: SendingFailed})
	case "rails":
		n, err := strconv.Atoi(f[2])
		require.NoError(s.t, err)
		x.conn.p.Rails = selection.Rails{RMA: n, AM: n}
	case "knows":
		x.conn.p.PeerEP = x.peer.conn.p.LocalEP
	case "close":
		x.handle(Event{Kind: Closed})
	default:
		require.Fail(s.t, "unknown command "+f[0])
	}
}

func roleNamed(t testing.TB, name string) wireup.Role {
	for p := range wireup.Aux + 1 {
		if p.String() == name {
			return p
		}
	}
	require.Fail(t, "no role "+name)
	return 0
}

func (s *side) state() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: remote=%d quiet=%v ignored=%d", s.name, s.conn.RemoteEP(), s.conn.Quiet(), s.conn.Ignored())
	for i := range s.lanes {
		if l := &s.lanes[i]; l.open {
			fmt.Fprintf(&b, " lane%d{%s %s %s>%s}", i, l.transport, l.uses, l.addr, l.peer)
		}
	}
	if s.err != ucs.StatusOK {
		fmt.Fprintf(&b, " failed: %s", s.err)
	}
	return b.String()
}
