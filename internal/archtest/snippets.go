package archtest

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// skipLine stands in a snippet for lines of the file that it leaves out.
const skipLine = "// ..."

// CheckSnippets holds the Go of a document to the files that it is from. A block that begins
// with "```go" names its file, from the root of the tree, behind that; its lines are in the file
// in the same order and next to each other, but for indentation and where skipLine is. It
// returns a line for each block that is not so.
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

// checkSnippet says what is wrong with a snippet of a file, or nothing.
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

// pieces are the parts of a snippet between lines that are left out.
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

// find is where a piece is in lines, or -1.
func find(lines, piece []string) int {
	for i := range len(lines) - len(piece) + 1 {
		if slices.Equal(lines[i:i+len(piece)], piece) {
			return i
		}
	}
	return -1
}
