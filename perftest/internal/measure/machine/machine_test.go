package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/measure/affinity"
	"github.com/gucx/gucx/perftest/internal/measure/tick"
)

func TestDescribe(t *testing.T) {
	m := Describe()
	assert.NotEmpty(t, m.CPU)
	assert.Equal(t, runtime.NumCPU(), m.Cores)
	assert.Equal(t, runtime.GOARCH, m.Arch)
	assert.Regexp(t, `^\d+\.\d+`, m.Kernel)
	assert.True(t, strings.HasPrefix(m.Go, "go") || strings.HasPrefix(m.Go, "devel"), m.Go)
}

func TestModelIn(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"x86", "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nflags\t\t: a b\n\nprocessor\t: 1\nmodel name\t: other\n", "Some CPU @ 3 GHz"},
		{"arm64", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "implementer 0x41 part 0xd0c"},
		{"neither", "hart : 0\n", "unknown"},
		{"empty", "", "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, modelIn(strings.NewReader(c.in))) })
	}
}

func TestStamp(t *testing.T) {
	rev := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}
	dirty := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	assert.Equal(t, "0123456789ab", stamp([]debug.BuildSetting{rev}))
	assert.Equal(t, "0123456789ab+", stamp([]debug.BuildSetting{dirty, rev}))
	assert.Empty(t, stamp([]debug.BuildSetting{dirty}))
	assert.Empty(t, stamp(nil))
}

func TestCommit_NeverEmpty(t *testing.T) {
	assert.NotEmpty(t, Commit(t.Context()))
}

// The commit is that of the program, and not that of the repository in the current directory.
func TestCommit_OfProgram(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.org/other\n"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "below"), 0o700))
	t.Chdir(filepath.Join(dir, "below"))
	assert.True(t, inModule("example.org/other"))
	assert.False(t, inModule("github.com/gucx/gucx"))
	assert.True(t, justBuilt("/tmp/go-build1234/b001/exe/perftest"))
	assert.False(t, justBuilt("/usr/local/bin/perftest"))
	file := filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(file, []byte("abc"), 0o600))
	assert.Equal(t, "build-ba7816bf8f01", digest(file))
	assert.Equal(t, unknown, digest(file+".absent"))
}

// TestGitCommit: git must not modify the repository. By default git status rewrites the index, under a lock, if
// the index has other times of a file than the file.
func TestGitCommit(t *testing.T) {
	program := testenv.Command(t, "git")
	t.Chdir(t.TempDir())
	index := filepath.Join(".git", "index")
	for name, value := range map[string]string{"GIT_DIR": ".git", "GIT_WORK_TREE": ".", "GIT_INDEX_FILE": index} {
		t.Setenv(name, value) // as in a hook of git
	}
	run := func(args ...string) {
		t.Helper()
		out, err := exec.Command(program, append([]string{"-c", "user.name=x", "-c", "user.email=x@x", "-c", "commit.gpgsign=false"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.WriteFile("file", []byte("text"), 0o600))
	run("init", "-q")
	run("add", "file")
	run("commit", "-q", "-m", "first")
	require.NoError(t, os.Chtimes("file", time.Time{}, time.Unix(1<<30, 0)))
	before, err := os.ReadFile(index)
	require.NoError(t, err)
	assert.Regexp(t, "^[0-9a-f]{12}$", gitCommit(t.Context()))
	after, err := os.ReadFile(index)
	require.NoError(t, err)
	assert.Equal(t, before, after)
	require.NoError(t, os.WriteFile("file", []byte("other"), 0o600))
	assert.Regexp(t, "^[0-9a-f]{12}[+]$", gitCommit(t.Context()))
}

func TestGOGC(t *testing.T) {
	assert.Equal(t, "100", gogc(""))
	assert.Equal(t, "off", gogc("off"))
}

func TestProbe(t *testing.T) {
	cpus, err := affinity.Allowed()
	require.NoError(t, err)
	if len(cpus) < 2 || runtime.GOMAXPROCS(0) < 2 {
		t.Skip("needs two CPUs")
	}
	clock, err := tick.Calibrate()
	require.NoError(t, err)
	ns, err := Probe(clock, cpus[0], cpus[1])
	require.NoError(t, err)
	assert.Greater(t, ns, 1.0, "a round trip in less than 1 ns")
}
