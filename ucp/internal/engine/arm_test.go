package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// TestArm: Arm returns ErrBusy while Progress has work, and once after each signal.
func TestArm(t *testing.T) {
	f := newEventFake(t, 0)
	r := newRig(t, f)
	fd, err := r.EventFD()
	require.NoError(t, err)
	again, err := r.EventFD()
	require.NoError(t, err)
	assert.Equal(t, fd, again)
	r.ifaces[0].Retain()
	r.Progress()
	require.NoError(t, r.Arm())
	require.False(t, testenv.Readable(t, fd, 0))

	raise(t, f.event)
	assert.True(t, testenv.Readable(t, fd, 0), "the event of a transport")
	_, err = unix.Read(f.event, make([]byte, 8))
	require.NoError(t, err)

	r.Signal()
	assert.True(t, testenv.Readable(t, fd, 0), "a signal")
	assert.Equal(t, uct.ErrBusy, r.Arm(), "the caller may have looked before the signal")
	assert.False(t, testenv.Readable(t, fd, 0))
	assert.NoError(t, r.Arm())

	r.Raise()
	assert.Equal(t, uct.ErrBusy, r.Arm(), "deferred work")
	r.Progress()
	f.armErr = uct.ErrBusy
	assert.Equal(t, uct.ErrBusy, r.Arm(), "an event that has happened")
	f.armErr = errors.New("no descriptors")
	assert.ErrorIs(t, r.Arm(), f.armErr)
	f.armErr = nil
	polls := f.polls
	assert.NoError(t, r.Arm())
	assert.Equal(t, polls, f.polls, "no progress")
}

// TestArm_NoEvents: an iface without events prevents arming only while it is polled.
func TestArm_NoEvents(t *testing.T) {
	f := newFake(0)
	f.ext = uct.IfaceExt{}
	f.attr.Resource = uct.Resource{Transport: "dumb", Device: "dumb0"}
	r := newRig(t, f)
	require.Equal(t, uct.ErrBusy, r.Arm(), "the first time: a signal may have come before")
	r.Progress()
	require.NoError(t, r.Arm())
	r.ifaces[0].Retain()
	err := r.Arm()
	assert.ErrorIs(t, err, ucs.ErrUnsupported)
	assert.ErrorContains(t, err, "dumb dumb0 has no events")
}

// TestArm_ReadsDescriptorsOfUnusedIfaces: the event of an iface without endpoints, which is not armed, ends only one
// wait.
func TestArm_ReadsDescriptorsOfUnusedIfaces(t *testing.T) {
	s := &stirred{event: newEvent(t)}
	r := &rig{}
	r.Init(&r.owner, 1, false)
	r.Add(&Iface{}, s)
	r.Start()
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	fd, err := r.EventFD()
	require.NoError(t, err)
	require.NoError(t, r.Arm())
	raise(t, s.event)
	assert.True(t, testenv.Readable(t, fd, 0))
	assert.Equal(t, uct.ErrBusy, r.Arm())
	r.Progress()
	assert.False(t, testenv.Readable(t, fd, 0), "Progress polls the iface")
	assert.NoError(t, r.Arm())
}

// armReads is a transport without endpoints whose descriptor only Arm reads.
type armReads struct{ stirred }

func (s *armReads) Ext() *uct.IfaceExt { return &uct.IfaceExt{Wake: s} }
func (s *armReads) Progress() int      { return s.counted.Progress() }
func (s *armReads) Arm(uct.Events) error {
	if _, err := unix.Read(s.event, make([]byte, 8)); err == nil {
		return uct.ErrBusy
	}
	return nil
}

// TestArm_IfaceThatReadsInArm: after the event of a resting iface whose descriptor only its Arm reads, Arm fails once.
func TestArm_IfaceThatReadsInArm(t *testing.T) {
	s := &armReads{stirred{event: newEvent(t)}}
	r := &rig{}
	r.Init(&r.owner, 1, false)
	r.Add(&Iface{}, s)
	r.Start()
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	_, err := r.EventFD()
	require.NoError(t, err)
	require.NoError(t, r.Arm())
	raise(t, s.event)
	for n := 0; r.Arm() != nil; n++ {
		require.Less(t, n, 5)
		r.Progress()
	}
}
