package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/internal/conn"
)

// sends starts count messages of a tag.
func (p *pair) sends(tag uint64, count int) (reqs []*Request) {
	p.t.Helper()
	for k := range count {
		s, err := p.a.ep.TagSend(tag, pattern(8, k), nil)
		require.NoError(p.t, err)
		if s != nil {
			reqs = append(reqs, s)
		}
	}
	return reqs
}

// TestTuple_ManyResent: a queue can be closed whatever number of messages waits in it.
func TestTuple_ManyResent(t *testing.T) {
	const count = conn.MaxAnswers + 100
	cfg := tupleq
	cfg.EagerWindow = 16 << 20 // credit for all of them
	p := newPair(t, queues(), cfg).connect()
	p.openTuple(7)
	sent := p.sends(7, count)
	require.Len(t, sent, count)
	p.b.w.TagProbe(7, exact, false)
	p.settle()
	require.NoError(t, p.a.ep.Err())
	for k := range count {
		got := make([]byte, 8)
		r, err := p.b.w.TagRecv(got, 7, 0xff, nil, nil)
		require.NoError(t, p.finish(r, err))
		requireBytes(t, pattern(8, k), got)
	}
	for _, s := range sent {
		require.NoError(t, p.finish(s, nil))
	}
	assert.Positive(t, p.a.stat("resent"))
}
