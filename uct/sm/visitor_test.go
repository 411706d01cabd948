package sm

import (
	"bufio"
	"errors"
	"fmt"
	"runtime"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// visited is the byte that a visitor and a writer write.
const visited = 0xaa

// visitPeer begins a visit of the peer's memory as a put does, waits for a line, fills the first
// page and ends the visit.
func visitPeer(s *station, m exchangedInfo, in *bufio.Reader) {
	t := failNow{}
	e, key := s.connect(t, m), s.key(t, m)
	e.enter(uint64(key))
	p := e.mapped(uint64(key), m.Raddr, 4096, uct.AccessRemoteWrite)
	fmt.Println("inside")
	_, err := in.ReadString('\n')
	require.NoError(t, err)
	if p != nil {
		fill(bytesOf(p, 0, 4096), visited)
	}
	e.endVisit()
	fmt.Println("left")
	_, _ = in.ReadString('\n')
	require.NoError(t, e.Close())
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// writePeer puts to the memory of each exchangedInfo that it reads, with all operations, until that fails, and
// prints a line.
func writePeer(s *station, m exchangedInfo, in *bufio.Reader) {
	t := failNow{}
	fmt.Println("ready")
	for {
		var err error
		if m, err = readInfo(in); err != nil {
			return
		}
		e := s.connect(t, m)
		err = putUntilRejected(s, e, m.Raddr, s.key(t, m))
		if !errors.Is(err, ucs.ErrRemoteAccess) && !errors.Is(err, ucs.ErrEPFailed) {
			require.NoError(t, err)
		}
		fmt.Println("refused")
		require.NoError(t, e.Close())
	}
}

// putLen is the length of the written regions.
const putLen = 1 << 20

func putUntilRejected(s *station, e *endpoint, raddr uint64, key uct.RKey) error {
	data := make([]byte, putLen)
	fill(data, visited)
	puts := []func(i uint64) error{
		func(i uint64) error { return e.PutShort(data[:8], raddr+i%putLen&^7, key) },
		func(i uint64) error { return e.PutBcopy(data[:4096], raddr+i%(putLen-4096), key) },
		func(uint64) error { _, err := e.PutZcopy([]uct.IOV{{Buf: data}}, raddr, key, nil); return err },
	}
	for i := uint64(0); ; i += 4099 {
		err := puts[i%3](i)
		if err == uct.ErrNoResource {
			s.iface.Progress()
			runtime.Gosched()
		} else if err != nil {
			return err
		}
	}
}
