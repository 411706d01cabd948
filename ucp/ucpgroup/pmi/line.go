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

// maxLine is the maximum length of a line in bytes, including the line feed: PMIU_MAXLINE of MPICH's client.
const maxLine = 1024

// line is a message: a command, and values by name. It is text of the form
//
//	cmd=put kvsname=kvs_1 key=a value=b
//
// with a line feed at the end. Names, commands and values contain no spaces.
type line struct {
	cmd    string
	fields []field
}

type field struct{ name, value string }

// errLine is the error of a malformed line.
var errLine = fmt.Errorf("pmi: not a message: %w", ucs.ErrInvalidParam)

// parseLine parses a message without its line feed. If a name occurs twice, the first value counts.
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

// value returns the value with a name; "" if there is none.
func (l line) value(name string) string {
	for _, f := range l.fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// number returns a value that is a non-negative number. ErrInvalidParam for any other value.
func (l line) number(name string) (int, error) {
	n, err := strconv.Atoi(l.value(name))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("pmi: %s: %s is %q: %w", l.cmd, name, l.value(name), ucs.ErrInvalidParam)
	}
	return n, nil
}

// String returns the message as a line, with the line feed.
func (l line) String() string {
	var b strings.Builder
	b.WriteString("cmd=" + l.cmd)
	for _, f := range l.fields {
		b.WriteString(" " + f.name + "=" + f.value)
	}
	b.WriteByte('\n')
	return b.String()
}

// message returns a message with a command and fields. The arguments fields are names and values, alternately.
func message(cmd string, fields ...string) line {
	l := line{cmd: cmd}
	for i := 0; i+1 < len(fields); i += 2 {
		l.fields = append(l.fields, field{fields[i], fields[i+1]})
	}
	return l
}

// newReader returns a reader for lines. readLine returns an error for a line that does not fit into its buffer.
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
