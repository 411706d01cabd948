package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the module whose tree is checked.
const Module = "github.com/gucx/gucx"

// atomicModule must be imported as uatomic, because the standard library has a package of the same name.
const (
	atomicModule = "go.uber.org/atomic"
	atomicName   = "uatomic"
)

// vagueNames are file names that do not describe the content.
var vagueNames = []string{"util", "utils", "helper", "helpers", "common", "types", "misc"}

// goFile is the data of one file that the checks need.
type goFile struct {
	path   string // relative to the root of the tree
	folder string
	test   bool
	ast    *ast.File
}

// Check reads all Go files of a tree, for all build tags, and returns the violations of the rules, sorted, each with its
// file. The error is that of reading or parsing the tree or the rules.
func Check(tree fs.FS, rules string) ([]string, error) {
	d, err := parseRules(rules)
	if err != nil {
		return nil, err
	}
	files, err := readTree(tree)
	if err != nil {
		return nil, err
	}
	var broken []string
	for _, f := range files {
		broken = append(broken, f.checkName()...)
		broken = append(broken, f.checkImports(d)...)
	}
	broken = append(broken, checkDocs(files)...)
	slices.Sort(broken)
	return broken, nil
}

// readTree parses the imports and comments of every Go file outside of testdata and
// of folders that the go command ignores.
func readTree(tree fs.FS) ([]goFile, error) {
	var files []goFile
	positions := token.NewFileSet()
	err := fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if e.IsDir() && name != "." && (base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
			return fs.SkipDir
		}
		if e.IsDir() || !strings.HasSuffix(base, ".go") {
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(positions, name, source, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, goFile{name, path.Dir(name), strings.HasSuffix(base, "_test.go"), parsed})
		return nil
	})
	return files, err
}

// checkName returns a violation if the name of the file is one of vagueNames.
func (f goFile) checkName() []string {
	stem := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test")
	if slices.Contains(vagueNames, strings.TrimSuffix(stem, "_unsafe")) {
		return []string{f.path + ": the name of the file says nothing"}
	}
	return nil
}

// checkImports returns the violations of the directions in one file.
func (f goFile) checkImports(d directions) []string {
	var broken []string
	if d.groupOf(f.folder) == "" {
		broken = append(broken, fmt.Sprintf("%s: folder %s is in no group", f.path, f.folder))
	}
	for _, spec := range f.ast.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			name = spec.Path.Value
		}
		if why := f.refuse(d, name, spec); why != "" {
			broken = append(broken, fmt.Sprintf("%s: imports %s: %s", f.path, name, why))
		}
	}
	return broken
}

// refuse returns the reason why the file may not import a package, or "".
func (f goFile) refuse(d directions, name string, spec *ast.ImportSpec) string {
	inner, ours := strings.CutPrefix(name, Module)
	switch {
	case name == "C":
		return "there is no cgo here"
	case name == "unsafe":
		return f.refuseUnsafe()
	case ours && (inner == "" || inner[0] == '/'):
		return f.refuseGroup(d, strings.TrimPrefix(inner, "/"))
	case isModule(name):
		return f.refuseModule(d, name, spec)
	}
	return ""
}

// refuseUnsafe returns a reason unless the name of the file permits unsafe.
func (f goFile) refuseUnsafe() string {
	stem := strings.TrimSuffix(strings.TrimSuffix(f.path, ".go"), "_test")
	if strings.HasSuffix(stem, "_unsafe") {
		return ""
	}
	return "only files named *_unsafe.go may"
}

// refuseGroup returns a reason unless the direction between the groups of two folders permits the import.
func (f goFile) refuseGroup(d directions, folder string) string {
	from, to := d.groupOf(f.folder), d.groupOf(folder)
	if from == to || d.groups[from].allows(to, f.test) {
		return ""
	}
	return fmt.Sprintf("%s may not import %s", from, to)
}

// refuseModule returns a reason unless the line of the module permits the import.
func (f goFile) refuseModule(d directions, name string, spec *ast.ImportSpec) string {
	module := d.moduleOf(name)
	if module == "" {
		return "no line permits this module"
	}
	if module == atomicModule && (spec.Name == nil || spec.Name.Name != atomicName) {
		return "import it as " + atomicName
	}
	p := d.modules[module]
	if p.allows(d.groupOf(f.folder), f.test) {
		return ""
	}
	for folder := f.folder; folder != "."; folder = path.Dir(folder) {
		if p.allows(folder, f.test) {
			return ""
		}
	}
	return "not in " + f.folder
}

// checkDocs returns a violation for each package without exactly one package comment.
func checkDocs(files []goFile) []string {
	docs := map[string][]string{}
	for _, f := range files {
		if f.test {
			continue
		}
		if _, seen := docs[f.folder]; !seen {
			docs[f.folder] = nil
		}
		if f.ast.Doc != nil {
			docs[f.folder] = append(docs[f.folder], f.path)
		}
	}
	var broken []string
	for _, folder := range sorted(docs) {
		switch n := len(docs[folder]); {
		case n == 0:
			broken = append(broken, folder+": no package comment")
		case n > 1:
			broken = append(broken, fmt.Sprintf("%s: %d package comments: %s", folder, n, strings.Join(docs[folder], ", ")))
		}
	}
	return broken
}
