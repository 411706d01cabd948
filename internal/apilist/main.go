// Command apilist writes docs/api: for each package that programs outside of this module can
// import, its exported declarations. The files are committed, and a test compares them, so that
// a review sees each change of the API. Run it as make api.
package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// listings is where the files are, from the root of the module.
const listings = "docs/api"

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "apilist:", err)
		os.Exit(1)
	}
}

// write replaces all listings of the module in root.
func write(root string) error {
	texts, err := all(root)
	if err != nil {
		return err
	}
	folder := filepath.Join(root, listings)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// all returns the listings by the names of their files.
func all(root string) (map[string][]byte, error) {
	l := newLoader(root)
	folders, err := l.publicFolders()
	if err != nil {
		return nil, err
	}
	texts := map[string][]byte{}
	for _, folder := range folders {
		text, err := l.listing(folder)
		if err != nil {
			return nil, err
		}
		texts[fileName(folder)] = text
	}
	return texts, nil
}

// fileName returns the name of the listing of a folder: uct-ib-verbs.txt of uct/ib/verbs.
func fileName(folder string) string {
	if folder == "." {
		folder = path.Base(module)
	}
	return strings.ReplaceAll(folder, "/", "-") + ".txt"
}
