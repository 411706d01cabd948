package ucp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
)

// leavingSource is a Packer that closes the EP of its message when it packs the bytes at a given offset.
type leavingSource struct {
	source
	at    int
	leave func()
}

func (s *leavingSource) PackAt(off int, dst []byte) int {
	if s.leave != nil && off >= s.at {
		leave := s.leave
		s.leave = nil
		leave()
	}
	return s.source.PackAt(off, dst)
}

// TestTag_PackerCloses: a Packer may close the EP of its message, while the transport calls it. With CloseFlush the
// message arrives completely; with CloseForce it arrives completely or not at all.
func TestTag_PackerCloses(t *testing.T) {
	for _, set := range []tlsets.Set{faketp.Set("like sm", faketp.LikeSM()), tlsets.Real("sm", "sm"), tlsets.Real("tcp", "tcp"), tlsets.Real("rc", "rc"), tlsets.Real("ud", "ud")} {
		for _, thresh := range []config.MemSize{config.MemInf, 1} {
			for _, at := range []int{0, 30_000} {
				for _, mode := range []ucp.CloseMode{ucp.CloseFlush, ucp.CloseForce} {
					t.Run(fmt.Sprintf("%s/%s/%d/%d", set.Name, thresh, at, mode), func(t *testing.T) {
						packerCloses(t, ucppair.New(t, set, ucp.Config{RndvThresh: thresh}).Connect(), at, mode, false)
						if mode == ucp.CloseFlush {
							packerCloses(t, ucppair.New(t, set, ucp.Config{RndvThresh: thresh}).Connect(), at, mode, true)
						}
					})
				}
			}
		}
	}
}

// packerCloses closes a's EP while the bytes at an offset are packed. With two modes the second Close follows at once.
func packerCloses(t *testing.T, p *ucppair.Pair, at int, mode ucp.CloseMode, twice bool) {
	to, data := &drain{t: t, most: 60_000}, testenv.Pattern(60_000, 1)
	recv, err := p.B.W.TagRecvData(ucp.To(to), 1, exact, nil, nil)
	require.NoError(t, err)
	var closing, again *ucp.Request
	from := &leavingSource{source: source{data: data}, at: at}
	from.leave = func() {
		closing, err = p.A.EP.Close(mode)
		require.NoError(t, err)
		_, err = p.A.EP.Close(ucp.CloseFlush)
		require.ErrorIs(t, err, ucs.ErrClosed)
		_, err = p.A.EP.TagSend(2, nil, nil)
		require.ErrorIs(t, err, ucs.ErrClosed)
		if twice {
			again, err = p.A.EP.Close(ucp.CloseForce)
			require.NoError(t, err)
		}
		if twice || mode == ucp.CloseForce {
			_, err = p.A.EP.Close(ucp.CloseForce)
			require.ErrorIs(t, err, ucs.ErrClosed)
		}
	}
	send, err := p.A.EP.TagSendData(1, ucp.From(from), nil)
	require.NoError(t, err)
	p.Until(func() bool { return from.leave == nil })
	require.NoError(t, p.Finish(closing, nil))
	require.NoError(t, p.Finish(again, nil))
	p.Until(send.Done)
	err = p.Finish(send, nil)
	if mode == ucp.CloseFlush && !twice {
		require.NoError(t, err)
		require.NoError(t, p.Finish(recv, nil))
		testenv.RequireBytes(t, data, to.data)
		return
	}
	idle(p)
	recv.Cancel()
	_ = p.Finish(recv, nil)
	assert.Equal(t, 1, to.finished)
	testenv.RequireBytes(t, data[:len(to.data)], to.data)
}
