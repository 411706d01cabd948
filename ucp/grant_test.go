package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/wireup"
)

// TestGrant_Once: credit that is granted before the Progress to which a grant was postponed is not granted again. The lane of
// the first grant may have failed, and the next one may write to no socket.
func TestGrant_Once(t *testing.T) {
	p, _ := fakePair(t, faketp.LikeSM())
	r, err := p.w[1].TagRecv(make([]byte, 8), 1, 0, nil, nil)
	require.NoError(t, err)
	require.NoError(t, p.finish(p.ep.TagSend(1, make([]byte, 8), nil)))
	require.NoError(t, p.finish(r, nil))
	var m *messages
	for e := range p.w[1].eps.All() {
		m = e.msgs
	}
	p.until(func() bool { return m.e.lane(wireup.AM) != nil })
	sent := m.credits.sent
	m.credits.later = true // over a lane that has failed
	m.e.w.schedule(m.e)
	m.grantSoon()
	require.Equal(t, sent+1, m.credits.sent)
	p.w[1].Progress()
	require.Equal(t, sent+1, m.credits.sent)
}
