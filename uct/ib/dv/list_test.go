package dv

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// TestList_OneDoorbell: the doorbell record and the register are written once for a list. The
// register gets the first 8 bytes of the last WQE.
func TestList_OneDoorbell(t *testing.T) {
	b := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
	e := newRawEP(b)
	r := e.sq.reg
	var comps compQueue
	require.NoError(t, comps.open(b.cq))
	comps.Wait(comps.Peek())
	require.True(t, comps.Idle())
	r.setPostlist(4, &comps.CompRing)
	put := func(n int) {
		for range n {
			require.NoError(t, e.PutShort(pattern(8), 0x1000, uct.RKey(7)))
		}
	}
	put(3)
	assert.Empty(t, b.hw.rings)
	assert.Zero(t, b.raw.DBRec.Send(), "the device sees nothing of the list")
	assert.False(t, comps.Idle())
	put(1)
	require.Len(t, b.hw.rings, 1)
	assert.EqualValues(t, 4, b.raw.DBRec.Send())
	assert.Equal(t, words(t, "00000308 00010003"), b.hw.rings[0].page[:8])
	assert.Equal(t, make([]byte, 56), b.hw.rings[0].page[8:64])

	put(6)
	require.Len(t, b.hw.rings, 2)
	assert.EqualValues(t, 8, b.raw.DBRec.Send())
	r.ring()
	require.Len(t, b.hw.rings, 3)
	assert.EqualValues(t, 10, b.raw.DBRec.Send())
	r.ring()
	assert.Len(t, b.hw.rings, 3, "once")

	put(1)
	r.beginBatch()
	put(1)
	r.endBatch()
	require.Len(t, b.hw.rings, 4, "earlier posts share the doorbell of the batch")
	put(1)
	assert.Len(t, b.hw.rings, 4, "still batching")
	r.removeQueue(&e.sq)
	r.ring()
	assert.Len(t, b.hw.rings, 4)
}

// listConfig has lists of 8 in a queue of 16.
var listConfig = RCConfig{Config: rc.Config{TxDepth: 16}, TxPostlist: 8}

// posts posts n puts of 8 bytes.
func (s *sender) posts(t testing.TB, n int) {
	for range n {
		if err := s.put.PutShort(make([]byte, 8), s.raddr, s.key); err != nil {
			t.Fatal(err)
		}
	}
}

// checkBusy returns an error unless arm is ErrBusy.
func checkBusy(arm error) error {
	if arm != uct.ErrBusy {
		return fmt.Errorf("arm: %v, not ErrBusy", arm)
	}
	return nil
}

// TestList_EachCallRings: each of these calls rings for posts outside Progress.
func TestList_EachCallRings(t *testing.T) {
	flush := func(pending bool, err error) error {
		if !pending {
			err = errors.Join(err, errors.New("nothing to wait for"))
		}
		return err
	}
	for name, ring := range map[string]func(s *sender) error{
		"progress":    func(s *sender) error { s.it.Progress(); return nil },
		"ep flush":    func(s *sender) error { return flush(s.ep.Flush(nil)) },
		"iface flush": func(s *sender) error { return flush(s.it.Flush(nil)) },
		"ep fence":    func(s *sender) error { return s.ep.Fence() },
		"iface fence": func(s *sender) error { return s.it.Fence() },
		"arm":         func(s *sender) error { return checkBusy(s.it.Ext().Wake.Arm(uct.EventSendComp)) },
		"ep close":    func(s *sender) error { return s.ep.Close() },
		"iface close": func(s *sender) error { return s.it.Close() },
		"full list":   func(s *sender) error { return s.put.PutShort(make([]byte, 8), s.raddr, s.key) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSender(t, softhca.FabricLoop, RCName, listConfig)
			q := &rcEPOf(s.ep).sq
			s.posts(t, 7)
			require.Equal(t, 7, q.batched)
			require.Zero(t, q.dbr.Send())
			require.NoError(t, ring(s))
			assert.Zero(t, q.batched)
		})
	}
}

// TestList_WatchIsNotIdle: a watch is not idle while posts are batched, because Progress must ring.
func TestList_WatchIsNotIdle(t *testing.T) {
	s := newSender(t, softhca.FabricLoop, RCName, &listConfig)
	w := s.it.Ext().Watch.Watch()
	for range 20 {
		s.posts(t, 1)
		require.False(t, w.Idle())
		s.flush(t)
		for s.it.Progress() != 0 {
		}
		require.True(t, w.Idle())
	}
}

// HandleAM posts a put.
func (s *sender) HandleAM([]byte, uct.Desc) bool {
	s.left++
	if s.put.PutShort(make([]byte, 8), s.raddr, s.key) != nil {
		s.left = -1 << 20
	}
	return false
}

// TestList_ProgressRingsForHandlers: posts of a handler do not wait for the next Progress.
func TestList_ProgressRingsForHandlers(t *testing.T) {
	s := newSender(t, softhca.FabricLoop, RCName, listConfig)
	require.NoError(t, s.it.SetAMHandler(1, s))
	for i := range 40 {
		require.NoError(t, s.back.Ops().AM.AMShort(1, 0, nil))
		s.far.Progress()
		for s.left <= i {
			s.it.Progress()
		}
		require.Equal(t, i+1, s.left)
		require.Zero(t, rcEPOf(s.ep).sq.batched)
		s.flush(t)
	}
}

// TestListUD_EachCallRings: each of these calls rings for posts to ud_mlx5 outside Progress.
func TestListUD_EachCallRings(t *testing.T) {
	for name, ring := range map[string]func(d *datagrams) error{
		"progress":  func(d *datagrams) error { d.it.Progress(); return nil },
		"flush":     func(d *datagrams) error { _, err := d.it.Flush(nil); return err },
		"arm":       func(d *datagrams) error { return d.it.Ext().Wake.Arm(uct.EventRecv) }, // Arm for EventRecv also rings for sends
		"close":     func(d *datagrams) error { return d.it.Close() },
		"full list": func(d *datagrams) error { return d.am.AMShort(1, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatagrams(t, softhca.FabricLoop, UDName, &UDConfig{TxPostlist: 8})
			q := &d.it.(udList).q.send
			d.it.Progress()
			before := q.dbr.Send()
			for range 7 {
				require.NoError(t, d.am.AMShort(1, 0, nil))
			}
			require.Equal(t, 7, q.batched)
			require.Equal(t, before, q.dbr.Send())
			require.NoError(t, ring(d))
			assert.Zero(t, q.batched)
			assert.NotEqual(t, before, q.dbr.Send())
		})
	}
}

// TestProgressUD_OneDoorbell: a Progress rings once at its end for all posts, here those of the
// handler.
func TestProgressUD_OneDoorbell(t *testing.T) {
	d := newDatagrams(t, softhca.FabricLoop, UDName, nil)
	d.send(t, 1)
	back, err := d.far.NewEP(uct.EPParams{DeviceAddr: d.it.Ext().Address.DeviceAddr(nil),
		IfaceAddr: d.it.Ext().Address.IfaceAddr(nil)})
	require.NoError(t, err)
	q := &d.far.(*udIface).q.send
	answers, most := 0, 0
	require.NoError(t, d.far.SetAMHandler(1, uct.AMHandlerFunc(func([]byte, uct.Desc) bool {
		require.NoError(t, back.Ops().AM.AMShort(2, 0, nil))
		answers++
		most = max(most, q.batched)
		return false
	})))
	const together = 5
	sent := 0
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { // the device may deliver them one by one
		for ; sent <= answers || sent%together != 0; sent++ {
			require.NoError(t, d.am.AMShort(1, 0, nil))
		}
		d.it.Progress()
		d.far.Progress()
		require.Zero(t, q.batched)
		return most == together
	})
}

func TestList_NoAllocs(t *testing.T) {
	s := newSender(t, softhca.FabricLoop, RCName, listConfig)
	buf, am := make([]byte, 8), s.ep.Ops().AM
	testenv.NoAllocs(t, "lists", func() {
		for range 11 {
			if s.put.PutShort(buf, s.raddr, s.key) != nil || am.AMShort(1, 0, buf) == uct.ErrEPFailed {
				t.Error("post failed")
			}
			for pending := true; pending && s.it.Progress() == 0; pending, _ = s.ep.Flush(nil) {
			}
		}
	})
}

func TestList_Config(t *testing.T) {
	for _, c := range []struct {
		set, depth, want int
		ok               bool
	}{
		{0, 16, 1, true}, {1, 16, 1, true}, {8, 16, 8, true}, {99, 16, 16, true},
		{maxPostlist, 0, 256, true}, {-1, 16, 0, false}, {maxPostlist + 1, 16, 0, false},
	} {
		md := openFabric(t, softhca.FabricLoop)
		it, err := md.OpenIface(uct.IfaceParams{Transport: RCName, Device: "dev:1",
			Config: RCConfig{Config: rc.Config{TxDepth: c.depth}, TxPostlist: c.set}})
		if !c.ok {
			assert.ErrorIs(t, err, uct.ErrInvalidParam)
			assert.ErrorContains(t, err, "TX_POSTLIST")
			continue
		}
		require.NoError(t, err)
		inner, lists := it.(listIface)
		assert.Equal(t, c.want > 1, lists, "an iface without lists has the type without checks")
		if lists {
			assert.Equal(t, c.want, inner.postlist)
		}
		assert.NoError(t, it.Close())
	}
	var c RCConfig
	require.NoError(t, config.FromEnv([]string{"GUCX_X_TX_POSTLIST=32", "GUCX_X_TX_QUEUE_LEN=64"},
		config.Table{Prefix: "X", Config: &c}))
	assert.Equal(t, []int{32, 64}, []int{c.TxPostlist, c.TxDepth})
	assert.Error(t, config.FromEnv([]string{"GUCX_X_TX_POSTLIST=-2"}, config.Table{Prefix: "X", Config: &c}))
	var datagrams UDConfig
	require.NoError(t, config.FromEnv([]string{"GUCX_X_TX_POSTLIST=32", "GUCX_X_WINDOW=64"},
		config.Table{Prefix: "X", Config: &datagrams}))
	assert.Equal(t, []int{32, 64}, []int{datagrams.TxPostlist, datagrams.Window})
	assert.Error(t, config.FromEnv([]string{"GUCX_X_TX_POSTLIST=-2"}, config.Table{Prefix: "X", Config: &datagrams}))
}
