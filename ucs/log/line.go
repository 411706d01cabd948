package log

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unicode"
)

// lineHandler writes records in UCX's line format.
type lineHandler struct {
	out       *lineWriter
	component string
	prefix    string // prefix of further keys: the names of the groups, each with a dot
	attrs     string // formatted attributes of WithAttrs
}

// lineWriter is shared by a handler and the handlers that WithAttrs and WithGroup return.
type lineWriter struct {
	mu   sync.Mutex
	w    io.Writer
	host string
	pid  int
}

// NewLineHandler returns a handler that writes each record to w as one line, by one call of Write. The package
// documentation has the format. The handler enables all levels.
func NewLineHandler(w io.Writer) slog.Handler {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	host, _, _ = strings.Cut(host, ".")
	return &lineHandler{out: &lineWriter{w: w, host: host, pid: os.Getpid()}}
}

// Enabled implements slog.Handler.
func (*lineHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	if !r.Time.IsZero() {
		fmt.Fprintf(&line, "[%d.%06d] ", r.Time.Unix(), r.Time.Nanosecond()/1000)
	}
	fmt.Fprintf(&line, "[%s:%d] %sGUCX %-5s ", h.out.host, h.out.pid, source(r.PC), levels[fromSlog(r.Level).index()].label)
	if h.component != "" {
		line.WriteString(h.component + ": ")
	}
	line.WriteString(printable(r.Message))
	line.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		appendAttr(&line, h.prefix, a)
		return true
	})
	line.WriteByte('\n')
	return h.out.write(line.String())
}

// WithAttrs implements slog.Handler.
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	derived := *h
	var text strings.Builder
	text.WriteString(h.attrs)
	for _, a := range attrs {
		if a.Key == componentKey && h.prefix == "" {
			derived.component = printable(a.Value.Resolve().String())
			continue
		}
		appendAttr(&text, h.prefix, a)
	}
	derived.attrs = text.String()
	return &derived
}

// WithGroup implements slog.Handler.
func (h *lineHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	derived := *h
	derived.prefix += name + "."
	return &derived
}

// write writes one line.
func (o *lineWriter) write(line string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, err := io.WriteString(o.w, line)
	return err
}

// source is "file:line " of the call, or empty if the record has none.
func source(pc uintptr) string {
	if pc == 0 {
		return ""
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return fmt.Sprintf("%s:%d ", filepath.Base(frame.File), frame.Line)
}

// appendAttr adds ", key value", and the members of a group one by one.
func appendAttr(line *strings.Builder, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if a.Key == "" && v.Kind() != slog.KindGroup || a.Equal(slog.Attr{}) {
		return
	}
	if v.Kind() != slog.KindGroup {
		fmt.Fprintf(line, ", %s%s %s", prefix, printable(a.Key), printable(v.String()))
		return
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, member := range v.Group() {
		appendAttr(line, prefix, member)
	}
}

// printable replaces characters that are not printable, because text may come from a peer and a record must be one line.
func printable(s string) string {
	control := func(r rune) bool { return !unicode.IsPrint(r) }
	if strings.IndexFunc(s, control) < 0 {
		return s
	}
	quoted := fmt.Sprintf("%q", s)
	return quoted[1 : len(quoted)-1]
}
