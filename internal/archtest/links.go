package archtest

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Documents returns the names of the Markdown files of a tree, sorted.
func Documents(tree fs.FS) (names []string, err error) {
	err = fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() && name != "." && strings.HasPrefix(path.Base(name), ".") {
			return fs.SkipDir
		}
		if path.Ext(name) == ".md" {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

var (
	// localLink matches a link to a file of the tree, not to another site or heading.
	localLink = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)
	// fileName matches a file name with its folder.
	fileName = regexp.MustCompile("`([\\w.-]+(?:/[\\w.-]+)+\\.(?:go|md|s|txt))`")
)

// CheckLinks returns a line for each missing file that a document links to, or names with its folder. Links are relative
// to the document; names are relative to the root of the tree or to any folder of it.
func CheckLinks(tree fs.FS, document string) (broken []string, err error) {
	text, err := fs.ReadFile(tree, document)
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, m := range localLink.FindAllStringSubmatch(line, -1) {
			if _, err := fs.Stat(tree, path.Join(path.Dir(document), m[1])); err != nil {
				broken = append(broken, fmt.Sprintf("%s:%d: link to %s, which is not there", document, i+1, m[1]))
			}
		}
		for _, m := range fileName.FindAllStringSubmatch(line, -1) {
			there, err := named(tree, m[1])
			if err != nil {
				return nil, err
			}
			if !there {
				broken = append(broken, fmt.Sprintf("%s:%d: %s is not there", document, i+1, m[1]))
			}
		}
	}
	return broken, nil
}

// named reports whether the tree has a file whose path ends in name.
func named(tree fs.FS, name string) (bool, error) {
	if _, err := fs.Stat(tree, name); err == nil {
		return true, nil
	}
	found := false
	err := fs.WalkDir(tree, ".", func(p string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() && slices.Contains([]string{".git", "testdata"}, path.Base(p)) {
			return fs.SkipDir
		}
		if strings.HasSuffix(p, "/"+name) {
			found = true
			return fs.SkipAll
		}
		return err
	})
	return found, err
}
