package adapter

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/uverbs"
)

// transcriptAttr is an attribute of a recorded call.
type transcriptAttr struct {
	kind  string // object, const, in, out
	id    uint16
	value uint64   // const: the number; object: the handle before the call
	after uint64   // object: the handle after the call
	len   int      // in and out: length in bytes
	data  []string // in: hexadecimal, or @ and an address
	reply []byte   // out: the reply of the kernel
}

// transcriptCall is a recorded call.
type transcriptCall struct {
	op    string
	errno unix.Errno
	attrs []transcriptAttr
	used  bool
}

// transcriptStep is a step of the recorded program and its calls.
type transcriptStep struct {
	name  string
	calls []*transcriptCall
}

// readTranscript reads a file of testdata.
func readTranscript(t *testing.T, path string) (steps []*transcriptStep) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "# "); ok {
			steps = append(steps, &transcriptStep{name: name})
			continue
		}
		last := steps[len(steps)-1]
		last.calls = append(last.calls, parseCall(t, line))
	}
	return steps
}

func parseCall(t *testing.T, line string) *transcriptCall {
	t.Helper()
	if rest, ok := strings.CutPrefix(line, "map "); ok {
		return &transcriptCall{op: "map " + rest}
	}
	parts := strings.Split(line, " | ")
	var m uverbs.Method
	c := &transcriptCall{}
	_, err := fmt.Sscanf(parts[0], "ioctl %d.%d driver 1 errno %d", &m.Object, &m.Number, &c.errno)
	require.NoError(t, err, line)
	for _, p := range parts[1:] {
		c.attrs = append(c.attrs, parseAttr(t, p))
	}
	c.op = opName(m, c.constant(2))
	return c
}

func parseAttr(t *testing.T, text string) (a transcriptAttr) {
	t.Helper()
	words := strings.Fields(text)
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, text)
		return n
	}
	a.kind, a.id = words[0], uint16(number(words[1]))
	switch a.kind {
	case "const":
		a.value = number(words[2])
	case "object":
		a.value, a.after = number(words[2]), number(words[3])
	case "in":
		a.len, a.data = int(number(words[2])), words[3:]
	case "out":
		a.len = int(number(words[2]))
		var err error
		a.reply, err = hex.DecodeString(strings.Join(words[3:], ""))
		require.NoError(t, err, text)
	}
	return a
}

func (c *transcriptCall) attr(id uint16) *transcriptAttr {
	for i := range c.attrs {
		if c.attrs[i].id == id {
			return &c.attrs[i]
		}
	}
	return nil
}

func (c *transcriptCall) constant(id uint16) uint64 {
	if a := c.attr(id); a != nil {
		return a.value
	}
	return 0
}

// opName returns the name of a method, or of the command that it invokes.
func opName(m uverbs.Method, command uint64) string {
	if m == uverbs.MethodInvokeWrite {
		return uverbs.CommandNumber(command).String()
	}
	return m.String()
}

// transcriptKernel replies to the calls of this package with the recorded replies to libmlx5, and lists the differences
// between the calls.
type transcriptKernel struct {
	t       *testing.T
	steps   []*transcriptStep
	current int
	equal   int // number of calls without a difference
	diffs   []string
	fds     map[uint64]uint64 // descriptors of this process by recorded descriptor
	ends    []int
	pages   []*offheap.Block
}

func newTranscriptKernel(t *testing.T, path string) *transcriptKernel {
	if !mmio.ForDevices {
		t.Skip("this build has no fences for devices")
	}
	k := &transcriptKernel{t: t, steps: readTranscript(t, path), fds: map[uint64]uint64{}}
	t.Cleanup(func() {
		for _, fd := range k.ends {
			require.NoError(t, unix.Close(fd))
		}
		for _, p := range k.pages {
			require.NoError(t, p.Free())
		}
	})
	return k
}

// step starts the next step of the record. The test fails if it has another name.
func (k *transcriptKernel) step(name string) {
	k.t.Helper()
	k.finish()
	k.current++
	require.Equal(k.t, k.steps[k.current].name, name)
}

// finish adds the recorded calls of the step that were not made to the differences.
func (k *transcriptKernel) finish() {
	for _, c := range k.steps[k.current].calls {
		if !c.used {
			k.differ("only libmlx5: %s", c.op)
		}
	}
}

func (k *transcriptKernel) differ(format string, args ...any) {
	k.diffs = append(k.diffs, k.steps[k.current].name+": "+fmt.Sprintf(format, args...))
}

// match returns the recorded call for a call: an equal one of this step; otherwise the most similar one with the same
// name of this step; otherwise one of another step, which is a difference.
func (k *transcriptKernel) match(op string, attrs []uverbs.Attr) *transcriptCall {
	var best *transcriptCall
	var diffs []string
	for _, c := range k.steps[k.current].calls {
		if c.op != op || c.used || c.errno == unix.ENOSPC { // ENOSPC: libmlx5 probes for the ioctl
			continue
		}
		d := k.compare(c, attrs)
		if len(d) > 0 && destroys(op) {
			continue // the call destroys another object
		}
		if best == nil || len(d) < len(diffs) {
			best, diffs = c, d
		}
	}
	if best != nil {
		best.used = true
		if len(diffs) == 0 {
			k.equal++
		}
		for _, d := range diffs {
			k.differ("%s: %s", op, d)
		}
		return best
	}
	k.differ("only gucx: %s", op)
	for _, s := range k.steps {
		for _, c := range s.calls {
			if c.op == op && c.errno != unix.ENOSPC {
				return c
			}
		}
	}
	return nil
}

// destroys reports whether the only attribute of a call is the handle of the object that it destroys.
func destroys(op string) bool {
	verb, _, _ := strings.Cut(op, " ")
	return slices.Contains([]string{"destroy", "free", "deregister", "close"}, verb)
}

// compare returns the differences of attributes.
func (k *transcriptKernel) compare(c *transcriptCall, attrs []uverbs.Attr) (diffs []string) {
	for i := range attrs {
		a := &attrs[i]
		want := c.attr(a.ID)
		if want == nil {
			diffs = append(diffs, fmt.Sprintf("attribute %d only by gucx", a.ID))
			continue
		}
		for _, d := range k.compareAttr(c.op, want, a) {
			diffs = append(diffs, fmt.Sprintf("attribute %d %s", a.ID, d))
		}
	}
	for _, want := range c.attrs {
		if !slices.ContainsFunc(attrs, func(a uverbs.Attr) bool { return a.ID == want.id }) {
			diffs = append(diffs, fmt.Sprintf("attribute %d only by libmlx5", want.id))
		}
	}
	return diffs
}

// descriptorAttrs lists the attributes that contain a descriptor, not the handle of an object.
var descriptorAttrs = map[string][]uint16{"create CQ": {3, 7}, "create SRQ": {10}, "create QP": {12}}

// compareAttr returns the differences of an attribute.
func (k *transcriptKernel) compareAttr(op string, want *transcriptAttr, a *uverbs.Attr) []string {
	kinds := map[uverbs.AttrKind]string{uverbs.AttrIn: "in", uverbs.AttrOut: "out", uverbs.AttrConst: "const", uverbs.AttrObject: "object"}
	value := a.Value
	if slices.Contains(descriptorAttrs[op], a.ID) {
		for recorded, here := range k.fds {
			if a.Value == here {
				value = recorded
			}
		}
	}
	switch {
	case kinds[a.Kind] != want.kind:
		return []string{fmt.Sprintf("is %s, gucx %s", want.kind, kinds[a.Kind])}
	case (want.kind == "const" || want.kind == "object") && value != want.value:
		return []string{fmt.Sprintf("is %d, gucx %d", want.value, value)}
	case (want.kind == "in" || want.kind == "out") && len(a.Data) != want.len:
		return []string{fmt.Sprintf("has %d bytes, gucx %d", want.len, len(a.Data))}
	case want.kind == "in":
		return compareData(want.data, a.Data)
	}
	return nil
}

// compareData compares data in units of 4 bytes, and of addresses only the lower 12 bits.
func compareData(want []string, got []byte) (diffs []string) {
	off := 0
	for _, w := range want {
		if addr, ok := strings.CutPrefix(w, "@"); ok {
			if _, low, is := strings.Cut(addr, "+"); is {
				if have := fmt.Sprintf("%03x", binary.NativeEndian.Uint64(got[off:])&0xfff); have != low {
					diffs = append(diffs, fmt.Sprintf("at %d: +%s, gucx +%s", off, low, have))
				}
			}
			off += 8
			continue
		}
		for ; w != ""; w = w[min(8, len(w)):] {
			word := w[:min(8, len(w))]
			if have := hex.EncodeToString(got[off : off+len(word)/2]); have != word {
				diffs = append(diffs, fmt.Sprintf("at %d: %s, gucx %s", off, word, have))
			}
			off += len(word) / 2
		}
	}
	return diffs
}

// Sys implements uverbs.Kernel.
func (k *transcriptKernel) Sys() fs.FS { return nil }

// Open implements uverbs.Kernel.
func (k *transcriptKernel) Open(string) (uverbs.File, error) { return k, nil }

// Ioctl implements uverbs.File.
func (k *transcriptKernel) Ioctl(m uverbs.Method, _ uverbs.Driver, attrs []uverbs.Attr) error {
	var command uint64
	if m == uverbs.MethodInvokeWrite {
		command = attrs[1].Value
	}
	op := opName(m, command)
	c := k.match(op, attrs)
	if c == nil {
		return unix.EPROTONOSUPPORT
	}
	for i := range attrs {
		if r := c.attr(attrs[i].ID); r != nil {
			copy(attrs[i].Data[:len(attrs[i].Data)*btoi(attrs[i].Kind == uverbs.AttrOut)], r.reply)
			if attrs[i].Kind == uverbs.AttrObject && attrs[i].Value == 0 {
				attrs[i].Value = r.after
			}
		}
	}
	return k.amend(m, uverbs.CommandNumber(command), attrs)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// amend replaces replies that differ in this test: descriptors, limits of the device and types of GIDs.
func (k *transcriptKernel) amend(m uverbs.Method, command uverbs.CommandNumber, attrs []uverbs.Attr) error {
	last := &attrs[len(attrs)-1]
	switch {
	case m == uverbs.MethodAsyncEvents:
		attrs[0].Value = k.pipe(attrs[0].Value)
	case command == uverbs.CmdCompChannel:
		fd := uint32(k.pipe(uint64(binary.NativeEndian.Uint32(last.Data))))
		copy(last.Data, uverbs.BytesOf(&fd))
	case m == uverbs.MethodCreateSRQ: // reply with the requested depth
		wanted := slices.IndexFunc(attrs, func(a uverbs.Attr) bool { return a.ID == 5 })
		got := slices.IndexFunc(attrs, func(a uverbs.Attr) bool { return a.ID == 11 })
		copy(attrs[got].Data, attrs[wanted].Data)
	case command == uverbs.CmdQueryDevice:
		copy(last.Data, uverbs.BytesOf(&uverbs.QueryDeviceReply{MaxMRSize: 1 << 40, MaxQPWR: 1 << 15, MaxSGE: 30, MaxCQE: 1<<22 - 1,
			MaxSRQWR: 1<<15 - 1, MaxSRQSGE: 31, MaxQPRDAtom: 16, MaxQPInitRDAtom: 16, PhysPorts: 1}))
	}
	return nil
}

// pipe returns a descriptor that replaces a recorded one.
func (k *transcriptKernel) pipe(recorded uint64) uint64 {
	var fds [2]int
	require.NoError(k.t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
	k.ends = append(k.ends, fds[1])
	k.fds[recorded] = uint64(fds[0])
	return uint64(fds[0])
}

// Write implements uverbs.File.
func (k *transcriptKernel) Write([]byte, bool) error { return unix.EOPNOTSUPP }

// Map implements uverbs.File.
func (k *transcriptKernel) Map(offset int64, n int) ([]byte, error) {
	k.match(fmt.Sprintf("map len %d offset %d", n, offset), nil)
	b, err := offheap.Alloc(n)
	require.NoError(k.t, err)
	k.pages = append(k.pages, b)
	return b.Bytes(), nil
}

// Unmap implements uverbs.File.
func (k *transcriptKernel) Unmap([]byte) error { return nil }

// Close implements uverbs.File.
func (k *transcriptKernel) Close() error { return nil }
