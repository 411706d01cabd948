package testenv

import (
	"errors"
	"os/exec"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// NeedCMA skips the test if a process must not read the memory of its children, as in sandboxes and with some values of
// kernel.yama.ptrace_scope.
func NeedCMA(t testing.TB) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	remote := unix.RemoteIovec{Base: reflect.ValueOf(NeedCMA).Pointer(), Len: 1} // code, which the child has too
	_, err := unix.ProcessVMReadv(cmd.Process.Pid, []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{remote}, 0)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("needs cross-memory attach: %v", err)
	}
}
