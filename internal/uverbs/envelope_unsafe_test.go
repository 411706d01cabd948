package uverbs

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func testEnvelope(t *testing.T) *envelope {
	e, err := newEnvelope()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.block.Free()) })
	return e
}

// pointed returns the memory that attribute i points to.
func (e *envelope) pointed(i int) []byte {
	off := e.attr(i).Data - addressOf(e.mem)
	return e.mem[off : off+uint64(e.attr(i).Len)]
}

func TestEnvelope_Encode(t *testing.T) {
	e := testEnvelope(t)
	small, large := uint32(0x01020304), [3]uint64{1, 2, 3}
	var out [20]byte
	attrs := []Attr{Object(0, 7), In(1, &small), In(2, &large), Const(3, 99), Out(4, &out)}
	require.NoError(t, e.encode(MethodCreateQP, DriverRXE, attrs))
	h := (*ioctlHeader)(unsafe.Pointer(&e.mem[0]))
	assert.Equal(t, ioctlHeader{Len: 24 + 5*16, Object: 4, NumAttrs: 5, Driver: 14}, *h)
	assert.Equal(t, ioctlAttr{ID: 0, Flags: 1, Data: 7}, *e.attr(0))
	var four [8]byte
	binary.NativeEndian.PutUint32(four[:], small)
	assert.Equal(t, ioctlAttr{ID: 1, Len: 4, Flags: 1, Data: binary.NativeEndian.Uint64(four[:])}, *e.attr(1), "by value")
	assert.Equal(t, BytesOf(&large), e.pointed(2))
	assert.Equal(t, ioctlAttr{ID: 3, Len: 8, Flags: 1, Data: 99}, *e.attr(3))

	copy(e.pointed(4), "reply")
	e.attr(0).Data = 12
	e.decode(attrs)
	assert.Equal(t, uint64(12), attrs[0].Value)
	assert.Equal(t, "reply", string(out[:5]))
}

// An envelope contains no data of an earlier call.
func TestEnvelope_ClearsOutput(t *testing.T) {
	e := testEnvelope(t)
	for i := range e.mem {
		e.mem[i] = 0xff
	}
	var out [16]byte
	require.NoError(t, e.encode(MethodQueryPort, DriverRXE, []Attr{Out(1, &out)}))
	assert.Equal(t, out[:], e.pointed(0))
}

func TestEnvelope_TooLong(t *testing.T) {
	e := testEnvelope(t)
	assert.Equal(t, unix.E2BIG, e.encode(MethodQueryPort, DriverRXE, []Attr{{Data: make([]byte, envelopeLen)}}))
	assert.Equal(t, unix.E2BIG, e.encode(MethodQueryPort, DriverRXE, make([]Attr, maxAttrs+1)))
}

func TestError(t *testing.T) {
	err := newError("rxe0", CmdRegMR.String(), unix.ENOMEM)
	assert.ErrorIs(t, err, unix.ENOMEM)
	assert.ErrorContains(t, err, "rxe0: register memory: cannot allocate memory: registered memory is locked")
	err = newError("rxe0", MethodGIDTable.String(), unix.EPROTONOSUPPORT)
	assert.ErrorContains(t, err, "Linux "+MinKernel)
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "query GID table", e.Feature)
}

func TestPortSpeed(t *testing.T) {
	for _, c := range []struct {
		width, speed uint8
		ex           uint32
		want         float64
	}{{2, 4, 0, 40}, {1, 1, 0, 2.5}, {2, 32, 0, 103.125}, {2, 0, 128, 400}, {0, 4, 0, 0}, {2, 0, 0, 0}} {
		r := QueryPortReply{ActiveWidth: c.width, ActiveSpeed: c.speed, ActiveSpeedEx: c.ex}
		assert.Equal(t, c.want, r.speed(), "%+v", c)
	}
}
