package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// TestRepository applies the rules to this repository.
func TestRepository(t *testing.T) {
	testenv.SkipRace(t, "one goroutine reads all files")
	broken, err := Check(os.DirFS("../.."), Rules)
	require.NoError(t, err)
	for _, b := range broken {
		t.Error(b)
	}
}

// tree returns a file system with the sources by path, and a package comment in each package.
func tree(files map[string]string) fstest.MapFS {
	fs := fstest.MapFS{}
	for name, source := range files {
		fs[name] = &fstest.MapFile{Data: []byte(source)}
	}
	return fs
}

// importing returns the source of a documented package with imports.
func importing(specs ...string) string {
	return "// Package p is here.\npackage p\n\nimport (\n\t" + strings.Join(specs, "\n\t") + "\n)\n"
}

func ours(folder string) string { return `_ "` + Module + "/" + folder + `"` }

func TestCheck_Imports(t *testing.T) {
	for _, tt := range []struct {
		name, file, spec, want string
	}{
		{"down", "ucp/a.go", ours("wireup"), ""},
		{"std", "ucp/a.go", `"net/http"`, ""},
		{"within a group", "ucp/proto/a.go", ours("ucp/internal/x"), ""},
		{"service", "uct/ib/rc/a.go", ours("ucs/stats"), ""},
		{"rc to ib", "uct/ib/rc/a.go", ours("uct/ib"), ""},
		{"all to a transport", "uct/all/a.go", ours("uct/ib/rc"), ""},
		{"test of ucp on all", "ucp/a_test.go", ours("uct/all"), ""},
		{"the commands of perftest anything", "perftest/internal/cli/a.go", ours("uct/ib/verbs/softhca"), ""},
		{"what measures no layers", "perftest/internal/measure/tick/a.go", ours("perftest/internal/layers/layer"), "perftest/internal/measure may not import perftest/internal/layers"},
		{"what shows no probes", "perftest/internal/show/report/a.go", ours("perftest/internal/probes/counters"), "perftest/internal/show may not import perftest/internal/probes"},
		{"up", "uct/a.go", ours("ucp"), "uct may not import ucp"},
		{"services up", "ucs/log/a.go", ours("uct"), "ucs may not import uct"},
		{"sideways", "uct/ib/rc/a.go", ours("uct/ib/ud"), "uct/ib/rc may not import uct/ib/ud"},
		{"sideways in a test", "uct/tcp/a_test.go", ours("uct/sm"), "uct/tcp may not import uct/sm"},
		{"parent to child", "uct/ib/a.go", ours("uct/ib/rc"), "uct/ib may not import uct/ib/rc"},
		{"ucp to a transport", "ucp/a.go", ours("uct/tcp"), "ucp may not import uct/tcp"},
		{"ucp to all", "ucp/a.go", ours("uct/all"), "ucp may not import uct/all"},
		{"wireup to ucp", "wireup/a.go", ours("ucp"), "wireup may not import ucp"},
		{"wireup to ucp in a test", "wireup/a_test.go", ours("ucp"), "wireup may not import ucp"},
		{"verbs to its provider", "uct/ib/verbs/a.go", ours("internal/mlx5/provider"), "uct/ib/verbs may not import internal/mlx5/provider"},
		{"ucp to the software HCA", "ucp/a.go", ours("internal/softhca"), "ucp may not import internal/softhca"},
		{"to a program", "ucp/a.go", ours("perftest"), "ucp may not import perftest"},
		{"to the root", "ucp/a.go", `"` + Module + `"`, "ucp may not import gucx"},
		{"similar module", "ucp/a.go", `"` + Module + `x/y"`, "no line permits this module"},
		{"cgo", "perftest/a.go", `"C"`, "there is no cgo here"},
		{"unsafe", "ucp/a.go", `"unsafe"`, "only files named *_unsafe.go may"},
		{"unsafe by name", "ucp/a_unsafe.go", `"unsafe"`, ""},
		{"unsafe in a test by name", "ucp/a_unsafe_test.go", `"unsafe"`, ""},
		{"unsafe in a test", "ucp/a_test.go", `"unsafe"`, "only files named *_unsafe.go may"},
		{"x/sys", "ucp/a.go", `"golang.org/x/sys/unix"`, ""},
		{"x/text", "ucp/a.go", `"golang.org/x/text/width"`, "no line permits this module"},
		{"nettest in its place", "ucp/ucpnet/a_test.go", `"golang.org/x/net/nettest"`, ""},
		{"nettest elsewhere", "ucp/a_test.go", `"golang.org/x/net/nettest"`, "not in ucp"},
		{"atomic by its name", "ucp/a.go", `"go.uber.org/atomic"`, "import it as uatomic"},
		{"atomic renamed", "ucp/a.go", `uatomic "go.uber.org/atomic"`, ""},
		{"testify in a test", "ucs/a_test.go", `"github.com/stretchr/testify/assert"`, ""},
		{"testify in the suite", "uct/ucttest/a.go", `"github.com/stretchr/testify/assert"`, ""},
		{"testify in a library", "ucs/a.go", `"github.com/stretchr/testify/assert"`, "not in ucs"},
		{"goleak in testenv", "internal/testenv/a.go", `"go.uber.org/goleak"`, ""},
		{"goleak beside testenv", "internal/mmio/a.go", `"go.uber.org/goleak"`, "not in internal/mmio"},
		{"ebpf in its leaf", "perftest/internal/probes/bpfcount/a.go", `"github.com/cilium/ebpf/link"`, ""},
		{"ebpf in a library", "ucp/a.go", `"github.com/cilium/ebpf/link"`, "not in ucp"},
		{"ebpf in a test elsewhere", "ucs/log/a_test.go", `"github.com/cilium/ebpf/link"`, "not in ucs/log"},
		{"ebpf beside its leaf", "perftest/internal/probes/counters/a.go", `"github.com/cilium/ebpf"`, "not in perftest/internal/probes/counters"},
		{"cobra in perftest", "perftest/cmd/a.go", `"github.com/spf13/cobra"`, ""},
		{"cobra in a library", "ucp/a.go", `"github.com/spf13/cobra"`, "not in ucp"},
		{"new folder", "newthing/a.go", `"fmt"`, "folder newthing is in no group"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			broken, err := Check(tree(map[string]string{tt.file: importing(tt.spec)}), Rules)
			require.NoError(t, err)
			if tt.want == "" {
				assert.Empty(t, broken)
				return
			}
			require.NotEmpty(t, broken)
			assert.True(t, strings.HasPrefix(broken[0], tt.file+": "), broken[0])
			assert.Contains(t, broken[0], tt.want)
		})
	}
}

func TestCheck_SeesFilesOfAllBuildTags(t *testing.T) {
	broken, err := Check(tree(map[string]string{"ucs/a_windows.go": "//go:build race\n\n" + importing(ours("ucp"))}), Rules)
	require.NoError(t, err)
	assert.Len(t, broken, 1)
}

func TestCheck_Names(t *testing.T) {
	for _, name := range []string{"util.go", "helpers.go", "common.go", "types.go", "util_test.go", "helpers_unsafe.go"} {
		broken, err := Check(tree(map[string]string{"ucs/doc.go": importing(), "ucs/" + name: "package p"}), Rules)
		require.NoError(t, err)
		assert.Equal(t, []string{"ucs/" + name + ": the name of the file says nothing"}, broken)
	}
}

func TestCheck_PackageComments(t *testing.T) {
	broken, err := Check(tree(map[string]string{
		"ucs/a.go": "// Package a is one.\npackage a", "ucs/b.go": "// Package a is two.\npackage a",
		"ucp/a.go":      "//go:build linux\n\npackage p",
		"ucp/a_test.go": "// Package p is not told by a test.\npackage p",
		"uct/a.go":      "// Package uct is fine.\npackage uct", "uct/b.go": "package uct",
		"wireup/only_test.go": "package wireup",
	}), Rules)
	require.NoError(t, err)
	assert.Equal(t, []string{"ucp: no package comment", "ucs: 2 package comments: ucs/a.go, ucs/b.go"}, broken)
}

func TestCheck_SkipsWhatTheGoCommandSkips(t *testing.T) {
	bad := importing(`"C"`)
	broken, err := Check(tree(map[string]string{
		"ucs/testdata/a.go": bad, ".git/a.go": bad, "_old/a.go": bad, "ucs/a.txt": "no Go",
	}), Rules)
	require.NoError(t, err)
	assert.Empty(t, broken)
}

func TestCheck_Errors(t *testing.T) {
	_, err := Check(tree(map[string]string{"ucs/a.go": "not Go"}), Rules)
	assert.ErrorContains(t, err, "ucs/a.go")
	_, err = Check(os.DirFS("no/such/folder"), Rules)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestParseRules_Mistakes(t *testing.T) {
	for _, tt := range []struct{ name, rules, want string }{
		{"twice", "a\nb\na b", "line 3: a is there twice"},
		{"misspelt", "a b\n", "a may import b, which is no group"},
		{"misspelt for tests", "a | b\n", "a may import b, which is no group"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Check(fstest.MapFS{}, tt.rules)
			assert.EqualError(t, err, tt.want)
		})
	}
}

func TestGroupOf(t *testing.T) {
	d, err := parseRules(Rules)
	require.NoError(t, err)
	for folder, want := range map[string]string{
		"uct": "uct", "uct/ib": "uct/ib", "uct/ib/verbs/mlx5/x": "uct/ib/verbs/mlx5", "uct/ibx": "uct", "other": "", "": "gucx", ".": "gucx",
	} {
		assert.Equal(t, want, d.groupOf(folder), folder)
	}
}
