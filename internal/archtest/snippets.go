package archtest

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// skipLine is the line of a snippet that represents omitted lines of the file.
const skipLine = "// ..."

// CheckSnippets compares the Go code of a document with its files. A block begins with "```go" and the path of its file,
// relative to the root of the tree. Its lines must be consecutive lines of the file, except for indentation and for
// lines omitted at a skipLine. CheckSnippets returns a line for each block that differs.
func CheckSnippets(tree fs.FS, document string) (broken []string, err error) {
	text, err := fs.ReadFile(tree, document)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		file, ok := strings.CutPrefix(line, "```go")
		if !ok {
			continue
		}
		body := lines[i+1:]
		if end := slices.Index(body, "```"); end >= 0 {
			body = body[:end]
		}
		if problem := checkSnippet(tree, strings.TrimSpace(file), body); problem != "" {
			broken = append(broken, fmt.Sprintf("%s:%d: %s", document, i+1, problem))
		}
	}
	return broken, nil
}

// checkSnippet returns the difference between a snippet and its file, or "".
func checkSnippet(tree fs.FS, file string, snippet []string) string {
	if file == "" {
		return "the snippet names no file"
	}
	source, err := fs.ReadFile(tree, file)
	if err != nil {
		return err.Error()
	}
	rest := trimmed(strings.Split(string(source), "\n"))
	for piece := range pieces(trimmed(snippet)) {
		at := find(rest, piece)
		if at < 0 {
			return fmt.Sprintf("%s has no such lines: %q", file, piece[0])
		}
		rest = rest[at+len(piece):]
	}
	return ""
}

func trimmed(lines []string) (out []string) {
	for _, line := range lines {
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

// pieces yields the parts of a snippet between the lines skipLine.
func pieces(snippet []string) func(yield func(piece []string) bool) {
	return func(yield func(piece []string) bool) {
		for len(snippet) > 0 {
			piece, end := snippet, slices.Index(snippet, skipLine)
			if end >= 0 {
				piece, snippet = snippet[:end], snippet[end+1:]
			} else {
				snippet = nil
			}
			if len(piece) > 0 && !yield(piece) {
				return
			}
		}
	}
}

// find returns the index of a piece in lines, or -1.
func find(lines, piece []string) int {
	for i := range len(lines) - len(piece) + 1 {
		if slices.Equal(lines[i:i+len(piece)], piece) {
			return i
		}
	}
	return -1
}
