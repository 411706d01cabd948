package layer

import (
	"errors"
	"io"
	"sync"
)

// Share contains resources that both sides of a connection in one process use, such as an open
// device: on the loop fabric a device reaches only itself. The zero value is ready. Any goroutine
// may call the methods.
type Share[T io.Closer] struct {
	mu   sync.Mutex
	open map[string]*shared[T]
}

type shared[T io.Closer] struct {
	value T
	users int
}

// Get returns the resource with that key, and opens it if it is not open. The caller must call
// release once; the last release closes the resource.
func (s *Share[T]) Get(key string, open func() (T, error)) (v T, release func() error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.open[key]
	if !ok {
		value, err := open()
		if err != nil {
			return v, nil, err
		}
		e = &shared[T]{value: value}
		if s.open == nil {
			s.open = map[string]*shared[T]{}
		}
		s.open[key] = e
	}
	e.users++
	return e.value, func() error { return s.release(key, e) }, nil
}

var errReleased = errors.New("released more often than acquired")

func (s *Share[T]) release(key string, e *shared[T]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.users == 0 {
		return errReleased
	}
	e.users--
	if e.users > 0 {
		return nil
	}
	delete(s.open, key)
	return e.value.Close()
}
