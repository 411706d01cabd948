package main

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// module is the import path of the root of the tree.
const module = "github.com/gucx/gucx"

// loader parses and type-checks packages of this module from source. Packages of other
// modules and of the standard library are empty for it: their types are invalid, which no
// check here depends on, and nothing has to be compiled.
type loader struct {
	root    string // folder of the module
	context build.Context
	files   *token.FileSet
	loaded  map[string]*types.Package // by import path
}

// newLoader returns a loader that sees the files of linux on amd64 without build tags,
// whatever machine it runs on.
func newLoader(root string) *loader {
	c := build.Default
	c.GOOS, c.GOARCH, c.CgoEnabled, c.BuildTags = "linux", "amd64", false, nil
	c.ToolTags = nil // the race detector and experiments
	return &loader{root: root, context: c, files: token.NewFileSet(), loaded: map[string]*types.Package{}}
}

// publicFolders returns the folders of the packages that programs outside of the module can
// import, relative to the root and sorted. "." is the root.
func (l *loader) publicFolders() (folders []string, err error) {
	err = filepath.WalkDir(l.root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		folder, err := filepath.Rel(l.root, name)
		if err != nil {
			return err
		}
		base := path.Base(folder)
		hidden := folder != "." && strings.HasPrefix(base, ".")
		if hidden || slices.Contains([]string{"internal", "testdata", "examples", "docs"}, base) {
			return fs.SkipDir
		}
		p, err := l.context.ImportDir(name, 0)
		if _, none := err.(*build.NoGoError); none {
			return nil
		}
		if err == nil && p.Name != "main" {
			folders = append(folders, folder)
		}
		return err
	})
	return folders, err
}

// parse reads the files of the package in a folder, with comments.
func (l *loader) parse(folder string) (files []*ast.File, err error) {
	p, err := l.context.ImportDir(filepath.Join(l.root, folder), 0)
	if err != nil {
		return nil, err
	}
	for _, name := range p.GoFiles {
		name = filepath.Join(l.root, folder, name)
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(l.files, name, source, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// Import returns the package with an import path, loaded once. It implements types.Importer.
func (l *loader) Import(importPath string) (*types.Package, error) {
	if importPath == "unsafe" {
		return types.Unsafe, nil
	}
	if p, ok := l.loaded[importPath]; ok {
		return p, nil
	}
	folder, ours := strings.CutPrefix(importPath+"/", module+"/")
	if !ours {
		p := types.NewPackage(importPath, path.Base(importPath))
		p.MarkComplete()
		l.loaded[importPath] = p
		return p, nil
	}
	files, err := l.parse(folder)
	if err != nil {
		return nil, err
	}
	check := types.Config{Importer: l, IgnoreFuncBodies: true, Error: func(error) {}}
	p, _ := check.Check(importPath, l.files, files, nil) // the errors are about types of empty packages
	l.loaded[importPath] = p
	return p, nil
}

// importPath returns the import path of a folder.
func importPath(folder string) string { return path.Join(module, folder) }
