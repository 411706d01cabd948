package proto

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/uct"
)

// rndvCosts are schemes of which a get has a high latency and a high bandwidth.
func rndvCosts() *Rendezvous {
	return &Rendezvous{
		Message:  uct.Cost{Send: 100, Latency: time.Microsecond, Bandwidth: 1e9},
		Get:      Move{Cost: uct.Cost{Latency: 10 * time.Microsecond, Bandwidth: 10e9}, Piece: 1 << 30},
		Put:      Move{Cost: uct.Cost{Latency: 10 * time.Microsecond, Bandwidth: 10e9}, Piece: 1 << 30},
		Fragment: Move{Cost: uct.Cost{Send: 100, Latency: time.Microsecond, Bandwidth: 1e9}, Piece: 8192},
	}
}

func TestRndv_Choose(t *testing.T) {
	without := func(edit func(*Rendezvous)) *Rendezvous {
		v := rndvCosts()
		edit(v)
		return v
	}
	noGet := without(func(v *Rendezvous) { v.Get.Piece = 0 })
	none := without(func(v *Rendezvous) { v.Get.Piece, v.Put.Piece = 0, 0 })
	for _, tc := range []struct {
		name      string
		v         *Rendezvous
		n         int
		preferred Scheme
		want      Scheme
		why       string
	}{
		{"short", rndvCosts(), 1000, Auto, Fragments, "the least time, 3200 ns"},
		{"long", rndvCosts(), 1 << 20, Auto, Get, "the least time, 114857 ns"},
		{"no key", noGet, 1 << 20, Auto, Put, "the least time, 117057 ns"},
		{"nothing registered", none, 1 << 20, Auto, Fragments, "no memory that the other side reaches"},
		{"a preferred", rndvCosts(), 1, Put, Put, "RNDV_SCHEME=put_zcopy"},
		{"another preferred", rndvCosts(), 1 << 20, Fragments, Fragments, "RNDV_SCHEME=am"},
		{"a preferred that cannot be", none, 1 << 20, Get, Fragments, "no memory that the other side reaches"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.v.Choose(tc.n, tc.preferred)
			assert.Equal(t, tc.want, got, "%v", got)
			assert.Equal(t, tc.why, tc.v.Why(tc.n, tc.preferred, got))
		})
	}
}

// TestQuicker: the cost of registering counts, and a possible scheme is better than an impossible one.
func TestQuicker(t *testing.T) {
	copied := Move{Cost: uct.Cost{Bandwidth: 1e9}, Piece: 1 << 30}
	bare := Move{Cost: uct.Cost{Bandwidth: 2e9}, Piece: 1 << 30, Registers: true, Adds: 1e6}
	assert.False(t, Faster(2000, copied, bare).Registers, "both take as long")
	assert.True(t, Faster(2001, copied, bare).Registers)
	assert.True(t, Faster(1, Move{}, bare).Registers)
	assert.False(t, Faster(1<<20, copied, Move{}).Registers)
	v := &Rendezvous{Get: copied, Put: bare}
	assert.True(t, v.Registers(Put))
	assert.False(t, v.Registers(Get) || v.Registers(Fragments))
}

func TestParseScheme(t *testing.T) {
	for s := Auto; s <= Fragments; s++ {
		got, ok := ParseScheme(s.String())
		assert.True(t, ok)
		assert.Equal(t, s, got)
	}
	s, ok := ParseScheme("")
	assert.True(t, ok)
	assert.Equal(t, Auto, s)
	_, ok = ParseScheme("rkey_ptr")
	assert.False(t, ok)
}

// TestMessages_Table: ranges follow each other from 1 byte on.
func TestMessages_Table(t *testing.T) {
	scheme := func(n int) (Scheme, string) {
		if n < 100_000 {
			return Fragments, "few"
		}
		return Get, "many"
	}
	for _, tc := range []struct {
		name string
		m    Messages
		want string
	}{
		{"all", Messages{Short: 100, Copy: 8000, MinZcopy: 5000, MaxZcopy: 7000, Piece: 7900, Announced: 32768, Scheme: scheme}, `
           1..100          short  in one call
         101..4999         bcopy  one copy
        5000..7000         zcopy  cheaper than a copy
        7001..32767        bcopy  in fragments of 7900 bytes
       32768..131071       rndv   am, few
      131072..inf          rndv   get_zcopy, many
`},
		{"announced at once", Messages{Short: 100, Copy: 8000, MinZcopy: math.MaxInt, Piece: 7900, Announced: 1, Scheme: scheme}, `
           1..131071       rndv   am, few
      131072..inf          rndv   get_zcopy, many
`},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, "\n"+tc.m.Table().String()) })
	}
}
