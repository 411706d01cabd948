package kvstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	uatomic "go.uber.org/atomic"

	"github.com/gucx/gucx/internal/testenv"
)

// input is an operation on a key.
type input struct {
	key, value string // value is what is put; "" for a get
	put        bool
}

// register is a key of which operations put and get the value. Each key begins without one.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		keys := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(input).key
			keys[key] = append(keys[key], op)
		}
		var parts [][]porcupine.Operation
		for _, ops := range keys {
			parts = append(parts, ops)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, in, out any) (bool, any) {
		if i := in.(input); i.put {
			return true, i.value
		}
		return state == out, state
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %v", in, out) },
}

// historian is a client that operates on few keys, and what it has seen.
type historian struct {
	t       *testing.T
	id      int
	cl      *Client
	kills   *uatomic.Int64
	all     *uatomic.Int64 // operations of all clients
	history []porcupine.Operation
	unknown int
}

// Keys change after so many kills, and after so many operations: the check of a long history of one key takes much
// memory.
const (
	killsOfKeys      = 4
	operationsOfKeys = 500
)

// key is one of three keys that change from time to time.
func (h *historian) key() string {
	return fmt.Sprintf("%d-%d-%d", h.kills.Load()/killsOfKeys, h.all.Inc()/operationsOfKeys, rand.N(3))
}

// run operates until stop is closed.
func (h *historian) run(ctx context.Context, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rand.N(400)) * time.Microsecond):
		}
		op := porcupine.Operation{ClientId: h.id, Input: input{key: h.key()}, Output: ""}
		in := op.Input.(input)
		op.Call = int64(sinceStart())
		var err error
		if n%4 == 0 {
			in.put, in.value = true, fmt.Sprint(h.id, "-", n)
			op.Input = in
			err = h.cl.Put(ctx, in.key, []byte(in.value))
		} else {
			var value []byte
			if value, err = h.cl.Get(ctx, in.key, nil); err == nil {
				op.Output = string(value)
			}
		}
		op.Return = int64(sinceStart())
		switch {
		case errors.Is(err, ErrUnknown): // it may run at any time
			op.Return = math.MaxInt64
			op.ClientId = -1 - h.id - 1000*h.unknown // the client goes on
			h.unknown++
		case err != nil && err != ErrNoKey:
			assert.NoError(h.t, err)
			return
		}
		h.history = append(h.history, op)
	}
}

// testKills kills servers under load, restarts them, and checks that what clients saw is linearizable: no update that
// was acknowledged is lost, and no get returns an older value than one before it.
func testKills(t *testing.T, tls string, kills int) {
	p := startReplicasOver(t, tls, Config{Lease: 100 * time.Millisecond, Keys: min(500*kills, 4096)})
	ctx, cancel := context.WithTimeout(t.Context(), hang+time.Duration(kills)*5*time.Second)
	defer cancel()
	stop := make(chan struct{})
	var clients [4]*historian
	var running sync.WaitGroup
	var done, all uatomic.Int64
	for i := range clients {
		clients[i] = &historian{t: t, id: i, kills: &done, all: &all, cl: dial(t, p[0].cfg.Address, p[1].cfg.Address)}
		running.Go(func() { clients[i].run(ctx, stop) })
	}
	for range kills {
		time.Sleep(time.Duration(rand.N(100)) * time.Millisecond)
		victim := p[rand.N(2)]
		victim.kill()
		time.Sleep(time.Duration(rand.N(200)) * time.Millisecond) // before or after the other one is the primary
		victim.start()
		victim.line("serving")
		done.Inc()
	}
	close(stop)
	running.Wait()
	var history []porcupine.Operation
	unknown := 0
	for _, h := range clients {
		assert.NotEmpty(t, h.history)
		history, unknown = append(history, h.history...), unknown+h.unknown
	}
	t.Logf("%d operations, %d updates of which it is not known whether they have run", len(history), unknown)
	require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(register, history, hang))
}

// TestKills has few kills; make kills has many.
func TestKills(t *testing.T) {
	for _, tls := range []string{"all", "tcp"} {
		t.Run(tls, func(t *testing.T) { testKills(t, tls, testenv.Rounds(2, 200)) })
	}
}
