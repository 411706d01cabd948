package ucp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/all"
)

func init() {
	roles.Register("dial", dialRole)
	roles.Register("guest", guestRole)
}

// dialRole dials a listener, puts a number into the memory that it publishes as "all", and disconnects as the parent
// says: "close" closes the EP first, "exit" does not. Its arguments are transports, network, address and the number.
func dialRole(c *roles.Side) error {
	ctx, err := ucppair.OpenContext(c.Args[0])
	if err != nil {
		return err
	}
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return err
	}
	p, err := w.Dial(context.Background(), c.Args[1], c.Args[2], ucp.DialConfig{Private: []byte(c.Args[3])})
	if err != nil {
		return err
	}
	key := p.Keys["all"]
	if err := p.EP.PutWait(context.Background(), []byte(c.Args[3]), key.Addr(), key, nil); err != nil {
		return err
	}
	if err := p.EP.FlushWait(context.Background()); err != nil {
		return err
	}
	c.Printf("connected")
	if c.NextLine() && c.In.Text() == "close" {
		key.Close()
		return errors.Join(p.EP.CloseWait(context.Background(), ucp.CloseFlush), w.Close(), ctx.Close())
	}
	return nil
}

// TestListener_Processes: peers in other processes connect. The listener detects that they disconnect, whether they
// close gracefully, exit without closing, or are killed.
func TestListener_Processes(t *testing.T) {
	for i, tls := range []string{"all", "tcp", "sm"} {
		n := networks[i]
		t.Run(tls+"/"+n.name, func(t *testing.T) {
			p := ucppair.New(t, tlsets.Real(tls), ucppair.FromEnv(t, "TLS="+tls))
			l := listen(t, &p.B, n.network, n.address(t), ucp.ListenConfig{Keys: map[string]*ucp.Mem{"all": p.B.Mem}})
			for i, how := range []string{"close", "exit", "killed"} {
				c := roles.Start(t, "dial", tls, n.network, l.Addr(), how)
				require.Equal(t, []string{"connected"}, linesOf(p, c, 1))
				require.Len(t, l.peers, i+1)
				assert.Equal(t, how, string(l.peers[i].Private))
				assert.Equal(t, how, string(p.B.Mem.Bytes()[:len(how)]))
				if n.network == "unix" {
					assert.Equal(t, c.Process.Pid, l.peers[i].From.PID)
				}
				checkPeerEnds(p, l, c, i, how)
			}
			assert.Equal(t, []string{"connected 0", "disconnected 0", "connected 1", "disconnected 1", "connected 2", "disconnected 2"}, l.events)
			p.Until(func() bool { return p.B.W.EPs().Len() == 0 })
		})
	}
}

// checkPeerEnds closes or stops peer i, and checks that l gets a callback with the reason.
func checkPeerEnds(p *ucppair.Pair, l *watched, c *roles.Child, i int, how string) {
	want := ucs.ErrConnReset
	switch how {
	case "close":
		want = ucs.ErrPeerClosed
		c.Send(p.T, how)
	case "exit":
		c.Send(p.T, how)
	case "killed":
		c.Kill(p.T)
	}
	p.Until(func() bool { return len(l.reasons) == i+1 })
	assert.ErrorIs(p.T, l.reasons[i], want, how)
	if how != "killed" {
		c.End(p.T)
	}
}

// linesOf makes progress until the child has printed n lines, or has ended.
func linesOf(p *ucppair.Pair, c *roles.Child, n int) (lines []string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range n {
			line, err := c.Out.ReadString('\n')
			if err != nil {
				return
			}
			lines = append(lines, strings.TrimSpace(line))
		}
	}()
	p.Until(func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	return lines
}

// guestRole is a process of another user. It prints the results of dialing two addresses, trusting the owner of the
// second one, and listens at a third one.
func guestRole(c *roles.Side) error {
	ctx, err := ucp.NewContext(ucp.Config{TLS: config.Allow("tcp")}, all.Components()...)
	if err != nil {
		return err
	}
	w, err := ctx.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return err
	}
	for _, name := range c.Args[:2] {
		_, err := w.Dial(context.Background(), "unix", name, ucp.DialConfig{AllowUIDs: []uint32{0}})
		var rejected *ucp.RejectedError
		switch {
		case err == nil:
			c.Printf("connected")
		case errors.As(err, &rejected) && rejected.Code == ucp.CodeForeignUser:
			c.Printf("rejected")
		default:
			c.Printf("%v", err)
		}
	}
	if _, err := w.Listen(context.Background(), "unix", c.Args[2], ucp.ListenConfig{}); err != nil {
		return err
	}
	c.Printf("listening")
	c.NextLine()
	return errors.Join(w.Close(), ctx.Close())
}

// startGuest starts a process of another user.
func startGuest(t *testing.T, as *syscall.SysProcAttr, role string) *roles.Child {
	cmd := testenv.Self(roles.Env + "=" + role)
	cmd.Dir, cmd.SysProcAttr = "/", as
	return &roles.Child{Subprocess: testenv.StartSubprocess(t, cmd)}
}

// TestListener_OtherUsers: processes of other users are rejected unless they are allowed, and so are listeners of other
// users.
func TestListener_OtherUsers(t *testing.T) {
	other := testenv.NeedOtherUser(t)
	p := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{})
	closed := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{})
	open := listen(t, &p.B, "unix", abstractName(), ucp.ListenConfig{AllowUIDs: []uint32{testenv.OtherUser}})
	theirs := abstractName()
	c := startGuest(t, other, fmt.Sprint("guest ", closed.Addr(), " ", open.Addr(), " ", theirs))
	require.Equal(t, []string{"rejected", "connected", "listening"}, linesOf(p, c, 3))
	assert.Empty(t, closed.peers)
	require.Len(t, open.peers, 1)
	assert.Equal(t, uint32(testenv.OtherUser), open.peers[0].From.UID)
	assert.Equal(t, uint32(testenv.OtherUser), open.peers[0].From.GID)
	assert.True(t, strings.HasSuffix(open.peers[0].From.String(), "of user 65534"))

	_, err := p.A.W.Dial(t.Context(), "unix", theirs, ucp.DialConfig{})
	assert.ErrorIs(t, err, ucp.ErrForeignUser)
	assert.ErrorContains(t, err, "of user 65534")
}
