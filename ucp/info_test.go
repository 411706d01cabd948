package ucp

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
)

// TestInfo_TextSurvivesJSON: after encoding to JSON and back, Info has the same text as Explain.
func TestInfo_TextSurvivesJSON(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.both().warm()
		text, err := json.Marshal(p.a.ep.Info())
		require.NoError(t, err)
		var back EPInfo
		require.NoError(t, json.Unmarshal(text, &back))
		assert.Equal(t, p.a.ep.Explain(), back.String())

		require.NotEmpty(t, back.Lanes)
		assert.Equal(t, "open", back.State)
		assert.Equal(t, p.a.w.net.addr.UUID(), back.Worker)
		assert.Equal(t, p.b.w.net.addr.UUID(), back.Peer)
		var roles []string
		for _, l := range back.Lanes {
			assert.NotEmpty(t, l.Transport)
			assert.NotEmpty(t, l.Device)
			roles = append(roles, l.Roles...)
		}
		assert.Contains(t, roles, "rma")
		assert.NotEmpty(t, back.Choices)
		assert.NotEmpty(t, back.Protocols)
		for _, x := range back.Protocols {
			least := 1
			for n, r := range x.Ranges {
				assert.Equal(t, least, r.Min, "%s: no gaps", x.Op)
				assert.Equal(t, n == len(x.Ranges)-1, r.Max == 0, "%s: the last range has no limit", x.Op)
				least = r.Max + 1
			}
		}
	})
}

// TestInfo_Credit: both sides count the same messages, also unreceived ones. A message that waits for credit while its
// receive is posted uses rendezvous, so its data uses no credit.
func TestInfo_Credit(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		if p.oneself() {
			t.Skip("one EP has both sides")
		}
		p.both().warm()
		const n, size = 300, 100
		buf := make([]byte, size)
		for k := range n {
			send, err := p.a.ep.TagSend(7, pattern(size, k), nil)
			require.NoError(t, err)
			if k < n-10 {
				require.NoError(t, p.finish(p.b.w.TagRecv(buf, 7, 0, nil, nil)))
			}
			require.NoError(t, p.finish(send, nil))
		}
		p.unexpected(10)
		a, b := p.a.ep.Info().Credit, p.b.ep.Info().Credit
		require.NotNil(t, a)
		require.NotNil(t, b)
		assert.GreaterOrEqual(t, a.Sent, int64(n*messageCharge))
		assert.LessOrEqual(t, a.Sent, int64(n*(size+messageCharge)))
		assert.Equal(t, a.Sent, b.Received)
		assert.GreaterOrEqual(t, b.Held, int64(10*messageCharge))
		assert.LessOrEqual(t, b.Held, int64(10*(size+messageCharge)))
		assert.Equal(t, 10, p.b.w.Info().Unexpected)
	})
}

// TestInfo_InFlight: Info shows where operations wait, and only while they wait.
func TestInfo_InFlight(t *testing.T) {
	p := newPair(t, faketp.Set("like rc+ud", faketp.LikeRC(), faketp.LikeUD()), Config{}).both()
	put, err := p.a.ep.Put(pattern(600, 1), p.b.mem.Addr(), p.a.key, nil)
	require.NoError(t, err)
	i := p.a.ep.Info()
	assert.Equal(t, []OperationInfo{{"put", 1}}, i.InFlight.Waiting)
	assert.Contains(t, i.String(), "waiting for a lane, credit or a fence: put 1\n")
	assert.Empty(t, i.Lanes)
	require.NoError(t, p.finish(put, nil))
	assert.Empty(t, p.a.ep.Info().InFlight.String())
}

// TestInfo_OfWorkerAndContext: Info of a worker and of a context have the right counts.
func TestInfo_OfWorkerAndContext(t *testing.T) {
	p := newPair(t, tlsets.Real("sm,tcp", "sm", "tcp"), Config{}).both().warm()
	l := p.a.listen(t, "tcp", "127.0.0.1:0", ListenConfig{})
	i := p.a.w.Info()
	require.Len(t, i.EPs, 1)
	assert.Nil(t, i.EPs[0].Transports)
	assert.Equal(t, []string{"tcp " + l.Addr().String()}, i.Listeners)
	assert.Contains(t, i.String(), "listens on tcp "+l.Addr().String()+"\n")
	open := map[string]bool{}
	for _, x := range i.Transports {
		open[x.Transport] = open[x.Transport] || x.Open
	}
	assert.Equal(t, map[string]bool{"sm": true, "tcp": true}, map[string]bool{"sm": open["sm"], "tcp": open["tcp"]})

	c := p.a.ctx.Info()
	assert.Equal(t, Version, c.Version)
	assert.Positive(t, c.Workers)
	assert.Positive(t, c.Memory)
	assert.Contains(t, c.Domains, "sm")
	require.NoError(t, p.a.ep.CloseWait(t.Context(), CloseForce))
	assert.Empty(t, p.a.w.Info().EPs)
}

// TestInfo_OfAFailedEP: Info has the reason of the failure.
func TestInfo_OfAFailedEP(t *testing.T) {
	dials := faketp.LikeSM()
	dials.Dials = true
	p, f := fakePair(t, Config{}, dials)
	p.connect()
	f.FailNext("dial fsm", ucs.ErrConnReset)
	require.Error(t, p.finish(p.a.ep.Put(pattern(600, 1), p.b.mem.Addr(), p.a.key, nil)))
	i := p.a.ep.Info()
	assert.Equal(t, "failed", i.State)
	assert.Contains(t, i.String(), "failed: "+i.Err+"\n")
	assert.ErrorContains(t, p.a.ep.Err(), i.Err)
}
