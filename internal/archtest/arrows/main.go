// Command arrows counts, for each folder that it is given, how many of its files use
// what another file of the folder declares: an arrow for each such pair, and how many of
// them go uphill in the order of files in which the fewest do. Files that know each other
// in circles cannot be read one after the other.
//
//	go run ./internal/archtest/arrows [-v] ucp ucp/internal/...
//
// Tests do not count. It asks the go command for the types of imported packages.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	verbose := flag.Bool("v", false, "list the arrows, the uphill ones marked, and the files in their order, the lowest first")
	flag.Parse()
	list, err := load(flag.Args())
	if err != nil {
		log.Fatal(err)
	}
	exports := map[string]string{}
	for _, p := range list {
		exports[p.ImportPath] = p.Export
	}
	fmt.Printf("%-28s %6s %7s %7s\n", "folder", "files", "arrows", "uphill")
	for _, p := range list {
		if p.DepOnly {
			continue
		}
		g, err := read(p, exports)
		if err != nil {
			log.Fatal(err)
		}
		order := g.order()
		fmt.Printf("%-28s %6d %7d %7d\n", p.folder(), len(g.files), g.arrows(), g.uphill(order))
		if *verbose {
			g.print(os.Stdout, order)
		}
	}
}

// pkg is what the go command tells of a package.
type pkg struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
	Module                  *struct{ Path string }
}

// folder is the place of the package in its module.
func (p *pkg) folder() string {
	if p.Module == nil {
		return p.ImportPath
	}
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
}

// load asks for the packages in folders, and all that they import.
func load(folders []string) (list []*pkg, err error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly,Module"}
	for _, f := range folders {
		args = append(args, "./"+strings.TrimPrefix(f, "./"))
	}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &pkg{}
		switch err := d.Decode(p); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, err
		}
		list = append(list, p)
	}
}

// graph says which files of a folder use which.
type graph struct {
	files []string
	uses  [][]bool // by user and used
}

// read finds the arrows of a package.
func read(p *pkg, exports map[string]string) (*graph, error) {
	fset := token.NewFileSet()
	var syntax []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		syntax = append(syntax, f)
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", open)}
	self, err := conf.Check(p.ImportPath, fset, syntax, &info)
	if err != nil {
		return nil, err
	}
	g := newGraph(p.GoFiles)
	for id, obj := range info.Uses {
		if obj.Pkg() == self {
			g.use(filepath.Base(fset.Position(id.Pos()).Filename), filepath.Base(fset.Position(obj.Pos()).Filename))
		}
	}
	return g, nil
}

func newGraph(files []string) *graph {
	g := &graph{files: files, uses: make([][]bool, len(files))}
	for i := range g.uses {
		g.uses[i] = make([]bool, len(files))
	}
	return g
}

// use notes that one file uses another.
func (g *graph) use(user, used string) {
	if user != used {
		g.uses[slices.Index(g.files, user)][slices.Index(g.files, used)] = true
	}
}

func (g *graph) arrows() (n int) {
	for _, row := range g.uses {
		for _, yes := range row {
			if yes {
				n++
			}
		}
	}
	return n
}

// uphill counts the arrows to a file that comes later.
func (g *graph) uphill(order []int) (n int) {
	for i, user := range order {
		for _, used := range order[i+1:] {
			if g.uses[user][used] {
				n++
			}
		}
	}
	return n
}

// order puts used files before their users as far as that goes: each file is moved to
// where the fewest arrows go uphill, until no move is better.
func (g *graph) order() []int {
	order := make([]int, len(g.files))
	for i := range order {
		order[i] = i
	}
	for better := true; better; {
		better = false
		for i := range order {
			at, gain := g.bestMove(order, i)
			if gain > 0 {
				f := order[i]
				order = slices.Insert(slices.Delete(order, i, i+1), at, f)
				better = true
			}
		}
	}
	return order
}

// bestMove is where the i-th file goes best, and how many uphill arrows fewer that makes.
func (g *graph) bestMove(order []int, i int) (at, gain int) {
	f := order[i]
	cost := func(below, above int) int { // what an exchange of neighbours adds
		return b2i(g.uses[below][above]) - b2i(g.uses[above][below])
	}
	at = i
	for sum, k := 0, i-1; k >= 0; k-- { // down, below order[k]
		if sum += cost(f, order[k]); -sum > gain {
			at, gain = k, -sum
		}
	}
	for sum, k := 0, i+1; k < len(order); k++ { // up, above order[k]
		if sum += cost(order[k], f); -sum > gain {
			at, gain = k, -sum
		}
	}
	return at, gain
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// print lists what each file uses, in the order, and marks what comes later.
func (g *graph) print(w io.Writer, order []int) {
	for i, user := range order {
		fmt.Fprintf(w, "  %s:", g.files[user])
		for k, used := range order {
			if g.uses[user][used] {
				mark := ""
				if k > i {
					mark = "^"
				}
				fmt.Fprintf(w, " %s%s", mark, g.files[used])
			}
		}
		fmt.Fprintln(w)
	}
}
