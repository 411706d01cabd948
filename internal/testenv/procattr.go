package testenv

import (
	"os/exec"
	"syscall"
	"testing"
)

// OtherUser is the conventional user without rights.
const OtherUser = 65534

// NeedOtherUser returns what a process is started with to be one of OtherUser. The test is skipped
// where this process must not start one, or where that is its own user.
func NeedOtherUser(t testing.TB) *syscall.SysProcAttr {
	t.Helper()
	if syscall.Geteuid() == OtherUser {
		t.Skip("needs another user, and this process is without rights itself")
	}
	a := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: OtherUser, Gid: OtherUser, NoSetGroups: true}}
	NeedProcAttr(t, a, "needs the right to start a process of another user")
	return a
}

// NeedProcAttr skips the test, with the reason why, where the kernel does not let this process start
// others with a. Being root does not suffice in a container.
func NeedProcAttr(t testing.TB, a *syscall.SysProcAttr, why string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$") // the file itself may be out of a user's reach
	cmd.SysProcAttr, cmd.Dir = a, "/"
	if err := cmd.Start(); err != nil {
		t.Skipf("%s: %v", why, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
