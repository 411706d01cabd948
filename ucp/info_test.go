package ucp_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucs"
)

// TestInfo_TextSurvivesJSON: after encoding to JSON and back, Info has the same text as Explain.
func TestInfo_TextSurvivesJSON(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Both().Warm()
		text, err := json.Marshal(p.A.EP.Info())
		require.NoError(t, err)
		var back ucp.EPInfo
		require.NoError(t, json.Unmarshal(text, &back))
		assert.Equal(t, p.A.EP.Explain(), back.String())

		require.NotEmpty(t, back.Lanes)
		assert.Equal(t, "open", back.State)
		assert.Equal(t, p.A.W.AddressInfo().UUID(), back.Worker)
		assert.Equal(t, p.B.W.AddressInfo().UUID(), back.Peer)
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
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("one EP has both sides")
		}
		p.Both().Warm()
		const n, size = 300, 100
		buf := make([]byte, size)
		for k := range n {
			send, err := p.A.EP.TagSend(7, testenv.Pattern(size, k), nil)
			require.NoError(t, err)
			if k < n-10 {
				require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 7, 0, nil, nil)))
			}
			require.NoError(t, p.Finish(send, nil))
		}
		waitUnexpected(p, 10)
		a, b := p.A.EP.Info().Credit, p.B.EP.Info().Credit
		require.NotNil(t, a)
		require.NotNil(t, b)
		assert.GreaterOrEqual(t, a.Sent, int64(n*window.MessageCharge))
		assert.LessOrEqual(t, a.Sent, int64(n*(size+window.MessageCharge)))
		assert.Equal(t, a.Sent, b.Received)
		assert.GreaterOrEqual(t, b.Held, int64(10*window.MessageCharge))
		assert.LessOrEqual(t, b.Held, int64(10*(size+window.MessageCharge)))
		assert.Equal(t, 10, p.B.W.Info().Unexpected)
	})
}

// TestInfo_InFlight: Info shows where operations wait, and only while they wait.
func TestInfo_InFlight(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like rc+ud", faketp.LikeRC(), faketp.LikeUD()), ucp.Config{}).Both()
	put, err := p.A.EP.Put(testenv.Pattern(600, 1), p.B.Mem.Addr(), p.A.Key, nil)
	require.NoError(t, err)
	i := p.A.EP.Info()
	assert.Equal(t, []ucp.OperationInfo{{"put", 1}}, i.InFlight.Waiting)
	assert.Contains(t, i.String(), "waiting for a lane, credit or a fence: put 1\n")
	assert.Empty(t, i.Lanes)
	require.NoError(t, p.Finish(put, nil))
	assert.Empty(t, p.A.EP.Info().InFlight.String())
}

// TestInfo_OfWorkerAndContext: Info of a worker and of a context have the right counts.
func TestInfo_OfWorkerAndContext(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm,tcp", "sm", "tcp"), ucp.Config{}).Both().Warm()
	l := listen(t, &p.A, "tcp", "127.0.0.1:0", ucp.ListenConfig{})
	i := p.A.W.Info()
	require.Len(t, i.EPs, 1)
	assert.Nil(t, i.EPs[0].Transports)
	assert.Equal(t, []string{"tcp " + l.Addr().String()}, i.Listeners)
	assert.Contains(t, i.String(), "listens on tcp "+l.Addr().String()+"\n")
	open := map[string]bool{}
	for _, x := range i.Transports {
		open[x.Transport] = open[x.Transport] || x.Open
	}
	assert.Equal(t, map[string]bool{"sm": true, "tcp": true}, map[string]bool{"sm": open["sm"], "tcp": open["tcp"]})

	c := p.A.Ctx.Info()
	assert.Equal(t, ucp.Version, c.Version)
	assert.Positive(t, c.Workers)
	assert.Positive(t, c.Memory)
	assert.Contains(t, c.Domains, "sm")
	require.NoError(t, p.A.EP.CloseWait(t.Context(), ucp.CloseForce))
	assert.Empty(t, p.A.W.Info().EPs)
}

// TestInfo_OfAFailedEP: Info has the reason of the failure.
func TestInfo_OfAFailedEP(t *testing.T) {
	dials := faketp.LikeSM()
	dials.Dials = true
	p, f := ucppair.Fake(t, ucp.Config{}, dials)
	p.Connect()
	f.FailNext("dial fsm", ucs.ErrConnReset)
	require.Error(t, p.Finish(p.A.EP.Put(testenv.Pattern(600, 1), p.B.Mem.Addr(), p.A.Key, nil)))
	i := p.A.EP.Info()
	assert.Equal(t, "failed", i.State)
	assert.Contains(t, i.String(), "failed: "+i.Err+"\n")
	assert.ErrorContains(t, p.A.EP.Err(), i.Err)
}
