package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

const root = "../.."

// TestListings_Current: docs/api is what the sources export.
func TestListings_Current(t *testing.T) {
	testenv.SkipRace(t, "one goroutine reads all files")
	want, err := all(root)
	require.NoError(t, err)
	entries, err := os.ReadDir(filepath.Join(root, listings))
	require.NoError(t, err)
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
	}
	assert.Equal(t, slices.Sorted(maps.Keys(want)), there, "run make api")
	for name, text := range want {
		have, err := os.ReadFile(filepath.Join(root, listings, name))
		if err == nil && string(have) != string(text) {
			t.Errorf("%s/%s is not the present API: run make api, and commit it if the change is meant", listings, name)
		}
	}
}

// TestHiddenTypes_OnlyKnown: no exported name uses a type that other modules cannot name, but
// for those in testdata/hidden.txt, which may become shorter only.
func TestHiddenTypes_OnlyKnown(t *testing.T) {
	testenv.SkipRace(t, "one goroutine reads all files")
	found := hiddenIn(t, root)
	text, err := os.ReadFile("testdata/hidden.txt")
	require.NoError(t, err)
	known := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return line == "" })
	for _, f := range found {
		if !slices.Contains(known, f) {
			t.Errorf("%s, which other modules cannot name: export the type, or make the name internal", f)
		}
	}
	for _, k := range known {
		if !slices.Contains(found, k) {
			t.Errorf("delete the line from testdata/hidden.txt, it is mended: %s", k)
		}
	}
}

// hiddenIn returns what hiddenTypes finds in the public packages of a tree.
func hiddenIn(t *testing.T, root string) []string {
	l := newLoader(root)
	folders, err := l.publicFolders()
	require.NoError(t, err)
	found, err := l.hiddenTypes(folders)
	require.NoError(t, err)
	return found
}

// writeTree makes a module of files by name.
func writeTree(t *testing.T, files map[string]string) (root string) {
	root = t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	return root
}

func TestHiddenTypes_Finds(t *testing.T) {
	inner := `package inner

type T struct{ U *U }
type U struct{}
func (*T) Same() *T { return nil }
func (*T) Other() map[string]U { return nil }
type Base struct{ Field []U }
`
	root := writeTree(t, map[string]string{
		"p/internal/inner/inner.go": inner,
		"p/p.go": `package p

import "` + module + `/p/internal/inner"

type T = inner.T
type own struct{ inner.Base }
type Own struct{ own; hidden inner.U }
type Sealed interface { F(T); g(inner.U) }
func Open(int, ...func(inner.U)) (*own, error) { return nil, nil }
func Fine(T, *Own) error { return nil }
`,
	})
	assert.Equal(t, []string{
		"p.Open uses p.own",
		"p.Open uses p/internal/inner.U",
		"p.Own.Base uses p/internal/inner.Base",
		"p.Own.Field uses p/internal/inner.U",
		"p.T is an alias of p/internal/inner.T",
		"p.T.Other uses p/internal/inner.U",
		"p.T.U uses p/internal/inner.U",
	}, hiddenIn(t, root))
}

// TestListing_OnlyAPI: comments, help texts, bodies and the order of files change no listing.
func TestListing_OnlyAPI(t *testing.T) {
	one := writeTree(t, map[string]string{"p/a.go": `package p

// B is second.
func B() {}

// T has fields.
type T struct {
	// X is documented.
	X int ` + "`env:\"X\" doc:\"Says \\\"x\\\".\"`" + `

	YY string // so is YY
	z int
}

func (t *T) m() {}
func (t *T) M() int { return 1 }
func a() {}
func A() {}
var V = map[int]int{1: 2}
`})
	two := writeTree(t, map[string]string{"p/a.go": "package p\nfunc B() { a() }\nfunc a() {}\nfunc (t *T) M() int { return 2 }\nvar V = map[int]int{2: 2}\n",
		"p/z.go": "package p\nfunc A() {}\ntype T struct {\n X int `env:\"X\"`\n YY string; q int }\n",
		"p/w.go": "//go:build windows\n\npackage p\nfunc W() {}\n"})
	first, err := newLoader(one).listing("p")
	require.NoError(t, err)
	second, err := newLoader(two).listing("p")
	require.NoError(t, err)
	assert.Equal(t, string(first), string(second))
	assert.Equal(t, `package p // import "github.com/gucx/gucx/p", 7 exported names

VARIABLES

var V = map[int]int{}

FUNCTIONS

func A()

func B()

TYPES

type T struct {
	X  int `+"`env:\"X\"`"+`
	YY string
	// contains filtered or unexported fields
}

func (t *T) M() int
`, string(first))
}
