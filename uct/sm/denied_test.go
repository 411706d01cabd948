package sm

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// roleDenied is a process in a sandbox as in containers: the kernel forbids
// cross-memory attach.
const roleDenied = "denied"

// workDenied writes to and reads from registered memory of the peer, and checks Explain.
func workDenied(s *station, m exchangedInfo) {
	t := failNow{}
	require.NoError(t, testenv.ForbidSyscalls(testenv.SyscallErrno|uint32(unix.EPERM), unix.SECCOMP_FILTER_FLAG_TSYNC,
		unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV))
	fmt.Println("ready")
	e, key := s.connect(t, m), s.key(t, m)
	require.ErrorIs(t, e.cmaErr, cma.ErrForbidden)
	require.Contains(t, e.Explain(), cma.ErrForbidden.Error())
	require.Contains(t, s.iface.Explain(), cma.ErrForbidden.Error())
	require.NoError(t, e.PutShort(testenv.Pattern(100, 3), m.Raddr+5, key))
	got, c := make([]byte, 100), newCompletion()
	pending, err := e.GetBcopy(got, m.Raddr+5, key, &c.Completion)
	require.NoError(t, err)
	require.True(t, pending)
	for c.fired == 0 {
		s.iface.Progress()
		runtime.Gosched()
	}
	require.Equal(t, ucs.StatusOK, c.Status)
	require.Equal(t, testenv.Pattern(100, 3), got)
	require.NoError(t, e.Close())
	_, err = s.md.OpenIface(uct.IfaceParams{Transport: Name, Device: DeviceName, Config: Config{CMA: config.Yes}})
	require.ErrorIs(t, err, cma.ErrForbidden)
}

// TestCMA_Denied: if the kernel forbids cross-memory attach, the peer executes operations and Explain returns the
// reason; with CMA=y, OpenIface fails.
func TestCMA_Denied(t *testing.T) {
	s := openStation(t, Config{})
	require.NoError(t, s.mem.Close())
	mem, err := s.md.Ext().Reg.Reg(make([]byte, 4096), uct.AccessAll)
	require.NoError(t, err)
	s.mem = mem
	c := start(t, roleDenied, s, "")
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	testenv.ProgressWithin(t, watchdog, func() bool {
		s.iface.Progress()
		select {
		case err := <-ended:
			assert.NoError(t, err)
			return true
		default:
			return false
		}
	})
	assert.Equal(t, testenv.Pattern(100, 3), mem.Bytes()[5:105])
	s.close(t)
}
