package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/printer"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// listing returns the exported declarations of the package in a folder, as go doc -all prints
// them. It has no comments and no help texts, and sorts declarations by name: only a change of the
// API changes it. The first line has the number of exported names.
func (l *loader) listing(folder string) ([]byte, error) {
	files, err := l.parse(folder)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		dropComments(f)
	}
	p, err := doc.NewFromFiles(l.files, files, importPath(folder))
	if err != nil {
		return nil, err
	}
	w := writer{files: l.files}
	w.values("CONSTANTS", p.Consts)
	w.values("VARIABLES", p.Vars)
	w.heading("FUNCTIONS", len(p.Funcs))
	w.functions(p.Funcs)
	w.heading("TYPES", len(p.Types))
	for _, t := range p.Types {
		w.declaration(t.Decl)
		w.values("", t.Consts)
		w.values("", t.Vars)
		w.functions(t.Funcs)
		w.functions(t.Methods)
	}
	header := fmt.Sprintf("package %s // import %q, %d exported names\n", p.Name, p.ImportPath, w.names)
	return append([]byte(header), w.text.Bytes()...), w.err
}

// dropComments removes the comments of a file, also those that belong to declarations.
func dropComments(f *ast.File) {
	f.Comments = nil
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			n.Doc, n.Comment = nil, nil
		case *ast.ValueSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.TypeSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.GenDecl:
			n.Doc = nil
		case *ast.FuncDecl:
			n.Doc = nil
		}
		return true
	})
}

// writer prints declarations and counts the names that they export: those of the package,
// methods, and fields of structs.
type writer struct {
	text  bytes.Buffer
	files *token.FileSet
	names int
	err   error // of declarations that could not be printed
}

func (w *writer) heading(text string, n int) {
	if n > 0 && text != "" {
		fmt.Fprintf(&w.text, "\n%s\n", text)
	}
}

func (w *writer) values(heading string, values []*doc.Value) {
	w.heading(heading, len(values))
	slices.SortFunc(values, func(a, b *doc.Value) int { return strings.Compare(a.Names[0], b.Names[0]) })
	for _, v := range values {
		for _, spec := range v.Decl.Specs {
			w.valueSpec(spec.(*ast.ValueSpec))
		}
		w.print(v.Decl)
	}
}

// valueSpec counts the names of one line and removes the elements of its literals.
func (w *writer) valueSpec(spec *ast.ValueSpec) {
	for _, name := range spec.Names {
		w.count(name)
	}
	for _, v := range spec.Values {
		ast.Inspect(v, func(n ast.Node) bool {
			if l, ok := n.(*ast.CompositeLit); ok && len(l.Elts) > 0 {
				l.Elts = nil
			}
			return true
		})
	}
}

func (w *writer) functions(functions []*doc.Func) {
	for _, f := range functions {
		w.names++
		w.print(f.Decl)
	}
}

// declaration prints a type and counts it, its fields and its methods if it is an interface.
func (w *writer) declaration(d *ast.GenDecl) {
	w.names++
	ast.Inspect(d, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok {
			for _, name := range f.Names {
				w.count(name)
			}
		}
		_, isFunc := n.(*ast.FuncType)
		return !isFunc
	})
	w.print(d)
}

func (w *writer) count(name *ast.Ident) {
	if name.IsExported() {
		w.names++
	}
}

// print writes a declaration with an empty line before it and none in it, as those depend on
// comments.
func (w *writer) print(d ast.Decl) {
	var raw bytes.Buffer
	err := printer.Fprint(&raw, w.files, d)
	text := docTag.ReplaceAll(emptyLines.ReplaceAll(raw.Bytes(), []byte("\n")), []byte("$1"))
	text, err2 := format.Source(text)
	w.err = errors.Join(w.err, err, err2)
	fmt.Fprintf(&w.text, "\n%s\n", text)
}

var (
	emptyLines = regexp.MustCompile(`\n\s*\n`)
	// docTag finds the help text in the tag of a field.
	docTag = regexp.MustCompile(` doc:"(?:[^"\\]|\\.)*"(` + "`" + `)`)
)
