package mpool

import (
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/internal/offheap"
	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

type request struct{ id int }

func newBuffers(t *testing.T, c Config, n int, s Source) *Buffers {
	t.Helper()
	p, err := NewBuffers(c, n, s)
	require.NoError(t, err)
	return p
}

func TestObjects_AddressesStayAndHandlesFind(t *testing.T) {
	p := NewObjects[request](Config{ChunkCount: 4})
	where := map[Handle]*request{}
	for i := range 100 {
		o, h := p.Get()
		require.NotNil(t, o)
		require.NotContains(t, where, h, "handed out twice")
		require.Equal(t, request{}, *o, "a new object is zero")
		o.id = i
		where[h] = o
	}
	for h, o := range where {
		assert.Same(t, o, p.At(h))
	}
	assert.Equal(t, 100, p.InUse())
	assert.Equal(t, 100, p.Total())
	for h := range where {
		p.Put(h)
	}
	assert.Zero(t, p.InUse())
	assert.NoError(t, p.Close())
}

func TestObjects_LastPutIsNextGotAndNotCleared(t *testing.T) {
	p := NewObjects[request](Config{})
	first, h := p.Get()
	assert.Equal(t, Handle(0), h, "lowest number first")
	first.id = 7
	p.Put(h)
	again, h2 := p.Get()
	assert.Same(t, first, again)
	assert.Equal(t, h, h2)
	assert.Equal(t, 7, again.id)
	p.Put(h2)
	require.NoError(t, p.Close())
}

func TestLimit(t *testing.T) {
	for _, tt := range []struct {
		name string
		c    Config
		want int
	}{
		{"whole chunks", Config{ChunkCount: 4, Limit: 8}, 8},
		{"rounded up", Config{ChunkCount: 4, Limit: 5}, 8},
		{"count rounded up", Config{ChunkCount: 3, Limit: 4}, 4},
		{"one", Config{ChunkCount: 1, Limit: 1}, 1},
		{"default count", Config{Limit: 1}, 128},
		{"negative count", Config{ChunkCount: -1, Limit: 1}, 128},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects, buffers := NewObjects[request](tt.c), newBuffers(t, tt.c, 8, nil)
			var objectsGot, buffersGot []Handle
			for o, h := objects.Get(); o != nil; o, h = objects.Get() {
				objectsGot = append(objectsGot, h)
			}
			for h, ok := buffers.Get(); ok; h, ok = buffers.Get() {
				buffersGot = append(buffersGot, h)
			}
			assert.Len(t, objectsGot, tt.want)
			assert.Len(t, buffersGot, tt.want)
			assert.Equal(t, ErrLimit, objects.Err())
			assert.Equal(t, ErrLimit, buffers.Err())
			objects.Put(objectsGot[0])
			o, _ := objects.Get()
			assert.NotNil(t, o, "what was put back can be got")
			for i := range tt.want {
				objects.Put(objectsGot[i])
				buffers.Put(buffersGot[i])
			}
			assert.NoError(t, objects.Close())
			assert.NoError(t, buffers.Close())
		})
	}
}

func TestClose_TellsLeaks(t *testing.T) {
	objects, buffers := NewObjects[request](Config{}), newBuffers(t, Config{}, 8, nil)
	objects.Get()
	objects.Get()
	buffers.Get()
	assert.EqualError(t, objects.Close(), "close pool: 2 elements are still in use")
	assert.EqualError(t, buffers.Close(), "close pool: 1 elements are still in use")
	assert.NoError(t, objects.Close(), "told once")
	o, _ := objects.Get()
	assert.Nil(t, o, "closed")
	_, ok := buffers.Get()
	assert.False(t, ok, "closed")
	assert.NoError(t, buffers.Close())
}

func TestBuffers_AlignedAndApart(t *testing.T) {
	for _, n := range []int{1, 8, 63, 64, 65, 8192} {
		p := newBuffers(t, Config{ChunkCount: 4}, n, nil)
		var handles []Handle
		for i := range 10 {
			h, ok := p.Get()
			require.True(t, ok)
			b := p.Bytes(h)
			require.Len(t, b, n)
			assert.Equal(t, n, cap(b))
			assert.Zero(t, uintptr(unsafe.Pointer(unsafe.SliceData(b)))%elementAlign)
			for j := range b {
				b[j] = byte(i)
			}
			handles = append(handles, h)
		}
		for i, h := range handles {
			for _, x := range p.Bytes(h) {
				require.Equal(t, byte(i), x, "buffers of %d bytes overlap", n)
			}
			p.Put(h)
		}
		assert.Equal(t, n, p.Len())
		require.NoError(t, p.Close())
	}
}

func TestNewBuffers_RefusesLengths(t *testing.T) {
	for _, n := range []int{-1, 0, maxElementLen + 1} {
		_, err := NewBuffers(Config{}, n, nil)
		assert.ErrorIs(t, err, ErrLength)
	}
}

// registered is a chunk that knows its key, as a transport's does.
type registered struct {
	*offheap.Block
	key   int
	freed *int
	err   error
}

func (r registered) Free() error {
	*r.freed++
	return errors.Join(r.Block.Free(), r.err)
}

func TestBuffers_OwnSource(t *testing.T) {
	made, freed := 0, 0
	errFree := errors.New("key is busy")
	p := newBuffers(t, Config{ChunkCount: 2}, 100, func(n int) (Memory, error) {
		made++
		b, err := offheap.Alloc(n)
		return registered{b, made, &freed, errFree}, err
	})
	for i := range 5 {
		h, ok := p.Get()
		require.True(t, ok)
		assert.Equal(t, i/2+1, p.Chunk(h).(registered).key)
	}
	for h := range Handle(5) {
		p.Put(h)
	}
	assert.ErrorIs(t, p.Close(), errFree)
	assert.Equal(t, 3, made)
	assert.Equal(t, 3, freed, "all of them in spite of errors")
}

func TestBuffers_SourceWithoutMemory(t *testing.T) {
	errNone := errors.New("no memory")
	fail := true
	p := newBuffers(t, Config{ChunkCount: 1}, 64, func(n int) (Memory, error) {
		if fail {
			return nil, errNone
		}
		return offheap.Alloc(n)
	})
	_, ok := p.Get()
	assert.False(t, ok)
	assert.Equal(t, errNone, p.Err())
	assert.Equal(t, errNone, p.Reserve(1))
	assert.Zero(t, p.Total())
	fail = false
	h, ok := p.Get()
	assert.True(t, ok, "tries again")
	assert.NoError(t, p.Err())
	p.Put(h)
	assert.NoError(t, p.Close())
}

func TestReserve(t *testing.T) {
	objects, buffers := NewObjects[request](Config{ChunkCount: 4, Limit: 8}), newBuffers(t, Config{ChunkCount: 4, Limit: 8}, 8, nil)
	require.NoError(t, objects.Reserve(5))
	require.NoError(t, buffers.Reserve(5))
	assert.Equal(t, 8, objects.Total())
	assert.Equal(t, 8, buffers.Total())
	assert.Equal(t, ErrLimit, objects.Reserve(9))
	assert.Equal(t, ErrLimit, buffers.Reserve(9))
	require.NoError(t, objects.Close())
	require.NoError(t, buffers.Close())
}

// TestModel compares random calls with a set of handles.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewObjects[request](Config{ChunkCount: rapid.IntRange(1, 5).Draw(t, "chunk"), Limit: 16})
		var held []Handle
		stamp := map[Handle]int{}
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				o, h := p.Get()
				if o == nil {
					if len(held) < 16 {
						t.Fatalf("refused with %d in use", len(held))
					}
					return
				}
				if _, twice := stamp[h]; twice {
					t.Fatalf("%d handed out twice", h)
				}
				n++
				o.id, stamp[h] = n, n
				held = append(held, h)
			},
			"put": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing to put")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				p.Put(held[i])
				delete(stamp, held[i])
				held = append(held[:i], held[i+1:]...)
			},
			"": func(t *rapid.T) {
				if p.InUse() != len(held) {
					t.Fatalf("%d in use, want %d", p.InUse(), len(held))
				}
				for h, want := range stamp {
					if p.At(h).id != want {
						t.Fatalf("object %d is not the one it was", h)
					}
				}
			},
		})
	})
}

func TestInvariants_WrongHandles(t *testing.T) {
	if !invariants.Enabled {
		t.Skip("checked only with -tags invariants")
	}
	p := NewObjects[request](Config{})
	_, h := p.Get()
	p.Put(h)
	assert.Panics(t, func() { p.Put(h) }, "put twice")
	assert.Panics(t, func() { p.At(h) }, "used after put")
	assert.Panics(t, func() { p.Put(1 << 20) }, "never got")
}

func TestNoAllocs(t *testing.T) {
	objects, buffers := NewObjects[request](Config{}), newBuffers(t, Config{}, 64, nil)
	require.NoError(t, objects.Reserve(128))
	require.NoError(t, buffers.Reserve(128))
	var held [64]Handle
	testenv.NoAllocs(t, "objects", func() {
		for i := range held {
			_, held[i] = objects.Get()
		}
		for _, h := range held {
			objects.At(h).id++
			objects.Put(h)
		}
	})
	testenv.NoAllocs(t, "buffers", func() {
		for i := range held {
			held[i], _ = buffers.Get()
		}
		for _, h := range held {
			buffers.Bytes(h)[0]++
			buffers.Put(h)
		}
	})
	require.NoError(t, objects.Close())
	require.NoError(t, buffers.Close())
}

func BenchmarkGetPut(b *testing.B) {
	b.Run("objects", func(b *testing.B) {
		p := NewObjects[request](Config{})
		b.ReportAllocs()
		for b.Loop() {
			_, h := p.Get()
			p.Put(h)
		}
	})
	b.Run("buffers", func(b *testing.B) {
		p, err := NewBuffers(Config{}, 64, nil)
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			h, _ := p.Get()
			p.Bytes(h)[0] = 1
			p.Put(h)
		}
		require.NoError(b, p.Close())
	})
}

func ExampleBuffers() {
	p, err := NewBuffers(Config{ChunkCount: 2, Limit: 2}, 16, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	a, _ := p.Get()
	copy(p.Bytes(a), "hello")
	b, _ := p.Get()
	_, ok := p.Get()
	fmt.Println(a, b, ok, p.Err(), string(p.Bytes(a)[:5]))
	p.Put(a)
	p.Put(b)
	fmt.Println(p.InUse(), p.Close())
	// Output:
	// 0 1 false pool is at its limit hello
	// 0 <nil>
}
