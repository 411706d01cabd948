package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// pkg is a package with its syntax and types.
type pkg struct {
	path    string // import path
	name    string
	dir     string
	fset    *token.FileSet
	files   []*file
	info    *types.Info
	exports map[string]string // files with export data, by import path
}

type file struct {
	path   string
	text   []byte
	syntax *ast.File
}

// offset returns the byte offset of a position in its file.
func (p *pkg) offset(at token.Pos) int { return p.fset.Position(at).Offset }

// load parses and type-checks the files of the package at path that "go build" uses.
func load(path string) (*pkg, error) {
	p := &pkg{fset: token.NewFileSet(), exports: map[string]string{}}
	// instrument adds code that imports os, strconv and syscall.
	out, err := goCommand("list", "-export", "-deps", "-json=ImportPath,Name,Dir,Export,GoFiles,DepOnly", path, "os", "strconv", "syscall")
	if err != nil {
		return nil, err
	}
	want, err := goCommand("list", path)
	if err != nil {
		return nil, err
	}
	p.path = strings.TrimSpace(string(want))
	var names []string
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l struct {
			ImportPath, Name, Dir, Export string
			GoFiles                       []string
		}
		if err := d.Decode(&l); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		p.exports[l.ImportPath] = l.Export
		if l.ImportPath == p.path {
			p.name, p.dir, names = l.Name, l.Dir, l.GoFiles
		}
	}
	for _, n := range names {
		f := &file{path: filepath.Join(p.dir, n)}
		if f.text, err = os.ReadFile(f.path); err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
	}
	if len(p.files) == 0 {
		return nil, fmt.Errorf("%s has no Go files", path)
	}
	if wd, err := os.Getwd(); err == nil { // shorter names in the output
		for _, f := range p.files {
			if rel, err := filepath.Rel(wd, f.path); err == nil {
				f.path = rel
			}
		}
	}
	p.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	return p, errors.Join(p.check(p.fset, p.info, func(f *file) []byte { return f.text })...)
}

// check parses and type-checks the files, with the contents that text returns.
func (p *pkg) check(fset *token.FileSet, info *types.Info, text func(*file) []byte, more ...*ast.File) (errs []error) {
	var all []*ast.File
	for _, f := range p.files {
		syntax, err := parser.ParseFile(fset, f.path, text(f), parser.SkipObjectResolution)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.syntax = syntax
		all = append(all, syntax)
	}
	if len(errs) > 0 {
		return errs
	}
	conf := types.Config{
		Importer: importer.ForCompiler(fset, "gc", p.open),
		Error:    func(err error) { errs = append(errs, err) },
	}
	_, _ = conf.Check(p.path, fset, append(all, more...), info) // conf.Error receives the errors
	return errs
}

// open opens the export data of an imported package.
func (p *pkg) open(path string) (io.ReadCloser, error) {
	for _, name := range []string{path, "vendor/" + path} {
		if at := p.exports[name]; at != "" {
			return os.Open(at)
		}
	}
	return nil, fmt.Errorf("no export data of %s", path)
}

// goCommand runs the go command and returns its output.
func goCommand(args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("go %s: %w", args[0], err)
	}
	return out, nil
}

// maxMutants is the maximum id of a mutant.
const maxMutants = 1<<12 - 1

// traceLen is the length of a trace file: a byte for each mutant.
const traceLen = maxMutants + 1

// switches is the code that instrument adds to a package. MUTANT is the id of the enabled mutant. MUTANT_TRACE is a file
// with a byte for each mutant, which becomes 1 when the mutant is reached. The file is mapped, so that tracing does not
// allocate and child processes of tests set the same bytes.
const switches = `
import (
	mutantos "os"
	mutantstrconv "strconv"
	mutantsyscall "syscall"
)

var (
	mutantID, _ = mutantstrconv.Atoi(mutantos.Getenv("MUTANT"))
	mutantTrace = mutantMap(mutantos.Getenv("MUTANT_TRACE"))
)

func isMutant(id int) bool {
	if mutantTrace != nil {
		mutantTrace[id] = 1
	}
	return id == mutantID
}

func mutantMap(name string) []byte {
	if name == "" {
		return nil
	}
	fd, err := mutantsyscall.Open(name, mutantsyscall.O_RDWR|mutantsyscall.O_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	defer mutantsyscall.Close(fd)
	b, err := mutantsyscall.Mmap(fd, 0, 1<<12, mutantsyscall.PROT_READ|mutantsyscall.PROT_WRITE, mutantsyscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return b
}

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

func mutantAdd[T mutantNumber](id int, a, b T) T {
	if isMutant(id) {
		return a - b
	}
	return a + b
}

func mutantSub[T mutantNumber](id int, a, b T) T {
	if isMutant(id) {
		return a + b
	}
	return a - b
}

func mutantNext[T mutantNumber](id int, a T) T {
	if isMutant(id) {
		return a + 1
	}
	return a
}
`

// instrument writes files with the mutants and their switches to dir, and returns the overlay for the go command. It
// omits mutants that do not compile and sets their outcome.
func (p *pkg) instrument(dir string, chosen []*mutant) (overlay string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	shared := "package " + p.name + "\n" + switches
	for {
		fset := token.NewFileSet()
		more, err := parser.ParseFile(fset, "zz_switches.go", shared, 0)
		if err != nil {
			return "", err
		}
		texts := map[string][]byte{}
		for _, f := range p.files {
			texts[f.path] = f.with(chosen)
		}
		errs := p.check(fset, nil, func(f *file) []byte { return texts[f.path] }, more)
		if len(errs) == 0 {
			return p.writeOverlay(dir, shared, texts)
		}
		if !p.excludeBroken(chosen, errs) {
			return "", fmt.Errorf("no mutant has these errors: %w", errors.Join(errs...))
		}
	}
}

// with returns the text of the file with its mutants, and records their positions in it.
func (f *file) with(chosen []*mutant) []byte {
	var b bytes.Buffer
	at := 0
	for _, m := range chosen {
		if m.file != f.path || m.outcome.kind == notCompiled {
			continue
		}
		b.Write(f.text[at:m.from])
		m.lo = b.Len()
		b.WriteString(strings.ReplaceAll(m.text, idMark, strconv.Itoa(m.id)))
		m.hi, at = b.Len(), m.to
	}
	b.Write(f.text[at:])
	return b.Bytes()
}

// excludeBroken omits the mutants with errors, and reports whether there were any.
func (p *pkg) excludeBroken(chosen []*mutant, errs []error) (found bool) {
	for _, err := range errs {
		var e types.Error
		if !errors.As(err, &e) {
			continue
		}
		at := e.Fset.Position(e.Pos)
		for _, m := range chosen {
			if m.file == at.Filename && m.lo <= at.Offset && at.Offset <= m.hi && m.outcome.kind != notCompiled {
				m.outcome, found = outcome{kind: notCompiled, by: e.Msg}, true
			}
		}
	}
	return found
}

func (p *pkg) writeOverlay(dir, shared string, texts map[string][]byte) (string, error) {
	replace := map[string]string{}
	write := func(name string, text []byte) error {
		to := filepath.Join(dir, name)
		replace[filepath.Join(p.dir, name)] = to
		return os.WriteFile(to, text, 0o666)
	}
	if err := write("zz_switches.go", []byte(shared)); err != nil {
		return "", err
	}
	for path, text := range texts {
		if err := write(filepath.Base(path), text); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o666)
}
