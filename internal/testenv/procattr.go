package testenv

import (
	"os/exec"
	"syscall"
	"testing"
)

// OtherUser is the conventional user without privileges.
const OtherUser = 65534

// NeedOtherUser returns the attributes of a process of OtherUser. It skips the test if this process must not start one,
// or has that user.
func NeedOtherUser(t testing.TB) *syscall.SysProcAttr {
	t.Helper()
	if syscall.Geteuid() == OtherUser {
		t.Skip("needs another user, and this process is without rights itself")
	}
	a := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: OtherUser, Gid: OtherUser, NoSetGroups: true}}
	NeedProcAttr(t, a, "needs the right to start a process of another user")
	return a
}

// NeedProcAttr skips the test, with the reason, if the kernel does not permit this process to start others with a. Root
// does not suffice in a container.
func NeedProcAttr(t testing.TB, a *syscall.SysProcAttr, why string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$") // the user may not reach the file itself
	cmd.SysProcAttr, cmd.Dir = a, "/"
	if err := cmd.Start(); err != nil {
		t.Skipf("%s: %v", why, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
