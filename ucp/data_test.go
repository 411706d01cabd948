package ucp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
)

// source is a Packer of a message.
type source struct {
	data   []byte
	broken int // PackAt packs nothing from this offset on; 0: it packs everything
}

func (s *source) Length() int { return len(s.data) }

func (s *source) PackAt(off int, dst []byte) int {
	if s.broken > 0 && off >= s.broken {
		return 0
	}
	return copy(dst[:min(len(dst), 1000)], s.data[off:])
}

// drain is an Unpacker of a message.
type drain struct {
	t        testing.TB
	data     []byte
	most     int // it rejects more bytes
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

// pieces returns b as a list of pieces, some of them empty.
func pieces(b []byte) (list [][]byte) {
	for n := 3; len(b) > 0; n = n*2 + 1 {
		n = min(n, len(b))
		list = append(list, b[:n], nil)
		b = b[n:]
	}
	return list
}

func TestTag_Data(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for i, size := range []int{0, 8, 300, 5000, 9000, 100_000} {
			data := testenv.Pattern(size, i)
			for kind := range 3 {
				for _, expected := range []bool{true, false} {
					buf, to := make([]byte, size), &drain{t: t, most: size}
					from, into := ucp.Bytes(data), ucp.Bytes(buf)
					switch kind {
					case 1:
						from, into = ucp.Buffers(pieces(data)), ucp.Buffers(pieces(buf))
					case 2:
						from, into = ucp.From(&source{data: data}), ucp.To(to)
					}
					var info ucp.TagInfo
					var recv *ucp.Request
					var err error
					if expected {
						recv, err = p.B.W.TagRecvData(into, 1, exact, &info, nil)
						require.NoError(t, err)
					}
					sent, err := p.A.EP.TagSendData(1, from, nil)
					require.NoError(t, err)
					if !expected {
						p.Until(func() bool { return p.B.W.Tags().Unexpected() == 1 })
						recv, err = p.B.W.TagRecvData(into, 1, exact, &info, nil)
					}
					require.NoError(t, p.Finish(recv, err))
					require.NoError(t, p.Finish(sent, nil))
					if kind == 2 {
						buf = to.data
						require.Equal(t, 1, to.finished)
					}
					testenv.RequireBytes(t, data, buf)
					require.Len(t, buf, size)
					require.Equal(t, size, info.Length)
				}
			}
		}
	})
}

// TestTag_DataRejected: a list that is too short is filled, and an Unpacker may reject the data.
func TestTag_DataRejected(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for _, size := range []int{300, 9000, 100_000} {
			for _, expected := range []bool{true, false} {
				data, buf, to := testenv.Pattern(size, 1), make([]byte, size-1), &drain{t: t, most: size - 1}
				for _, into := range []ucp.Data{ucp.Buffers(pieces(buf)), ucp.To(to)} {
					var recv *ucp.Request
					var err error
					if expected {
						recv, err = p.B.W.TagRecvData(into, 1, exact, nil, nil)
						require.NoError(t, err)
					}
					sent := tagSend(p, 1, data)
					if !expected {
						p.Until(func() bool { return p.B.W.Tags().Unexpected() == 1 })
						recv, err = p.B.W.TagRecvData(into, 1, exact, nil, nil)
					}
					require.ErrorIs(t, p.Finish(recv, err), ucs.ErrTruncated)
					require.NoError(t, p.Finish(sent, nil))
				}
				testenv.RequireBytes(t, data[:size-1], buf)
				require.Equal(t, 1, to.finished)
				require.ErrorIs(t, to.err, errDrain)
			}
		}
		to := &drain{t: t}
		r, err := p.B.W.TagRecvData(ucp.To(to), 1, exact, nil, nil)
		require.NoError(t, err)
		require.True(t, r.Cancel())
		require.ErrorIs(t, p.Finish(r, nil), ucs.ErrCanceled)
		require.ErrorIs(t, to.err, ucs.ErrCanceled)
		_, err = p.A.EP.TagSendData(1, ucp.To(to), nil)
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
	})
}

// TestTag_BrokenPacker: if the data of an announced message cannot be packed, the receive of the peer fails.
func TestTag_BrokenPacker(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		growWindow(p)
		r, err := p.A.EP.TagSendData(1, ucp.From(&source{data: make([]byte, 20_000), broken: 5000}), nil)
		require.ErrorIs(t, p.Finish(r, err), ucs.ErrInvalidParam)
		p.Until(func() bool { return p.A.EP.Err() != nil })
		require.ErrorIs(t, p.A.EP.Err(), ucs.ErrInvalidParam)
	})
}

func TestActive_Data(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		got := collect(t, p.B.W, 5)
		p.Connect()
		for i, size := range []int{0, 30, 3000, 20_000, 70_000} {
			data := testenv.Pattern(size, i)
			for _, d := range []ucp.Data{ucp.Bytes(data), ucp.Buffers(pieces(data)), ucp.From(&source{data: data})} {
				*got = (*got)[:0]
				r, err := p.A.EP.SendActiveData(5, []byte("header"), d, nil)
				require.NoError(t, p.Finish(r, err))
				p.Until(have(t, got, 1))
				require.Equal(t, "header", string((*got)[0].header))
				testenv.RequireBytes(t, data, (*got)[0].data)
			}
		}
	})
}

// bufferFor is a destination of n bytes of each kind: one buffer, a list, an Unpacker. bytes returns what it has received.
func bufferFor(p *ucppair.Pair, kind, n int) (d ucp.Data, bytes func() []byte) {
	buf := make([]byte, n)
	switch kind {
	case 0:
		return ucp.Bytes(buf), func() []byte { return buf }
	case 1:
		return ucp.Buffers(pieces(buf)), func() []byte { return buf }
	}
	to := &drain{t: p.T, most: n}
	return ucp.To(to), func() []byte {
		require.Equal(p.T, 1, to.finished)
		return to.data
	}
}

// TestActive_RecvData: active messages of all lengths are received into all kinds of data, in the handler or later, with
// each scheme of the rendezvous.
func TestActive_RecvData(t *testing.T) {
	overSchemes(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for i, size := range []int{0, 8, 300, 9000, listLen} {
			for kind := range 3 {
				for _, later := range []bool{false, true} {
					into, bytes := bufferFor(p, kind, size)
					var recv *ucp.Request
					var kept *ucp.ActiveMessage
					arrived := false
					p.B.W.OnActive(5, func(m *ucp.ActiveMessage) {
						arrived = true
						if later {
							kept = m.Keep()
							return
						}
						var err error
						recv, err = m.RecvData(into, nil)
						require.NoError(t, err)
					})
					sent, err := p.A.EP.SendActive(5, nil, testenv.Pattern(size, i), nil)
					require.NoError(t, err)
					p.Until(func() bool { return arrived })
					if later {
						recv, err = kept.RecvData(into, nil)
						require.NoError(t, err)
						kept.Release()
					}
					require.NoError(t, p.Finish(recv, nil))
					require.NoError(t, p.Finish(sent, nil))
					testenv.RequireBytes(t, testenv.Pattern(size, i), bytes())
				}
			}
		}
	})
}

// TestActive_RecvDataRejected: a list that is too short is filled, an Unpacker may reject the data, and data to send is
// an error.
func TestActive_RecvDataRejected(t *testing.T) {
	for _, thresh := range []int{1, 1 << 20} {
		t.Run(fmt.Sprintf("from %d", thresh), func(t *testing.T) {
			p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{RndvThresh: config.MemSize(thresh)}).Connect()
			const size = 5000
			data, buf, to := testenv.Pattern(size, 1), make([]byte, size), &drain{t: t, most: size - 1}
			for _, into := range []ucp.Data{ucp.Buffers(pieces(buf[:size-1])), ucp.To(to)} {
				var recv *ucp.Request
				var err error
				arrived := false
				p.B.W.OnActive(5, func(m *ucp.ActiveMessage) {
					recv, err = m.RecvData(into, nil)
					arrived = true
					_, again := m.RecvData(ucp.From(nil), nil)
					assert.ErrorIs(t, again, ucs.ErrInvalidParam)
				})
				sent, sendErr := p.A.EP.SendActive(5, nil, data, nil)
				require.NoError(t, sendErr)
				p.Until(func() bool { return arrived })
				require.ErrorIs(t, p.Finish(recv, err), ucs.ErrTruncated)
				require.NoError(t, p.Finish(sent, nil))
			}
			testenv.RequireBytes(t, append(data[:size-1:size-1], 0), buf)
			assert.Equal(t, 1, to.finished)
			assert.ErrorIs(t, to.err, errDrain)
		})
	}
}

// TestRecvData_Packer: data to send is rejected before anything of the message is lost.
func TestRecvData_Packer(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{RndvThresh: 1}).Connect()
	wrong := ucp.From(&source{data: make([]byte, 100)})
	_, err := p.B.W.TagRecvData(wrong, 1, exact, nil, nil)
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	var recv *ucp.Request
	buf := make([]byte, 100)
	p.B.W.OnActive(5, func(m *ucp.ActiveMessage) {
		_, err := m.RecvData(wrong, nil)
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
		recv, err = m.RecvData(ucp.Buffers(pieces(buf)), nil)
		require.NoError(t, err)
	})
	require.NoError(t, p.Finish(p.A.EP.SendActive(5, nil, testenv.Pattern(100, 1), nil)))
	require.NoError(t, p.Finish(recv, nil))
	testenv.RequireBytes(t, testenv.Pattern(100, 1), buf)
}

// TestActive_RecvDataTwice: a message can be received once.
func TestActive_RecvDataTwice(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{RndvThresh: 1}).Connect()
	var recv *ucp.Request
	p.B.W.OnActive(5, func(m *ucp.ActiveMessage) {
		var err error
		recv, err = m.RecvData(ucp.Buffers(pieces(make([]byte, 100))), nil)
		require.NoError(t, err)
		_, err = m.RecvData(ucp.Buffers(pieces(make([]byte, 100))), nil)
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
	})
	sent, err := p.A.EP.SendActive(5, nil, make([]byte, 100), nil)
	require.NoError(t, p.Finish(sent, err))
	require.NoError(t, p.Finish(recv, nil))
}

// TestActive_RecvDataGivenUp: the Unpacker of a canceled receive gets no more data, and its Finish is called.
func TestActive_RecvDataGivenUp(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like rc+ud", faketp.LikeRC(), faketp.LikeUD()), ucp.Config{RndvThresh: 1}).Connect().Warm()
	to := &drain{t: t, most: listLen}
	var recv *ucp.Request
	p.B.W.OnActive(5, func(m *ucp.ActiveMessage) {
		var err error
		recv, err = m.RecvData(ucp.To(to), nil)
		require.NoError(t, err)
	})
	sent, err := p.A.EP.SendActive(5, nil, testenv.Pattern(listLen, 1), nil)
	require.NoError(t, err)
	p.Until(func() bool { return recv != nil })
	require.False(t, recv.Done())
	recv.GiveUp()
	assert.Equal(t, 1, to.finished)
	assert.ErrorIs(t, to.err, ucs.ErrCanceled)
	require.NoError(t, p.Finish(sent, nil))
	idle(p)
	assert.Equal(t, 1, to.finished)
}

// TestStream_Data: lists and a Packer are sent, and received into lists, beside sends and receives of buffers.
func TestStream_Data(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		from, to := openStream(p)
		for i, size := range []int{0, 8, 300, 5000, 9000, listLen} {
			for kind := range 3 {
				for _, posted := range []bool{true, false} {
					data, buf, n := testenv.Pattern(size, i), make([]byte, size), 0
					var recv *ucp.Request
					var err error
					if posted {
						recv, err = to.StreamRecvData(ucp.Buffers(pieces(buf)), true, &n, nil)
						require.NoError(t, err)
					}
					d := [...]ucp.Data{ucp.Bytes(data), ucp.Buffers(pieces(data)), ucp.From(&source{data: data})}[kind]
					sent, err := from.StreamSendData(d, nil)
					require.NoError(t, err)
					if !posted {
						if size > 0 {
							p.Until(func() bool { return p.B.W.StreamReady() != nil })
						}
						recv, err = to.StreamRecvData(ucp.Buffers(pieces(buf)), true, &n, nil)
					}
					require.NoError(t, p.Finish(recv, err))
					require.NoError(t, p.Finish(sent, nil))
					require.Equal(t, size, n)
					testenv.RequireBytes(t, data, buf)
				}
			}
		}
		require.NoError(t, p.A.EP.Err())
	})
}

// TestStream_DataOrder: receives into lists and into buffers get the bytes in the order in which they were posted.
func TestStream_DataOrder(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		from, to := openStream(p)
		const each = 700
		bufs, counts := make([][]byte, 6), make([]int, 6)
		var reqs []*ucp.Request
		for i := range bufs {
			bufs[i] = make([]byte, each)
			var r *ucp.Request
			var err error
			if i%2 == 0 {
				r, err = to.StreamRecvData(ucp.Buffers(pieces(bufs[i])), true, &counts[i], nil)
			} else {
				r, err = to.StreamRecv(bufs[i], true, &counts[i], nil)
			}
			require.NoError(t, err)
			reqs = append(reqs, r)
		}
		data := testenv.Pattern(each*len(bufs), 1)
		for off := 0; off < len(data); off += 100 {
			r, err := from.StreamSend(data[off:off+100], nil)
			require.NoError(t, p.Finish(r, err))
		}
		for i, r := range reqs {
			require.NoError(t, p.Finish(r, nil))
			require.Equal(t, each, counts[i])
			testenv.RequireBytes(t, data[i*each:][:each], bufs[i])
		}
	})
}

// TestStream_DataPartial: without all, a receive completes with the bytes that have arrived.
func TestStream_DataPartial(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	from, to := openStream(p)
	buf, n := make([]byte, 100), 0
	require.NoError(t, p.Finish(from.StreamSend(testenv.Pattern(50, 1), nil)))
	p.Until(func() bool { return p.B.W.StreamReady() != nil })
	r, err := to.StreamRecvData(ucp.Buffers(pieces(buf)), false, &n, nil)
	require.NoError(t, err)
	require.Nil(t, r)
	require.Equal(t, 50, n)
	testenv.RequireBytes(t, testenv.Pattern(50, 1), buf[:50])
	r, err = to.StreamRecvData(ucp.Buffers(pieces(buf)), false, &n, nil) // waits
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, p.Finish(from.StreamSend(testenv.Pattern(2, 2), nil)))
	require.NoError(t, p.Finish(r, nil))
	require.Equal(t, 2, n)
	testenv.RequireBytes(t, testenv.Pattern(2, 2), buf[:2])
}

// TestStream_DataCanceled: a canceled receive into a list reports the number of bytes that it has received, and the
// next receive gets the bytes that follow.
func TestStream_DataCanceled(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		from, to := openStream(p)
		buf, n := make([]byte, 100), 0
		r, err := to.StreamRecvData(ucp.Buffers(pieces(buf)), true, &n, nil)
		require.NoError(t, err)
		require.NoError(t, p.Finish(from.StreamSend(testenv.Pattern(60, 1), nil)))
		p.Until(func() bool { return to.Messages().Stream().ReceiveOffset() == 61 }) // with the byte of streamed
		require.True(t, r.Cancel())
		require.ErrorIs(t, p.Finish(r, nil), ucs.ErrCanceled)
		require.Equal(t, 60, n)
		testenv.RequireBytes(t, testenv.Pattern(60, 1), buf[:60])
		testenv.RequireZero(t, buf[60:], "after the cancel")
		require.NoError(t, p.Finish(from.StreamSend(testenv.Pattern(8, 2), nil)))
		testenv.RequireBytes(t, testenv.Pattern(8, 2), readStream(p, to, 8))
		require.Zero(t, ucp.RequestsInUse(p.B.W))
	})
}

// TestStream_DataEnds: a receive into a list completes when the stream ends, and fails when the EP fails.
func TestStream_DataEnds(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("one EP has both sides")
		}
		from, to := openStream(p)
		buf, n := make([]byte, 100), 0
		r, err := to.StreamRecvData(ucp.Buffers(pieces(buf)), true, &n, nil)
		require.NoError(t, err)
		require.NoError(t, p.Finish(from.StreamSend(testenv.Pattern(60, 1), nil)))
		require.NoError(t, p.Finish(from.StreamEnd(nil)))
		require.ErrorIs(t, p.Finish(r, nil), ucs.ErrStreamEnded)
		require.Equal(t, 60, n)
		_, err = to.StreamRecvData(ucp.Buffers(pieces(buf)), true, &n, nil)
		require.ErrorIs(t, err, ucs.ErrStreamEnded)
		_, err = from.StreamSendData(ucp.Buffers(pieces(buf)), nil)
		require.ErrorIs(t, err, ucs.ErrClosed)
		r, err = from.StreamRecvData(ucp.Buffers(pieces(buf)), true, &n, nil)
		require.NoError(t, err)
		require.NoError(t, p.Finish(from.Close(ucp.CloseForce)))
		require.ErrorIs(t, p.Finish(r, nil), ucs.ErrCanceled)
		_, err = from.StreamRecvData(ucp.Buffers(pieces(buf)), true, &n, nil)
		require.ErrorIs(t, err, ucs.ErrClosed)
		_, err = from.StreamSendData(ucp.Buffers(pieces(buf)), nil)
		require.ErrorIs(t, err, ucs.ErrClosed)
	})
}

// TestStream_DataRejected: an Unpacker has no length, and a Packer receives nothing.
func TestStream_DataRejected(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	from, to := openStream(p)
	n := 0
	for _, d := range []ucp.Data{ucp.To(&drain{t: t}), ucp.To(nil), ucp.From(&source{data: make([]byte, 8)})} {
		_, err := to.StreamRecvData(d, true, &n, nil)
		require.ErrorIs(t, err, ucs.ErrInvalidParam)
	}
	_, err := from.StreamSendData(ucp.To(&drain{t: t}), nil)
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = from.StreamSendData(ucp.From(nil), nil)
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	r, err := from.StreamSendData(ucp.From(&source{}), nil)
	require.NoError(t, err)
	require.Nil(t, r, "no bytes")
	r, err = from.StreamSendData(ucp.From(&source{data: make([]byte, 20_000), broken: 5000}), nil)
	require.ErrorIs(t, p.Finish(r, err), ucs.ErrInvalidParam)
	p.Until(func() bool { return p.A.EP.Err() != nil })
	require.ErrorIs(t, p.A.EP.Err(), ucs.ErrInvalidParam)
}

// TestStream_DataWaitsForCredit: data beyond the window is sent when the peer reads, and later messages wait for it.
func TestStream_DataWaitsForCredit(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		from, to := openStream(p)
		data := testenv.Pattern(1<<20, 1)
		sent, err := from.StreamSendData(ucp.Buffers(cut(data, 7)), nil)
		require.NoError(t, err)
		last, err := from.StreamSend([]byte("last"), nil)
		require.NoError(t, err)
		testenv.RequireBytes(t, data, readStream(p, to, len(data)))
		testenv.RequireBytes(t, []byte("last"), readStream(p, to, 4))
		require.NoError(t, p.Finish(sent, nil))
		require.NoError(t, p.Finish(last, nil))
	})
}

// leaver is an Unpacker that closes the EP of the message at the first call.
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

// rejecter is an Unpacker that closes an EP and rejects the data.
type rejecter struct{ leave func() }

func (r rejecter) UnpackAt(int, []byte) error {
	r.leave()
	return errDrain
}

func (r rejecter) Finish(err error) error { return err }

// TestUnpacker_ClosesAndRejects: an Unpacker that closes the EP of a message, and then rejects the message, does not
// affect later receives.
func TestUnpacker_ClosesAndRejects(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{RndvThresh: 1}).Connect()
	other, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	var info ucp.TagInfo
	var recv *ucp.Request
	left := 0
	leave := func(from *ucp.EP) {
		left++
		recv.Release()
		r, err := from.Close(ucp.CloseForce)
		require.NoError(t, err)
		r.Release()
	}
	recv, err = p.B.W.TagRecvData(ucp.To(rejecter{func() { leave(info.From) }}), 1, exact, &info, nil)
	require.NoError(t, err)
	send, err := p.A.EP.TagSend(1, testenv.Pattern(tlsets.LongMessage, 1), nil)
	require.NoError(t, err)
	p.Until(func() bool { return left == 1 && send.Done() })
	send.Release()

	buf := make([]byte, tlsets.LongMessage)
	for range 3 {
		recv, err = p.B.W.TagRecvData(ucp.Buffers(pieces(buf)), 2, exact, nil, nil)
		require.NoError(t, err)
		require.NoError(t, p.Finish(other.TagSend(2, testenv.Pattern(tlsets.LongMessage, 2), nil)))
		require.NoError(t, p.Finish(recv, nil))
		testenv.RequireBytes(t, testenv.Pattern(tlsets.LongMessage, 2), buf)
	}
}

// TestTag_UnpackerCloses: an Unpacker may close the EP of an announced message. It gets no more data, and the next
// receive does not see the state of this one.
func TestTag_UnpackerCloses(t *testing.T) {
	for _, set := range []tlsets.Set{faketp.Set("like sm", faketp.LikeSM()), tlsets.Real("sm", "sm"), tlsets.Real("tcp", "tcp")} {
		for _, mode := range []ucp.CloseMode{ucp.CloseFlush, ucp.CloseForce} {
			t.Run(fmt.Sprintf("%s/%d", set.Name, mode), func(t *testing.T) {
				p := ucppair.New(t, set, ucp.Config{RndvThresh: 1}).Connect()
				var (
					closing, recv *ucp.Request
					info          ucp.TagInfo
				)
				l := &leaver{drain: drain{t: t, most: tlsets.LongMessage}}
				l.leave = func() {
					recv.Release()
					var err error
					closing, err = info.From.Close(mode)
					require.NoError(t, err)
				}
				var err error
				recv, err = p.B.W.TagRecvData(ucp.To(l), 1, exact, &info, nil)
				require.NoError(t, err)
				send, err := p.A.EP.TagSend(1, testenv.Pattern(tlsets.LongMessage, 1), nil)
				require.NoError(t, err)
				p.Until(func() bool { return l.finished > 0 })
				require.NoError(t, p.Finish(closing, nil))
				p.Until(send.Done)
				send.Release()
				assert.Equal(t, 1, l.finished)
				if mode == ucp.CloseFlush {
					require.NoError(t, l.err)
					testenv.RequireBytes(t, testenv.Pattern(tlsets.LongMessage, 1), l.data)
				} else {
					assert.ErrorIs(t, l.err, ucs.ErrCanceled)
					assert.Less(t, len(l.data), tlsets.LongMessage)
				}
				p.B.W.FreeRequests(func(r *ucp.Request) {
					require.Zero(t, r.Offset())
					require.Equal(t, 1, r.Outstanding())
				})
			})
		}
	}
}
