package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
)

// someSM has a cost for each operation.
var someSM = func() (s SharedMemory) {
	for v := range s.Post {
		s.Post[v] = timing.Time(50+v) * timing.Nanosecond
	}
	s.Receive, s.Poll = 70*timing.Nanosecond, 5*timing.Nanosecond
	return s
}()

// aPoll is the time of the longest poll of all transports of these tests, in nanoseconds: the next poll finds a message that
// arrives meanwhile.
const aPoll = 30

// Each message within a node costs a post, a poll, the transfer of a cache line, and the time of the receiver: once. No message
// uses the NIC.
func TestSM_Costs(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	const more = timing.Microsecond
	run := func(change func(*Config)) time.Duration {
		cfg := Config{Ranks: 2, Nodes: 1, Params: timing.ConnectX6(), SM: someSM}
		change(&cfg)
		c := openOver(t, "rc+sm", cfg)
		took := pingPong(t, c, 8)
		assert.Zero(t, c.Stats().Messages, "messages of the NIC")
		return took
	}
	base := run(func(*Config) {})
	assert.Less(t, base, time.Microsecond)
	for name, change := range map[string]func(*Config){
		"post": func(c *Config) {
			for v := range c.SM.Post {
				c.SM.Post[v] += more
			}
		},
		"receive": func(c *Config) { c.SM.Receive += more },
		"line":    func(c *Config) { c.Params.LineTransfer += more },
	} {
		assert.InDelta(t, base+duration(more), run(change), aPoll, name)
	}
}

// Larger messages also cost the transfer of a second line, and a copy by each side.
func TestSM_CostOfLength(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	took := func(n int) time.Duration {
		return pingPong(t, openOver(t, "rc+sm", Config{Ranks: 2, Nodes: 1, Params: timing.ConnectX6()}), n)
	}
	p := timing.ConnectX6()
	copies := func(n int) timing.Time { return 2 * timing.Second * timing.Time(n) / timing.Time(p.CopyBandwidth) }
	short := took(8)
	assert.InDelta(t, duration(p.LineTransfer), short, aPoll)
	assert.Greater(t, took(200)-short, duration(p.LineTransfer))
	assert.InDelta(t, duration(copies(4000-1000)), took(4000)-took(1000), aPoll)
}

// Ranks of different nodes do not reach each other over sm.
func TestSM_OtherNode(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	p := timing.ConnectX6()
	c := openOver(t, "rc+sm", Config{Ranks: 2, Nodes: 2, Params: p, SM: someSM})
	assert.Greater(t, pingPong(t, c, 8), duration(p.AckRoundTrip/2), "the path through the switch")
	assert.NotZero(t, c.Stats().Messages)
}

// A rank that sends more than the ring has room for waits until the receiver makes room, and then continues.
func TestSM_FullRing(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	const messages = 100
	const computes = time.Millisecond
	for _, n := range []int{8, 4000} {
		cfg := Config{Ranks: 2, Nodes: 1, SM: someSM}
		cfg.UCT.SM.FIFOSize, cfg.UCT.SM.Segs = 2, 1
		c := openOver(t, "rc+sm", cfg)
		require.NoError(t, c.Prepare(exchangePair))
		ends, err := c.Run(func(r *Rank) error {
			if r.ID() == 1 {
				r.Compute(computes)
			}
			for range messages {
				var err error
				if r.ID() == 0 {
					err = send(r, 1, make([]byte, n), nil)
				} else {
					err = receive(r, 0, make([]byte, n), nil)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(t, err)
		assert.Greater(t, ends[0], computes, "the sender waited")
		assert.Less(t, slices.Max(ends), 2*computes)
	}
}

// A rendezvous message is fetched by cross-memory attach from memory that is not mapped, and without a system call from mapped
// memory.
func TestSM_Rendezvous(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	const n = 100_000
	took := func(mapped bool) time.Duration {
		c := openOver(t, "rc+sm", Config{Ranks: 2, Nodes: 1, Params: timing.ConnectX6(),
			UCP: ucp.Config{RndvThresh: 8 << 10, RndvScheme: "get_zcopy"}})
		require.NoError(t, c.Prepare(exchangePair))
		var params ucp.OpParams
		buf := make([]byte, n)
		if mapped {
			m, err := c.MemAlloc(n)
			require.NoError(t, err)
			buf, params.Mem = m.Bytes(), m
		}
		message := func(r *Rank) error {
			if r.ID() == 0 {
				return send(r, 1, buf, &params)
			}
			return receive(r, 0, make([]byte, n), nil)
		}
		require.NoError(t, c.Prepare(message))
		ends, err := c.Run(message)
		require.NoError(t, err)
		assert.Zero(t, c.Stats().Messages, "messages of the NIC")
		return ends[1]
	}
	assert.Greater(t, took(false), took(true))
}

// TestSM_Packer: the message arrives after the time of the copy.
func TestSM_Packer(t *testing.T) {
	p := timing.ConnectX6()
	m, err := timing.New(p)
	require.NoError(t, err)
	_, err = m.Run(0, []timing.Step{func() (bool, error) {
		begin := m.Now()
		packed := copyingPacker{packs{}, m}.Pack(make([]byte, 1000))
		assert.Equal(t, 1000, packed)
		assert.Equal(t, begin+timing.Second*1000/timing.Time(p.CopyBandwidth), m.Now())
		return true, nil
	}})
	require.NoError(t, err)
}

// packs is a Packer that fills the buffer.
type packs struct{}

func (packs) Pack(dst []byte) int { return len(dst) }

var _ uct.Packer = packs{}
