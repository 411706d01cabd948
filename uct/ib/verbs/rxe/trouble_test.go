package rxe_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/rxe"
)

// kernelDevice returns the device in deviceEnv. It skips the test if there is none or the user is not root.
func kernelDevice(t *testing.T) string {
	t.Helper()
	name := os.Getenv(deviceEnv)
	if name == "" {
		t.Skipf("%s is not set to a device of the kernel", deviceEnv)
	}
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	return name
}

func openContext(t *testing.T, name string) *verbs.Context {
	t.Helper()
	ctx, err := findDevice(t, name).Open()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ctx.Close()) })
	return ctx
}

// otherUserEnv is set in the child process that runs a test as the user nobody.
const otherUserEnv = "GUCX_TEST_OTHER_USER"

// runUnprivileged runs the test in a child process as the user nobody.
func runUnprivileged(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), otherUserEnv+"=1")
	cmd.SysProcAttr = diesWithUs()
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", out)
}

// A process of another user may open the device only if the mode of the device file permits it.
func TestTrouble_NoPermission(t *testing.T) {
	if os.Getenv(otherUserEnv) != "" {
		name := os.Getenv(deviceEnv)
		_, err := findDevice(t, name).Open()
		assert.ErrorIs(t, err, fs.ErrPermission)
		assert.ErrorContains(t, err, "this user may not use the device")
		_, err = ib.New(rxe.Devices, rc.Transport(rc.Config{})).OpenMD(name)
		assert.ErrorIs(t, err, fs.ErrPermission)
		return
	}
	kernelDevice(t)
	files, err := filepath.Glob("/dev/infiniband/uverbs*")
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.Chmod(f, 0o600))
		defer os.Chmod(f, 0o666)
	}
	runUnprivileged(t)
}

// OpenIface fails if the buffers of the transport exceed RLIMIT_MEMLOCK of the user.
func TestTrouble_LockedMemoryOfUser(t *testing.T) {
	if os.Getenv(otherUserEnv) != "" {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}))
		err := openIface(t, os.Getenv(deviceEnv), ib.GIDAuto)
		assert.ErrorIs(t, err, ucs.ErrNoMemory)
		assert.ErrorContains(t, err, "64 KiB")
		assert.ErrorContains(t, err, "ulimit -l")
		return
	}
	kernelDevice(t)
	runUnprivileged(t)
}

// Registration beyond RLIMIT_MEMLOCK fails, with the limit in the error text.
func TestTrouble_LockedMemory(t *testing.T) {
	ctx := openContext(t, kernelDevice(t))
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	defer pd.Close()
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: old.Max}))
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)
	dropLockCapability(t)
	_, err = pd.RegMR(make([]byte, 1<<20), verbs.AccessLocalWrite)
	assert.ErrorIs(t, err, ucs.ErrNoMemory)
	assert.ErrorContains(t, err, "64 KiB")
	assert.ErrorContains(t, err, "ulimit -l")
}

// dropLockCapability drops CAP_IPC_LOCK of the test's thread. RLIMIT_MEMLOCK does not limit a thread with CAP_IPC_LOCK.
func dropLockCapability(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data, less [2]unix.CapUserData
	require.NoError(t, unix.Capget(&header, &data[0]))
	less = data
	less[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	require.NoError(t, unix.Capset(&header, &less[0]))
	t.Cleanup(func() {
		assert.NoError(t, unix.Capset(&header, &data[0]))
		runtime.UnlockOSThread()
	})
}

func TestTrouble_RejectsOtherDevice(t *testing.T) {
	name := kernelDevice(t)
	_, err := ib.New(rxe.Devices, rc.Transport(rc.Config{})).OpenMD("rxe99")
	assert.ErrorIs(t, err, uct.ErrInvalidParam)
	list, err := uverbs.List(uverbs.System())
	require.NoError(t, err)
	for _, info := range list {
		if info.Name != name {
			continue
		}
		_, err = uverbs.Open(uverbs.System(), info, uverbs.DriverMLX5)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam)
		assert.ErrorContains(t, err, "it is no device of driver mlx5")
	}
}

// openIface opens and closes an iface of rc with the given entry of the GID table.
func openIface(t *testing.T, name string, gid ib.GIDIndex) error {
	t.Helper()
	md, err := ib.New(rxe.Devices, rc.Transport(rc.Config{})).OpenMD(name)
	require.NoError(t, err)
	defer func() { require.NoError(t, md.Close()) }()
	cfg := rc.Config{}
	cfg.IB.GIDIndex = gid
	iface, err := md.OpenIface(uct.IfaceParams{Transport: rc.Name, Device: name + ":1", Config: cfg})
	if err == nil {
		require.NoError(t, iface.Close())
	}
	return err
}

func TestTrouble_GIDMissing(t *testing.T) {
	name := kernelDevice(t)
	require.NoError(t, openIface(t, name, ib.GIDAuto))
	err := openIface(t, name, ib.GIDAt(200))
	assert.ErrorIs(t, err, uct.ErrInvalidParam)
	assert.ErrorContains(t, err, "no GID with index 200")
}

// run runs a command and fails the test if the command fails.
func run(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%s: %s", strings.Join(args, " "), out)
}

func TestTrouble_PortDown(t *testing.T) {
	name := kernelDevice(t)
	dev, err := os.ReadFile(filepath.Join("/sys/class/infiniband", name, "parent"))
	require.NoError(t, err)
	link := strings.TrimSpace(string(dev))
	ctx := openContext(t, name)
	isUp := func() bool {
		port, err := ctx.QueryPort(1)
		require.NoError(t, err)
		return port.State == verbs.PortActive
	}
	run(t, "ip", "link", "set", link, "down")
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return !isUp() })
	err = openIface(t, name, ib.GIDAuto)
	assert.ErrorIs(t, err, uct.ErrUnreachable)
	assert.ErrorContains(t, err, "port is down")
	run(t, "ip", "link", "set", link, "up")
	testenv.ProgressWithin(t, testenv.Watchdog, isUp)
}

// If the port goes down during traffic, the operations of an EP complete and the EP fails.
func TestTrouble_PortDownInUse(t *testing.T) {
	name := kernelDevice(t)
	if os.Getenv(peerEnv) == "" {
		t.Skipf("packets within one device do not use its port; %s is not set to another device", peerEnv)
	}
	link, err := os.ReadFile(filepath.Join("/sys/class/infiniband", name, "parent"))
	require.NoError(t, err)
	var failure error
	open := func(name string) (uct.Iface, uct.EP) {
		md, err := ib.New(rxe.Devices, rc.Transport(rc.Config{})).OpenMD(name)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, md.Close()) })
		iface, err := md.OpenIface(uct.IfaceParams{Transport: rc.Name, Device: name + ":1", Config: rc.Config{Timeout: lossyTimeout},
			OnError: func(_ uct.EP, err error) { failure = err }})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, iface.Close()) })
		ep, err := iface.NewEP(uct.EPParams{})
		require.NoError(t, err)
		return iface, ep
	}
	a, ab := open(name)
	b, ba := open(os.Getenv(peerEnv))
	require.NoError(t, ab.Ops().Connect.Connect(b.Ext().Address.DeviceAddr(nil), ba.Ops().Connect.EPAddr(nil)))
	require.NoError(t, ba.Ops().Connect.Connect(a.Ext().Address.DeviceAddr(nil), ab.Ops().Connect.EPAddr(nil)))
	sent := 0
	progress := func() error {
		err := ab.Ops().AM.AMShort(1, 0, nil)
		if err == nil {
			sent++
		}
		a.Progress()
		b.Progress()
		return err
	}
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { _ = progress(); return sent > 100 })
	run(t, "ip", "link", "set", strings.TrimSpace(string(link)), "down")
	defer run(t, "ip", "link", "set", strings.TrimSpace(string(link)), "up")
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return errors.Is(progress(), uct.ErrEPFailed) })
	t.Logf("after %d messages: %v", sent, failure)
	assert.ErrorContains(t, failure, "port is down")
}

// The kernel removes a device in use after the last process has closed it. Until then calls return and do not block.
// This test is the last one, because it removes the device.
func TestTrouble_Unplugged(t *testing.T) {
	name := kernelDevice(t)
	remove := exec.Command("rdma", "link", "delete", name)
	remove.SysProcAttr = diesWithUs()
	t.Cleanup(func() { assert.NoError(t, remove.Wait(), "after the device was closed") })
	p := newPingpong(t, name, verbs.QPTypeRC, false)
	require.NoError(t, remove.Start())
	for range 100 {
		mr, err := p.pd.RegMR(make([]byte, 4096), verbs.AccessLocalWrite)
		if err == nil {
			assert.NoError(t, mr.Close())
		}
	}
	assert.NoError(t, p.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState))
}
