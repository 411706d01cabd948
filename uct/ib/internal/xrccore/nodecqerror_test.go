package xrccore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

// TestCQError_CompletesOperationsOfNode: an error of the completion queue of an iface of a node fails all EPs of the
// iface. Operations that are posted, held back, or of closed EPs complete. Other ifaces of the domain continue.
func TestCQError_CompletesOperationsOfNode(t *testing.T) {
	for name, held := range map[string]bool{"posted": false, "held back": true} {
		t.Run(name, func(t *testing.T) {
			a, b := newHost(t, 2, shallow), newHost(t, 3, shallow)
			connectHosts(t, a, b)
			a.exchange(t, b, 0)
			b.exchange(t, a, 0)
			from := a.procs[0]
			in := from.eps[0].path.initiator
			until(t, func() bool { return in.head == in.tail }, a.all...)
			if held {
				in.holdBack()
			}
			from.overrun(t)
			from.checkOverrun(t)
			checkOtherIface(t, a, b)
		})
	}
}

// checkOverrun starts operations on three EPs after an overrun, and closes one EP before the error is detected. It
// checks that all operations complete.
func (p *proc) checkOverrun(t *testing.T) {
	t.Helper()
	var ended statusList
	qp := p.eps[0].path.initiator.qp
	for _, e := range p.eps {
		pending, err := e.AMZcopy(testAM, nil, p.iov(0, 16), ended.completionInReset(t, qp))
		require.NoError(t, err)
		require.True(t, pending)
		pending, err = e.Flush(ended.completionInReset(t, qp))
		require.NoError(t, err)
		require.True(t, pending)
	}
	require.NoError(t, p.eps[2].Close())
	until(t, func() bool { return len(ended) == 6 }, p.side)
	ended[:4].wantIOErr(t, 4)
	assert.Equal(t, statusList{ucs.StatusCanceled, ucs.StatusCanceled}, ended[4:], "operations of the closed EP")
	p.wantCQFailure(t, 2)
	for _, e := range p.eps {
		assert.Error(t, e.AMShort(testAM, 0, []byte{1}))
		require.NoError(t, e.Close())
	}
	assert.Zero(t, p.it.node.all.live, "the initiator is closed")
	assert.Len(t, ended, 6)
}

// checkOtherIface checks that the EPs of b to the first iface of a fail, and that messages to the second iface arrive.
func checkOtherIface(t *testing.T, a, b *host) {
	t.Helper()
	other := a.procs[1]
	had := len(other.got)
	for _, p := range b.procs {
		until(t, func() bool { return p.eps[0].AMShort(testAM, 0, []byte{1}) != nil && !p.eps[0].Ready() }, a.all...)
		push(t, a.all, func() error { return p.eps[1].AMShort(testAM, 0, []byte{7}) })
	}
	until(t, func() bool { return len(other.got) == had+3 }, a.all...)
	assert.Equal(t, []byte{7, 7, 7}, other.got[had:])
}
