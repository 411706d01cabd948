package all_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
)

// If one system call fails, opening a transport either succeeds without the call or returns the
// errno. It leaks no descriptor and no off-heap memory, and the transport opens again afterwards.
func TestOpen_SyscallFails(t *testing.T) {
	calls := []struct {
		name   string
		number uint32
		errno  unix.Errno
	}{
		{"memfd_create", unix.SYS_MEMFD_CREATE, unix.ENOMEM},
		{"ftruncate", unix.SYS_FTRUNCATE, unix.ENOMEM},
		{"eventfd2", unix.SYS_EVENTFD2, unix.EMFILE},
		{"epoll_create1", unix.SYS_EPOLL_CREATE1, unix.EMFILE},
		{"epoll_ctl", unix.SYS_EPOLL_CTL, unix.ENOMEM},
		{"timerfd_create", unix.SYS_TIMERFD_CREATE, unix.EMFILE},
		{"pipe2", unix.SYS_PIPE2, unix.EMFILE},
		{"socket", unix.SYS_SOCKET, unix.EMFILE},
		{sharedMapping, unix.SYS_MMAP, unix.ENOMEM},
	}
	failed := map[string]bool{}
	for _, c := range all.Components() {
		for _, r := range resourcesOf(t, c) {
			for _, call := range calls {
				t.Run(r.Transport+" "+call.name, func(t *testing.T) {
					require.NoError(t, openOne(c, r), "before the call fails")
					files, bytes := openFiles(t), offheap.InUse()
					if err := openWithout(t, c, r, call.number, call.errno); err != nil {
						failed[call.name] = true
						assert.ErrorIs(t, err, call.errno)
					}
					assert.Equal(t, files, openFiles(t), "open files")
					assert.Equal(t, bytes, offheap.InUse(), "off-heap memory")
					require.NoError(t, openOne(c, r), "after the call failed")
				})
			}
		}
	}
	for _, name := range []string{"memfd_create", "ftruncate", "eventfd2", "epoll_create1", "epoll_ctl", sharedMapping} {
		assert.True(t, failed[name], "no transport fails without %s", name)
	}
}

// openWithout calls openOne in a thread in which a system call fails. The thread exits afterwards.
func openWithout(t *testing.T, c uct.Component, r uct.Resource, number uint32, errno unix.Errno) error {
	t.Helper()
	var filter, err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // without an unlock: the thread exits with the goroutine
		if filter = forbid(testenv.SyscallErrno|uint32(errno), number); filter == nil {
			err = openOne(c, r)
		}
	}()
	<-done
	require.NoError(t, filter)
	return err
}

// sharedMapping is mmap of memory that others may map, too: of the rest the runtime needs some.
const sharedMapping = "mmap of shared memory"

// forbid has a system call of this thread fail.
func forbid(action uint32, number uint32) error {
	if number == unix.SYS_MMAP {
		return testenv.ForbidSharedMappings(action, 0)
	}
	return testenv.ForbidSyscalls(action, 0, number)
}
