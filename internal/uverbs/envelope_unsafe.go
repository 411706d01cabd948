package uverbs

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/offheap"
)

// verbsIoctl is RDMA_VERBS_IOCTL of rdma_user_ioctl.h.
const verbsIoctl = 0xc0181b01

// Lengths in the envelope, in bytes.
const (
	headerLen   = 24
	attrLen     = 16
	byValueLen  = 8    // maximum length of data in the attribute itself
	envelopeLen = 8192 // header, attributes and the data of the attributes
)

// Flags of attributes.
const attrMandatory = 1

// envelope is the memory of one ioctl, outside the Go heap:
//
//	| header | attribute | ... | data | data | ...
type envelope struct {
	block *offheap.Block
	mem   []byte
	len   int // of header and attributes
	at    [maxAttrs]int
}

// maxAttrs is the maximum number of attributes of a call. No method has more.
const maxAttrs = 32

func newEnvelope() (*envelope, error) {
	b, err := offheap.Alloc(envelopeLen)
	if err != nil {
		return nil, err
	}
	return &envelope{block: b, mem: b.Bytes()}, nil
}

// encode writes the envelope of a call. Error: E2BIG if the attributes do not fit.
func (e *envelope) encode(m Method, driver Driver, attrs []Attr) error {
	e.len = headerLen + attrLen*len(attrs)
	if len(attrs) > maxAttrs {
		return unix.E2BIG
	}
	next := e.len
	*(*ioctlHeader)(unsafe.Pointer(&e.mem[0])) = ioctlHeader{
		Len: uint16(e.len), Object: m.Object, Method: m.Number, NumAttrs: uint16(len(attrs)), Driver: uint32(driver),
	}
	for i := range attrs {
		a := &attrs[i]
		out := ioctlAttr{ID: a.ID, Flags: attrMandatory, Data: a.Value}
		switch {
		case a.Kind == AttrConst:
			out.Len = byValueLen
		case a.Kind == AttrIn && len(a.Data) <= byValueLen:
			var v [byValueLen]byte
			copy(v[:], a.Data)
			out.Len, out.Data = uint16(len(a.Data)), binary.NativeEndian.Uint64(v[:])
		case a.Kind == AttrIn || a.Kind == AttrOut:
			next = (next + byValueLen - 1) &^ (byValueLen - 1)
			if len(a.Data) > len(e.mem)-next {
				return unix.E2BIG
			}
			data := e.mem[next : next+len(a.Data)]
			clear(data)
			if a.Kind == AttrIn {
				copy(data, a.Data)
			}
			out.Len, out.Data, e.at[i] = uint16(len(a.Data)), addressOf(data), next
			next += len(a.Data)
		}
		*e.attr(i) = out
	}
	return nil
}

func (e *envelope) attr(i int) *ioctlAttr {
	return (*ioctlAttr)(unsafe.Pointer(&e.mem[headerLen+attrLen*i]))
}

// ioctl calls the kernel. The call may block while the kernel pins memory or waits for the device.
func (e *envelope) ioctl(fd int) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), verbsIoctl, uintptr(unsafe.Pointer(&e.mem[0])))
	return errno
}

// decode copies the results of the kernel to attrs, which must be the attributes passed to encode.
func (e *envelope) decode(attrs []Attr) {
	for i := range attrs {
		switch a := &attrs[i]; a.Kind {
		case AttrOut:
			copy(a.Data, e.mem[e.at[i]:])
		case AttrObject:
			a.Value = e.attr(i).Data
		}
	}
}
