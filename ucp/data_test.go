package ucp

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

// source makes the bytes of a message, a few at a time.
type source struct {
	data   []byte
	broken int // from this offset on it makes nothing; 0: it does not
}

func (s *source) Length() int { return len(s.data) }

func (s *source) PackAt(off int, dst []byte) int {
	if s.broken > 0 && off >= s.broken {
		return 0
	}
	return copy(dst[:min(len(dst), 1000)], s.data[off:])
}

// drain takes the bytes of a message.
type drain struct {
	t        testing.TB
	data     []byte
	most     int // it refuses more
	finished int
	err      error
}

var errDrain = errors.New("no more")

func (d *drain) UnpackAt(off int, src []byte) error {
	assert.Equal(d.t, len(d.data), off, "not in order")
	assert.Zero(d.t, d.finished, "after the end")
	if len(d.data)+len(src) > d.most {
		return errors.Join(errDrain, ucs.ErrTruncated)
	}
	d.data = append(d.data, src...)
	return nil
}

func (d *drain) Finish(err error) error {
	d.finished++
	d.err = err
	return err
}

// pieces is b as a list of pieces, some of them empty.
func pieces(b []byte) (list [][]byte) {
	for n := 3; len(b) > 0; n = n*2 + 1 {
		n = min(n, len(b))
		list = append(list, b[:n], nil)
		b = b[n:]
	}
	return list
}

func TestTag_Data(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		for i, size := range []int{0, 8, 300, 5000, 9000, 100_000} {
			data := pattern(size, i)
			for kind := range 3 {
				for _, expected := range []bool{true, false} {
					buf, to := make([]byte, size), &drain{t: t, most: size}
					from, into := Bytes(data), Bytes(buf)
					switch kind {
					case 1:
						from, into = Buffers(pieces(data)), Buffers(pieces(buf))
					case 2:
						from, into = From(&source{data: data}), To(to)
					}
					var info TagInfo
					var recv *Request
					var err error
					if expected {
						recv, err = p.b.w.TagRecvData(into, 1, exact, &info, nil)
						require.NoError(t, err)
					}
					sent, err := p.a.ep.TagSendData(1, from, nil)
					require.NoError(t, err)
					if !expected {
						p.until(func() bool { return p.b.w.tag.table.Unexpected() == 1 })
						recv, err = p.b.w.TagRecvData(into, 1, exact, &info, nil)
					}
					require.NoError(t, p.finish(recv, err))
					require.NoError(t, p.finish(sent, nil))
					if kind == 2 {
						buf = to.data
						require.Equal(t, 1, to.finished)
					}
					requireBytes(t, data, buf)
					require.Len(t, buf, size)
					require.Equal(t, size, info.Length)
				}
			}
		}
	})
}

// TestTag_DataRefused: a list that is too short is filled, an Unpacker may refuse.
func TestTag_DataRefused(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		for _, size := range []int{300, 9000, 100_000} {
			for _, expected := range []bool{true, false} {
				data, buf, to := pattern(size, 1), make([]byte, size-1), &drain{t: t, most: size - 1}
				for _, into := range []Data{Buffers(pieces(buf)), To(to)} {
					var recv *Request
					var err error
					if expected {
						recv, err = p.b.w.TagRecvData(into, 1, exact, nil, nil)
						require.NoError(t, err)
					}
					sent := p.tagSend(1, data)
					if !expected {
						p.until(func() bool { return p.b.w.tag.table.Unexpected() == 1 })
						recv, err = p.b.w.TagRecvData(into, 1, exact, nil, nil)
					}
					require.ErrorIs(t, p.finish(recv, err), ucs.ErrTruncated)
					require.NoError(t, p.finish(sent, nil))
				}
				requireBytes(t, data[:size-1], buf)
				require.Equal(t, 1, to.finished)
				require.ErrorIs(t, to.err, errDrain)
			}
		}
		to := &drain{t: t}
		r, err := p.b.w.TagRecvData(To(to), 1, exact, nil, nil)
		require.NoError(t, err)
		require.True(t, r.Cancel())
		require.ErrorIs(t, p.finish(r, nil), ucs.ErrCanceled)
		require.ErrorIs(t, to.err, ucs.ErrCanceled)
		_, err = p.a.ep.TagSendData(1, To(to), nil)
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
	})
}

// TestTag_BrokenPacker: what was promised cannot be sent, and the peer must not wait for it.
func TestTag_BrokenPacker(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.grown()
		r, err := p.a.ep.TagSendData(1, From(&source{data: make([]byte, 20_000), broken: 5000}), nil)
		require.ErrorIs(t, p.finish(r, err), ucs.ErrInvalidParam)
		p.until(func() bool { return p.a.ep.Err() != nil })
		require.ErrorIs(t, p.a.ep.Err(), ucs.ErrInvalidParam)
	})
}

func TestActive_Data(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		got := collect(t, p.b.w, 5)
		p.connect()
		for i, size := range []int{0, 30, 3000, 20_000, 70_000} {
			data := pattern(size, i)
			for _, d := range []Data{Bytes(data), Buffers(pieces(data)), From(&source{data: data})} {
				*got = (*got)[:0]
				r, err := p.a.ep.SendActiveData(5, []byte("header"), d, nil)
				require.NoError(t, p.finish(r, err))
				p.until(have(t, got, 1))
				require.Equal(t, "header", string((*got)[0].header))
				requireBytes(t, data, (*got)[0].data)
			}
		}
	})
}

// leaver is an Unpacker that closes the EP of the message when it has the first of it.
type leaver struct {
	drain
	leave func()
}

func (l *leaver) UnpackAt(off int, src []byte) error {
	err := l.drain.UnpackAt(off, src)
	if off == 0 {
		l.leave()
	}
	return err
}

// TestTag_UnpackerCloses: an Unpacker may close the EP from which it takes a message that was
// announced. Nothing more of that comes, and what the receive had is as new for the next one.
func TestTag_UnpackerCloses(t *testing.T) {
	for _, set := range []transports{fakes("like sm", likeSM()), real("sm", "sm"), real("tcp", "tcp")} {
		for _, mode := range []CloseMode{CloseFlush, CloseForce} {
			t.Run(fmt.Sprintf("%s/%d", set.name, mode), func(t *testing.T) {
				p := newPair(t, set, Config{RndvThresh: 1}).connect()
				var (
					closing, recv *Request
					info          TagInfo
				)
				l := &leaver{drain: drain{t: t, most: rndvLen}}
				l.leave = func() {
					recv.Release()
					var err error
					closing, err = info.From.Close(mode)
					require.NoError(t, err)
				}
				var err error
				recv, err = p.b.w.TagRecvData(To(l), 1, exact, &info, nil)
				require.NoError(t, err)
				send, err := p.a.ep.TagSend(1, pattern(rndvLen, 1), nil)
				require.NoError(t, err)
				p.until(func() bool { return l.finished > 0 })
				require.NoError(t, p.finish(closing, nil))
				p.until(send.Done)
				send.Release()
				assert.Equal(t, 1, l.finished)
				if mode == CloseFlush {
					require.NoError(t, l.err)
					requireBytes(t, pattern(rndvLen, 1), l.data)
				} else {
					assert.ErrorIs(t, l.err, ucs.ErrCanceled)
					assert.Less(t, len(l.data), rndvLen)
				}
				for r := p.b.w.pool.free; r != nil; r = r.next {
					require.Zero(t, r.off)
					require.Equal(t, 1, r.comp.Count)
				}
			})
		}
	}
}
