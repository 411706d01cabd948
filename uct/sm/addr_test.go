package sm

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

func TestReachable(t *testing.T) {
	dir, link, other := t.TempDir(), t.TempDir()+"/link", t.TempDir()
	require.NoError(t, os.Symlink(dir, link))
	address := func(dir string) []byte {
		b, err := deviceAddr(dir)
		require.NoError(t, err)
		return b
	}
	edit := func(i int) []byte {
		b := address("")
		b[i] ^= 1
		return b
	}
	for _, tc := range []struct {
		name string
		own  string
		peer []byte
		want error
		why  string
	}{
		{"same namespace", "", address(""), nil, ""},
		{"same directory by another path", dir, address(link), nil, ""},
		{"other directory", dir, address(other), uct.ErrUnreachable, "another directory"},
		{"directory there only", "", address(dir), uct.ErrUnreachable, "one side only"},
		{"directory here only", dir, address(""), uct.ErrUnreachable, "one side only"},
		{"other host", "", edit(offBoot), uct.ErrUnreachable, "another host"},
		{"other namespace", "", edit(offPlace), uct.ErrUnreachable, "another network namespace"},
		{"other version", "", append([]byte{2 << 4}, address("")[1:]...), uct.ErrInvalidAddr, "not a device"},
		{"short", "", address("")[1:], uct.ErrInvalidAddr, "not a device"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := peerGID(address(tc.own), tc.peer, nil)
			assert.ErrorIs(t, err, tc.want)
			if tc.why != "" {
				assert.ErrorContains(t, err, tc.why)
			}
		})
	}
}

// TestSocketDir_AcrossNamespaces: a process in another network
// namespace, as in another container, can be reached. When it is killed, the next iface of any process
// removes its socket file.
func TestSocketDir_AcrossNamespaces(t *testing.T) {
	own := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	testenv.NeedProcAttr(t, own, "needs the right to make a network namespace")
	dir := testenv.SocketDir(t)
	s := openStation(t, Config{SocketDir: dir})
	cmd := command(roleEcho, "")
	cmd.Env = append(cmd.Env, dirEnv+"="+dir)
	cmd.SysProcAttr = own
	c := run(t, cmd, s)
	e, got := s.connect(t, c.exchangedInfo), &pong{}
	require.NoError(t, s.iface.SetAMHandler(idEcho, got))
	require.NoError(t, e.AMShort(idEcho, 1, nil))
	testenv.ProgressWithin(t, watchdog, func() bool { s.iface.Progress(); return got.n > 0 })

	here, err := deviceAddr("")
	require.NoError(t, err)
	assert.NotEqual(t, here[offPlace:], c.Device[offPlace:])
	require.NoError(t, e.Close())
	c.Kill(t)
	s.close(t)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "a killed process cannot clean up")
	file := dir + "/" + left[0].Name()
	require.NoError(t, unix.Utimes(file, make([]unix.Timeval, 2)), "let it be old")
	openStation(t, Config{SocketDir: dir}).close(t)
	assert.NoFileExists(t, file)
}

// TestBootID: a host without a readable boot id has an address too.
func TestBootID(t *testing.T) {
	file := t.TempDir() + "/boot_id"
	half, err := bootID(file)
	require.NoError(t, err)
	assert.Zero(t, half)
	require.NoError(t, os.WriteFile(file, []byte("01020304-0506-0708-090a-0b0c0d0e0f10\n"), 0o600))
	half, err = bootID(file)
	require.NoError(t, err)
	assert.Equal(t, [...]byte{1, 2, 3, 4, 5, 6, 7, 8}, half)
	for _, bad := range []string{"", "0102", "host"} {
		require.NoError(t, os.WriteFile(file, []byte(bad), 0o600))
		_, err = bootID(file)
		assert.ErrorIs(t, err, uct.ErrUnsupported, bad)
	}
}

func TestSocketDir_Missing(t *testing.T) {
	md, err := openTestMD()
	require.NoError(t, err)
	_, err = md.OpenIface(uct.IfaceParams{Transport: Name, Device: DeviceName, Config: Config{SocketDir: testenv.SocketDir(t) + "/none"}})
	assert.ErrorIs(t, err, uct.ErrInvalidParam)
	assert.ErrorContains(t, err, "SOCKET_DIR")
	require.NoError(t, md.Close())
}

func TestConfig_FromEnv(t *testing.T) {
	for _, tc := range []struct {
		name, env string
		want      Config
		err       string
	}{
		{"socket directory", "GUCX_SM_SOCKET_DIR=/run/gucx", Config{SocketDir: "/run/gucx"}, ""},
		{"users", "GUCX_SM_ALLOW_UIDS=1000, 1001", Config{AllowUIDs: UIDs{1000, 1001}}, ""},
		{"nobody else", "GUCX_SM_ALLOW_UIDS=", Config{}, ""},
		{"no user", "GUCX_SM_ALLOW_UIDS=1000,me", Config{}, `user "me"`},
		{"negative user", "GUCX_SM_ALLOW_UIDS=-1", Config{}, `user "-1"`},
		{"segment too long", "GUCX_SM_SEG_SIZE=1m", Config{}, "SEG_SIZE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got Config
			err := config.FromEnv([]string{tc.env}, config.Table{Prefix: "SM", Config: &got})
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			defaults := Config{}
			require.NoError(t, config.FromEnv(nil, config.Table{Prefix: "SM", Config: &defaults}))
			want := defaults
			want.SocketDir, want.AllowUIDs = tc.want.SocketDir, tc.want.AllowUIDs
			assert.Equal(t, want, got)
			text, err := got.AllowUIDs.MarshalText()
			require.NoError(t, err)
			var back UIDs
			require.NoError(t, back.UnmarshalText(text))
			assert.Equal(t, got.AllowUIDs, back)
		})
	}
}
