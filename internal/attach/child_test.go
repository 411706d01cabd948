package attach

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// Roles of a second process. Each prints one line when it is ready, and ends with
// its standard input.
const (
	roleStation   = "station"    // a port that does what it is told, line by line
	roleSquatter  = "squatter"   // listens on a name, as another user
	roleOtherUser = "other-user" // connects to a name, as another user; prints how it ended
)

func runChild(role string) error {
	switch role {
	case roleStation:
		return runStation()
	case roleSquatter:
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: os.Getenv(roleEnv + "_NAME"), Net: "unixpacket"})
		if err != nil {
			return err
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return l.Close()
	case roleOtherUser:
		conn, err := net.Dial("unixpacket", os.Getenv(roleEnv+"_NAME"))
		if err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 1))
		fmt.Println(errors.Is(err, io.EOF))
		return conn.Close()
	}
	return fmt.Errorf("unknown role")
}

// runStation prints its GID, then answers commands:
//
//	dial GID   dials, writes 42 to byte 0 of the link segment and wakes: "up" or the error
//	accept     waits for an inbound link: its peer's GID
//	down       waits until the last link is down: "down"
func runStation() error {
	s, err := openStation(nil)
	if err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(s.gid[:]))
	var last *Link
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		cmd, arg, _ := strings.Cut(lines.Text(), " ")
		switch cmd {
		case "dial":
			gid, _ := hex.DecodeString(arg)
			out, err := s.Dial(context.Background(), [16]byte(gid))
			if err != nil {
				fmt.Println(err)
				continue
			}
			last = out.Link
			out.Seg.Bytes()[0] = 42
			_ = Wake(out.WakeFD)
			fmt.Println("up")
		case "accept":
			in := <-s.in
			last = in.Link
			fmt.Println(hex.EncodeToString(in.PeerGID[:]))
		case "down":
			<-last.Done()
			fmt.Println("down")
		}
	}
	return s.Port.Close()
}

// child is a running second process.
type child struct {
	*testenv.Subprocess
	gid [16]byte // of a station
}

// start runs a role; with attr nil it is of the user of this process.
func start(t testing.TB, role, name string, attr *syscall.SysProcAttr) *child {
	t.Helper()
	cmd := testenv.Self(roleEnv+"="+role, roleEnv+"_NAME="+name)
	cmd.Dir, cmd.SysProcAttr = "/", attr
	return &child{Subprocess: testenv.StartSubprocess(t, cmd)}
}

func startStation(t testing.TB) *child {
	t.Helper()
	c := start(t, roleStation, "", nil)
	gid, err := hex.DecodeString(c.Line(t))
	require.NoError(t, err)
	c.gid = [16]byte(gid)
	return c
}
