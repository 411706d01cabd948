package sm

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// Message ids of the tests with two processes.
const (
	idEcho = 1 // the reply is the same message
	idSink = 2 // counted
)

// wordAt returns an 8-byte word of memory to which a peer writes.
func wordAt(mem uct.Mem, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem.Bytes()[off]))
}

// echo replies to messages.
type echo struct{ e *endpoint }

func (h *echo) HandleAM(data []byte, _ uct.Desc) bool {
	for h.e.AMShort(idEcho, binary.LittleEndian.Uint64(data), nil) == uct.ErrNoResource {
		runtime.Gosched()
	}
	return false
}

// sink counts messages in the first word of page 1 of its memory.
type sink struct{ count *atomic.Uint64 }

func (h *sink) HandleAM([]byte, uct.Desc) bool {
	h.count.Store(h.count.Load() + 1)
	return false
}

// serveEcho replies to messages, and to puts to word 0 with a put to word 0 of the peer.
func serveEcho(s *station, m exchangedInfo, in *bufio.Reader) {
	t := failNow{}
	e := s.connect(t, m)
	key := s.key(t, m)
	require.NoError(t, s.iface.SetAMHandler(idEcho, &echo{e}))
	require.NoError(t, s.iface.SetAMHandler(idSink, &sink{wordAt(s.mem, 4096)}))
	fmt.Println("ready")
	var over atomic.Bool
	go func() {
		_, _ = in.ReadByte() // the end of the input
		over.Store(true)
	}()
	pinChild()
	word, last, buf := wordAt(s.mem, 0), uint64(0), make([]byte, 8)
	for idle := 0; ; idle++ {
		if s.iface.Progress() > 0 {
			idle = 0
		}
		if v := word.Load(); v != last {
			last, idle = v, 0
			binary.LittleEndian.PutUint64(buf, v)
			require.NoError(t, e.PutShort(buf, m.Raddr, key))
		}
		if idle%1024 == 1023 {
			runtime.Gosched()
			if over.Load() {
				break
			}
		}
	}
	require.NoError(t, e.Close())
}

// storm sends numbered messages until it is killed. After each message it puts its number to
// word 0 of the peer's memory.
func storm(s *station, m exchangedInfo) {
	t := failNow{}
	e, key := s.connect(t, m), s.key(t, m)
	fmt.Println("ready")
	payload, count := make([]byte, 8), make([]byte, 8)
	for i := uint64(0); ; {
		n := 8 + int(i%3)*8
		if i%17 == 0 {
			n = 4000
		}
		var err error
		if n <= inlineLen {
			err = e.AMShort(idSink, i, payload)
		} else {
			_, err = e.AMBcopy(idSink, &numbered{i, n})
		}
		if err == nil {
			i++
			binary.LittleEndian.PutUint64(count, i)
			require.NoError(t, e.Fence())
			require.NoError(t, e.PutShort(count, m.Raddr, key))
			continue
		}
		require.Equal(t, uct.ErrNoResource, err)
		s.iface.Progress()
		runtime.Gosched()
	}
}

// numbered packs n bytes that begin with i.
type numbered struct {
	i uint64
	n int
}

func (k *numbered) Pack(dst []byte) int {
	binary.LittleEndian.PutUint64(dst, k.i)
	for p := 8; p < k.n; p++ {
		dst[p] = byte(k.i)
	}
	return k.n
}
