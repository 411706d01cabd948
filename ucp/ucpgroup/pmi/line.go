package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gucx/gucx/ucs"
)

// maxLine is how long a line may be, with its end: PMIU_MAXLINE of MPICH's client.
const maxLine = 1024

// line is a message: a command, and values by name. It is text of the form
//
//	cmd=put kvsname=kvs_1 key=a value=b
//
// with a line feed behind it. Names, commands and values hold no spaces.
type line struct {
	cmd    string
	fields []field
}

type field struct{ name, value string }

// errLine is a line that is no message.
var errLine = fmt.Errorf("pmi: not a message: %w", ucs.ErrInvalidParam)

// parseLine reads a message, without the line feed. What comes twice counts once, as it came
// first.
func parseLine(text string) (line, error) {
	var l line
	for _, word := range strings.Fields(text) {
		name, value, ok := strings.Cut(word, "=")
		if !ok || name == "" {
			if l.cmd == "" {
				return line{}, errLine
			}
			continue // part of a text for people, such as msg=key not found
		}
		if name == "cmd" && l.cmd == "" {
			l.cmd = value
			continue
		}
		l.fields = append(l.fields, field{name, value})
	}
	if l.cmd == "" {
		return line{}, errLine
	}
	return l, nil
}

// value is the value of that name, or empty.
func (l line) value(name string) string {
	for _, f := range l.fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// number is a value that is a number, from 0 on.
func (l line) number(name string) (int, error) {
	n, err := strconv.Atoi(l.value(name))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("pmi: %s: %s is %q: %w", l.cmd, name, l.value(name), ucs.ErrInvalidParam)
	}
	return n, nil
}

// String is the text, with the line feed.
func (l line) String() string {
	var b strings.Builder
	b.WriteString("cmd=" + l.cmd)
	for _, f := range l.fields {
		b.WriteString(" " + f.name + "=" + f.value)
	}
	b.WriteByte('\n')
	return b.String()
}

// message makes a message of a command, and names and values in turn.
func message(cmd string, fields ...string) line {
	l := line{cmd: cmd}
	for i := 0; i+1 < len(fields); i += 2 {
		l.fields = append(l.fields, field{fields[i], fields[i+1]})
	}
	return l
}

// newReader reads lines, of which one that is too long is an error.
func newReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 4*maxLine) }

// readLine reads a message.
func readLine(r *bufio.Reader) (line, error) {
	text, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return line{}, fmt.Errorf("pmi: line: %w", ucs.ErrTooLong)
	case err == io.EOF && len(text) > 0:
		return line{}, io.ErrUnexpectedEOF
	case err != nil:
		return line{}, err
	}
	return parseLine(strings.TrimSuffix(string(text), "\n"))
}
