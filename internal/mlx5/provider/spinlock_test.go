package provider

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSpinLock_Excludes(t *testing.T) {
	const workers, each = 8, 2000
	var l spinLock
	var wg sync.WaitGroup
	n := 0 // under l, as the race detector checks
	for range workers {
		wg.Go(func() {
			for range each {
				l.lock()
				n++
				l.unlock()
			}
		})
	}
	wg.Wait()
	assert.Equal(t, workers*each, n)
}

// A waiter goes on when the holder, which has given its processor away, unlocks.
func TestSpinLock_Waits(t *testing.T) {
	var l spinLock
	l.lock()
	got := make(chan struct{})
	started := make(chan struct{})
	go func() {
		close(started)
		l.lock()
		close(got)
	}()
	<-started
	select {
	case <-got:
		t.Fatal("two holders")
	default:
	}
	l.unlock()
	<-got
}
