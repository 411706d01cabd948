package ucplayer

import (
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// listPieces is the number of buffers of a message in a list, if the message has as many bytes.
const listPieces = 4

// form is a buffer in a layout. It is used for one receive at a time, or for several sends at a
// time.
type form struct {
	layout layer.Layout
	buf    []byte
	list   [][]byte // of IOV
}

func newForm(l layer.Layout, buf []byte) *form {
	f := &form{layout: l, buf: buf}
	if l == layer.IOV {
		f.list = pieces(buf)
	}
	return f
}

// pieces cuts b into pieces of nearly equal length.
func pieces(b []byte) (list [][]byte) {
	for left := min(listPieces, len(b)); left > 0; left-- {
		n := len(b) / left
		list = append(list, b[:n:n])
		b = b[n:]
	}
	return list
}

// outgoing returns the data of a send.
func (f *form) outgoing() ucp.Data {
	switch f.layout {
	case layer.IOV:
		return ucp.Buffers(f.list)
	case layer.Generic:
		return ucp.From(f)
	}
	return ucp.Bytes(f.buf)
}

// incoming returns the destination of a receive.
func (f *form) incoming() ucp.Data {
	switch f.layout {
	case layer.IOV:
		return ucp.Buffers(f.list)
	case layer.Generic:
		return ucp.To(f)
	}
	return ucp.Bytes(f.buf)
}

// Length implements ucp.Packer.
func (f *form) Length() int { return len(f.buf) }

// PackAt implements ucp.Packer.
func (f *form) PackAt(off int, dst []byte) int { return copy(dst, f.buf[off:]) }

// UnpackAt implements ucp.Unpacker.
func (f *form) UnpackAt(off int, src []byte) error {
	if len(src) > len(f.buf)-off {
		return ucs.ErrTruncated
	}
	copy(f.buf[off:], src)
	return nil
}

// Finish implements ucp.Unpacker.
func (f *form) Finish(err error) error { return err }
