package wire

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/wireup"
)

// TestUnpackKey_ChangesMeanwhile: a key may be in memory that the peer still writes to. UnpackKey uses the bytes that
// it has checked.
func TestUnpackKey_ChangesMeanwhile(t *testing.T) {
	key := (&Key{Region: 1, Addr: 1 << 20, Length: 64, Parts: []KeyPart{{MD: 0, Key: []byte("key")}}}).Append(nil)
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // which the race detector does not watch
	require.NoError(t, err)
	copy(mem, key)
	// The first part: domain, length and two bytes of the key. keyHeader is a multiple of 4.
	part := (*uint32)(unsafe.Pointer(&mem[keyHeader]))
	right, wrong := binary.NativeEndian.Uint32(key[keyHeader:]), binary.NativeEndian.Uint32([]byte{0xff, 0xff, 'k', 'e'})
	var stop atomic.Bool
	peer := make(chan struct{})
	go func() {
		defer close(peer)
		stand := func(turns int) {
			for i := range turns {
				runtime.KeepAlive(i)
			}
		}
		for n := 0; !stop.Load(); n++ {
			atomic.StoreUint32(part, wrong)
			stand(n % 64)
			atomic.StoreUint32(part, right)
			stand(n % 64)
			if n%1024 == 0 {
				runtime.Gosched()
			}
		}
	}()
	defer func() { // also when UnpackKey panics
		stop.Store(true)
		<-peer
		require.NoError(t, unix.Munmap(mem))
	}()
	for range testenv.Rounds(50_000, 2_000_000) {
		k, err := UnpackKey(mem[:len(key)])
		if err != nil {
			continue
		}
		require.Len(t, k.Parts, 1)
		require.Less(t, int(k.Parts[0].MD), wireup.MaxMDs)
		require.Len(t, k.Parts[0].Key, 3)
	}
}
