package ucprpc

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/stats"
)

// hookedContext calls hook when Done is called.
type hookedContext struct {
	context.Context
	hook func()
}

func (c hookedContext) Done() <-chan struct{} {
	c.hook()
	return c.Context.Done()
}

// newTestLoop returns a loop without a goroutine that drives.
func newTestLoop(t *testing.T) *loop {
	n := &node{c: newContext(t, "sm"), stats: stats.New("test")}
	require.NoError(t, n.cfg.setDefaults())
	l, err := n.newLoop(ucp.WorkerConfig{})
	require.NoError(t, err)
	return l
}

// TestLoop_CanceledWhenDone: a context ends after the driver has ended the wait and returned. The wait returns although
// no goroutine drives the loop.
func TestLoop_CanceledWhenDone(t *testing.T) {
	l := newTestLoop(t)
	defer l.w.Close()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		for range 64 { // select takes either event
			var own waiter
			l.acquire() // as if another goroutine drove
			ctx, cancel := context.WithCancel(t.Context())
			own = newWaiter(func() {}, func() {
				if !own.done {
					l.completeWait(&own)
				}
			})
			l.await(hookedContext{ctx, func() {
				l.runTasks()
				l.completeWait(&own)
				l.release()
				cancel()
			}}, &own)
		}
	}()
	select {
	case <-returned:
	case <-time.After(hang):
		t.Fatal("the wait hangs")
	}
}

// TestLoop_TaskSubmitsTask: a task that always submits the next one does not prevent the return of the driver.
func TestLoop_TaskSubmitsTask(t *testing.T) {
	l := newTestLoop(t)
	var over atomic.Bool
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		l.runOnLoop(submitAlways(l, &over))
	}()
	select {
	case <-returned:
	case <-time.After(hang):
		t.Error("the driver does not return")
	}
	over.Store(true)
	require.NoError(t, l.close())
}

// submitAlways returns a task that submits itself until over is set.
func submitAlways(l *loop, over *atomic.Bool) (task func()) {
	task = func() {
		if !over.Load() {
			l.submit(task)
		}
	}
	return task
}

// TestLoop_ProgressBesideTasks: a task that always submits the next one does not prevent progress.
func TestLoop_ProgressBesideTasks(t *testing.T) {
	_, cl := newPair(t, "sm", testServer())
	l := cl.links[0].state.Load().p.l
	var over atomic.Bool
	defer over.Store(true)
	returned := make(chan error, 1)
	go func() {
		l.runOnLoop(submitAlways(l, &over))
		var err error
		for range 20 {
			_, e := cl.Call(t.Context(), methodEcho, nil, nil)
			err = errors.Join(err, e)
		}
		returned <- err
	}()
	eventually(t, func() bool { return len(returned) == 1 })
	require.NoError(t, <-returned)
}

// TestServe_SleepsBesideCaller: while a caller drives for a long call, the loop's own goroutine sleeps. It drives
// when the caller has left.
func TestServe_SleepsBesideCaller(t *testing.T) {
	l := newTestLoop(t)
	require.True(t, l.acquire()) // as a caller
	served := make(chan struct{})
	go func() {
		defer close(served)
		l.serve()
	}()
	eventually(t, l.watched.Load)
	l.release()
	eventually(t, l.driven.Load)
	require.False(t, l.watched.Load())
	require.NoError(t, l.closeWorker())
	<-served
}
