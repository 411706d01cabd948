package sheet

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	// usualWidth is the width if there is no terminal.
	usualWidth = 80
	// leastWidth is the width of a table on a narrower terminal.
	leastWidth = 40
	// proseWidth is the maximum length of a line of text.
	proseWidth = 100
)

// Width returns the number of columns of a line of w: that of a terminal, otherwise 80.
func Width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return usualWidth
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return usualWidth
	}
	return max(int(size.Col), leastWidth)
}

// Wrap breaks the lines of text between words so that none is longer than width or than proseWidth.
// A longer word is not broken.
func Wrap(text string, width int) string {
	width = min(width, proseWidth)
	var out []string
	for _, line := range strings.Split(text, "\n") {
		out = append(out, wrapLine(line, width)...)
	}
	return strings.Join(out, "\n")
}

func wrapLine(line string, width int) (lines []string) {
	if utf8.RuneCountInString(line) <= width {
		return []string{line}
	}
	now := ""
	for _, word := range strings.Fields(line) {
		switch {
		case now == "":
			now = word
		case utf8.RuneCountInString(now)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, now)
			now = word
		default:
			now += " " + word
		}
	}
	return append(lines, now)
}

// TextWidth returns the length of the longest line of text.
func TextWidth(text string) (n int) {
	for _, line := range strings.Split(text, "\n") {
		n = max(n, utf8.RuneCountInString(line))
	}
	return n
}
