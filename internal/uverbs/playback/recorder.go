package playback

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/uverbs"
)

// Recorder is a kernel that passes calls to another kernel and records them.
type Recorder struct {
	uverbs.Kernel

	mu    sync.Mutex
	lines []string
}

// Text returns the record.
func (r *Recorder) Text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n") + "\n"
}

func (r *Recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// Open implements uverbs.Kernel.
func (r *Recorder) Open(path string) (uverbs.File, error) {
	f, err := r.Kernel.Open(path)
	if err != nil {
		return nil, err
	}
	r.add("open")
	return &recordedFile{File: f, r: r}, nil
}

type recordedFile struct {
	uverbs.File
	r *Recorder
}

func errno(err error) int {
	var e unix.Errno
	errors.As(err, &e)
	return int(e)
}

// Ioctl implements uverbs.File.
func (f *recordedFile) Ioctl(m uverbs.Method, d uverbs.Driver, attrs []uverbs.Attr) error {
	given := make([]string, len(attrs))
	for i := range attrs {
		given[i] = describe(&attrs[i])
	}
	err := f.File.Ioctl(m, d, attrs)
	for i := range attrs {
		switch a := &attrs[i]; a.Kind {
		case uverbs.AttrOut:
			given[i] += " " + hex.EncodeToString(a.Data)
		case uverbs.AttrObject:
			given[i] += fmt.Sprintf(" %d", a.Value)
		}
	}
	f.r.add("%s errno %d | %s", call(m, d), errno(err), strings.Join(given, " | "))
	return err
}

func call(m uverbs.Method, d uverbs.Driver) string {
	return fmt.Sprintf("ioctl %d.%d driver %d", m.Object, m.Number, uint32(d))
}

// describe returns the text of an attribute before the call.
func describe(a *uverbs.Attr) string {
	switch a.Kind {
	case uverbs.AttrIn:
		return fmt.Sprintf("in %d %x", a.ID, a.Data)
	case uverbs.AttrOut:
		return fmt.Sprintf("out %d", a.ID)
	case uverbs.AttrConst:
		return fmt.Sprintf("const %d %d", a.ID, a.Value)
	}
	return fmt.Sprintf("object %d %d", a.ID, a.Value)
}

// Write implements uverbs.File.
func (f *recordedFile) Write(command []byte, brief bool) error {
	err := f.File.Write(command, brief)
	f.r.add("write errno %d %x", errno(err), command)
	return err
}

// headerLen is the number of bytes of a mapping in the record: the header of a queue of rxe.
const headerLen = 384

// Map implements uverbs.File.
func (f *recordedFile) Map(offset int64, n int) ([]byte, error) {
	mem, err := f.File.Map(offset, n)
	f.r.add("map errno %d len %d header %x", errno(err), n, mem[:min(headerLen, len(mem))])
	return mem, err
}
