package archtest

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
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// TypedPackage is a type-checked package without its tests.
type TypedPackage struct {
	path     string
	fileSet  *token.FileSet
	files    []*ast.File
	folder   []string // all files of the folder except tests, for all build tags
	types    *types.Package
	info     types.Info
	fieldsOf map[*types.Var]string // "Type.field" by field
	rooms    map[string]string     // room by file, for files with a room comment
}

// LoadPackage loads the package of this module in a folder. The go command builds imported
// packages that are not in its cache.
func LoadPackage(folder string) (*TypedPackage, error) {
	listed, err := goList(folder)
	if err != nil {
		return nil, err
	}
	p := &TypedPackage{fileSet: token.NewFileSet()}
	exports := map[string]string{}
	var sources map[string]io.Reader
	for _, l := range listed {
		exports[l.ImportPath] = l.Export
		if l.DepOnly {
			continue
		}
		p.path = l.ImportPath
		p.folder = slices.Concat(l.GoFiles, l.IgnoredGoFiles)
		if sources, err = openAll(l.Dir, l.GoFiles); err != nil {
			return nil, err
		}
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	return p, p.check(sources, importer.ForCompiler(p.fileSet, "gc", open))
}

// openAll opens the named files of a folder.
func openAll(folder string, names []string) (map[string]io.Reader, error) {
	sources := map[string]io.Reader{}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		sources[name] = bytes.NewReader(b)
	}
	return sources, nil
}

// listedPackage is the output of "go list" for a package.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles, IgnoredGoFiles []string
	DepOnly                 bool
}

// goList lists the package in a folder and all packages that it imports.
func goList(folder string) (list []listedPackage, err error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,IgnoredGoFiles,DepOnly", folder)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", folder, err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listedPackage
		switch err := d.Decode(&l); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, err
		}
		l.IgnoredGoFiles = slices.DeleteFunc(l.IgnoredGoFiles, isTestFile)
		list = append(list, l)
	}
}

func isTestFile(name string) bool { return strings.HasSuffix(name, "_test.go") }

// check parses and type-checks the sources.
func (p *TypedPackage) check(sources map[string]io.Reader, imports types.Importer) error {
	p.rooms = map[string]string{}
	for _, name := range sorted(sources) {
		f, err := parser.ParseFile(p.fileSet, name, sources[name], parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		p.files = append(p.files, f)
		if room := roomComment(f); room != "" {
			p.rooms[name] = room
		}
	}
	p.info = types.Info{
		Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Instances: map[*ast.Ident]types.Instance{},
	}
	conf := types.Config{Importer: imports}
	var err error
	p.types, err = conf.Check(p.path, p.fileSet, p.files, &p.info)
	if err != nil {
		return err
	}
	p.nameFields()
	return nil
}

// roomComment returns NAME of a comment //room:NAME in the file, or "".
func roomComment(f *ast.File) string {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if room, ok := strings.CutPrefix(c.Text, "//room:"); ok {
				return strings.TrimSpace(room)
			}
		}
	}
	return ""
}

// BadRecords returns the record types of requests (type arguments of recordOf) that contain a pointer, which the garbage
// collector would not see, or are larger than type record. The result is empty if the package has no type record.
func (p *TypedPackage) BadRecords() (bad []string) {
	record := p.types.Scope().Lookup("record")
	if record == nil {
		return nil
	}
	room := types.SizesFor("gc", "amd64")
	most := room.Sizeof(record.Type())
	seen := map[types.Type]bool{}
	for id, instance := range p.info.Instances {
		t := instance.TypeArgs.At(0)
		if id.Name != "recordOf" || seen[t] {
			continue
		}
		seen[t] = true
		if n := room.Sizeof(t); n > most {
			bad = append(bad, fmt.Sprintf("%v has %d bytes, a record %d", t, n, most))
		}
		if hasPointer(t) {
			bad = append(bad, fmt.Sprintf("%v has a pointer", t))
		}
	}
	slices.Sort(bad)
	return bad
}

// hasPointer reports whether values of the type may refer to memory.
func hasPointer(t types.Type) bool {
	switch t := t.Underlying().(type) {
	case *types.Basic:
		return t.Info()&(types.IsNumeric|types.IsBoolean) == 0
	case *types.Array:
		return hasPointer(t.Elem())
	case *types.Struct:
		for f := range t.Fields() {
			if hasPointer(f.Type()) {
				return true
			}
		}
		return false
	}
	return true
}

// nameFields names the fields of all structs that are declared in the package.
func (p *TypedPackage) nameFields() {
	p.fieldsOf = map[*types.Var]string{}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			t, ok := n.(*ast.TypeSpec)
			if ok && p.isGlobal(p.info.Defs[t.Name]) {
				p.nameFieldsOf(t.Name.Name, t.Type)
			}
			return true
		})
	}
}

// nameFieldsOf names the fields in the source of a type, and those of structs in it.
func (p *TypedPackage) nameFieldsOf(owner string, source ast.Expr) {
	ast.Inspect(source, func(n ast.Node) bool {
		s, ok := n.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range s.Fields.List {
			for _, id := range f.Names {
				if v, ok := p.info.Defs[id].(*types.Var); ok {
					p.fieldsOf[v] = owner + "." + id.Name
				}
			}
		}
		return true
	})
}

// isGlobal reports whether an object is declared at the top level of the package.
func (p *TypedPackage) isGlobal(o types.Object) bool {
	return o != nil && o.Parent() == p.types.Scope()
}

// file returns the base name of the file of a position.
func (p *TypedPackage) file(at token.Pos) string {
	return filepath.Base(p.fileSet.Position(at).Filename)
}

// name returns the name of an object in an assignment: the name itself at top level, Type.name for a method or field,
// and "" for a local object.
func (p *TypedPackage) name(o types.Object) string {
	switch o := o.(type) {
	case *types.Var:
		if o.IsField() {
			return p.fieldsOf[o.Origin()]
		}
	case *types.Func:
		if r := o.Origin().Signature().Recv(); r != nil {
			return receiverName(r.Type()) + "." + o.Name()
		}
	}
	if p.isGlobal(o) {
		return o.Name()
	}
	return ""
}

// receiverName returns the name of the type of a receiver, or "".
func receiverName(t types.Type) string {
	if ptr, ok := t.(*types.Pointer); ok {
		t = ptr.Elem()
	}
	if n, ok := types.Unalias(t).(*types.Named); ok {
		return n.Obj().Name()
	}
	return ""
}

// RoomUse is the use of a name of another room.
type RoomUse struct {
	Symbol   string // used name
	From, To string // room of the use, and room of the name
	File     string // file of the use
	Line     int
}

func (u RoomUse) pair() string { return u.From + " -> " + u.To }

func (u RoomUse) String() string {
	return fmt.Sprintf("%s from %s:%d (%s) to %s", u.Symbol, u.File, u.Line, u.From, u.To)
}

// Illegal returns the uses in a package that violate the directions, in the order of files and lines, and a line for each
// error in the assignment.
func (r *Rooms) Illegal(p *TypedPackage) (illegal []RoomUse, broken []string) {
	r, broken = r.withComments(p.rooms)
	broken = append(broken, r.checkFiles(p.folder)...)
	v := roomVisitor{rooms: r, p: p, unknown: map[string]bool{}}
	for name := range r.names {
		v.unknown[name] = true
	}
	for _, f := range p.files {
		for _, d := range f.Decls {
			v.visit(d)
		}
	}
	for _, name := range sorted(v.unknown) {
		broken = append(broken, name+": has a line in names, but there is nothing of that name")
	}
	return v.illegal, broken
}

// withComments returns the assignment with the rooms of room comments, and a line for each error in them.
func (r *Rooms) withComments(comments map[string]string) (_ *Rooms, broken []string) {
	all := *r
	all.files = maps.Clone(r.files)
	for _, file := range sorted(comments) {
		switch room := comments[file]; {
		case !slices.Contains(r.order, room):
			broken = append(broken, fmt.Sprintf("%s: names room %s, which is no room", file, room))
		case r.files[file] != "":
			broken = append(broken, file+": has a room comment and a line of its own; delete one")
		default:
			all.files[file] = room
		}
	}
	return &all, broken
}

// checkFiles returns a line for each file without a room, and for each assigned file that does not exist.
func (r *Rooms) checkFiles(folder []string) (broken []string) {
	for _, f := range folder {
		if r.files[f] == "" {
			broken = append(broken, f+": has no room; name the room whose work it does in a comment //room:NAME (rooms are: "+strings.Join(r.order, ", ")+")")
		}
	}
	for _, f := range sorted(r.files) {
		if !slices.Contains(folder, f) {
			broken = append(broken, f+": has a room, but there is no such file")
		}
	}
	return broken
}

// roomVisitor visits the declarations of a package and collects illegal uses.
type roomVisitor struct {
	rooms   *Rooms
	p       *TypedPackage
	illegal []RoomUse
	unknown map[string]bool // assigned names that the package does not declare
}

// visit visits a declaration at top level.
func (v *roomVisitor) visit(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		v.count(d, v.roomOf(v.p.info.Defs[d.Name]))
	case *ast.GenDecl:
		for _, s := range d.Specs {
			v.visitSpec(s)
		}
	}
}

// visitSpec visits a type, or the variables or constants of one line.
func (v *roomVisitor) visitSpec(s ast.Spec) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		room := v.roomOf(v.p.info.Defs[s.Name])
		if t, ok := s.Type.(*ast.StructType); ok {
			v.visitFields(t, room)
			return
		}
		v.count(s, room)
	case *ast.ValueSpec:
		v.count(s, v.roomOf(v.p.info.Defs[s.Names[0]]))
	}
}

// visitFields visits the fields of a struct, which may belong to different rooms.
func (v *roomVisitor) visitFields(t *ast.StructType, room string) {
	for _, f := range t.Fields.List {
		of := room
		if len(f.Names) > 0 {
			of = v.roomOf(v.p.info.Defs[f.Names[0]])
		}
		v.count(f, of)
	}
}

// count adds the illegal uses below a node of room from.
func (v *roomVisitor) count(n ast.Node, from string) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		o := v.p.info.Uses[id]
		if o == nil || o.Pkg() != v.p.types || v.p.name(o) == "" {
			return true
		}
		if to := v.roomOf(o); !v.rooms.permits(from, to) {
			v.illegal = append(v.illegal, RoomUse{v.p.name(o), from, to, v.p.file(id.Pos()), v.p.fileSet.Position(id.Pos()).Line})
		}
		return true
	})
}

// roomOf returns the room of an object: that of its name; otherwise, for a field, that of its type's name; otherwise that
// of its file.
func (v *roomVisitor) roomOf(o types.Object) string {
	name := v.p.name(o)
	owner, _, member := strings.Cut(name, ".")
	delete(v.unknown, name)
	if room, ok := v.rooms.names[name]; ok {
		return room
	}
	if field, ok := o.(*types.Var); ok && member && field.IsField() {
		if room, ok := v.rooms.names[owner]; ok {
			return room
		}
	}
	return v.rooms.files[v.p.file(o.Pos())]
}
