package xrcdomain

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs"
)

// Key identifies a domain for initiators that are not members.
type Key struct{ Dev, Ino uint64 }

// Hold returns the key of the domain of the inode of fd, and a descriptor that prevents reuse of the
// inode. The caller must close it when it no longer uses the key. Errors as Join.
func Hold(fd int) (key Key, held int, err error) {
	id, err := identify(fd)
	if err == nil {
		held, err = reopen(fd, unix.O_PATH)
	}
	if err != nil {
		return Key{}, -1, failed("identify", id, err)
	}
	return Key{id.dev, id.ino}, held, nil
}

// Member is a device in a domain.
type Member struct {
	GID [16]byte
	PID int
	// Joins distinguishes the member from earlier ones at its place.
	Joins uint32
}

// View reads a directory. Methods may be called by any goroutine until Close.
type View struct {
	id    inode
	dir   directory
	lock  locks
	place int // of the member that reads; -1: it is not a member
}

// Open maps the directory of a domain without joining it. ucs.ErrUnreachable if the domain has no
// member; ucs.ErrTimedOut if all members are stopped. Open blocks while they do not reply.
func Open(key Key) (*View, error) {
	id := inode{key.Dev, key.Ino}
	v := &View{id: id, place: -1}
	fd, err := fetch(id)
	if err == nil && fd < 0 {
		err = fmt.Errorf("%w: no member of this user", ucs.ErrUnreachable)
	}
	if err == nil {
		v.dir, v.lock, err = mapDirectory(fd, id, memfd.ReadOnly)
	}
	if err != nil {
		return nil, failed("open", id, err)
	}
	return v, nil
}

// Key returns the key of the domain.
func (v *View) Key() Key { return Key{v.id.dev, v.id.ino} }

// Close unmaps the directory. Idempotent.
func (v *View) Close() error {
	if v.lock.fd < 0 {
		return nil
	}
	err := errors.Join(os.NewSyscallError("close", unix.Close(v.lock.fd)), v.dir.seg.Close())
	v.lock.fd = -1
	return err
}

// alive reports whether there is a member at a place, which is in range. F_OFD_GETLK does not report
// the lock of the member itself.
func (v *View) alive(place int) bool { return place == v.place || v.lock.alive(place) }

// memberAt returns the member at a place; false if it is dead or has left.
func (v *View) memberAt(place int) (Member, bool) {
	if !v.alive(place) {
		return Member{}, false
	}
	m := v.dir.member(place)
	return Member{GID: gidOf([2]uint64{m.gid[0].Load(), m.gid[1].Load()}), PID: int(m.pid.Load()),
		Joins: m.joins.Load()}, true
}

// Joins returns Member.Joins of a place, which is below MaxPlaces: one load.
func (v *View) Joins(place int) uint32 { return v.dir.member(place).joins.Load() }

// HasMember reports whether the device with a GID is a member. After all members have left, a
// later domain with the same key has another directory.
func (v *View) HasMember(gid [16]byte) bool {
	w := words(gid)
	for place := range maxMembers {
		m := v.dir.member(place)
		if m.gid[0].Load() == w[0] && m.gid[1].Load() == w[1] && v.alive(place) {
			return true
		}
	}
	return false
}

// Domain is the membership of a device. Methods may be called by any goroutine until
// Close. Those that change the directory wait for each other, and up to lockTimeout for
// another member that changes it; then they return ucs.ErrTimedOut and change nothing.
// The methods of View, and RemoveSRQ, do not wait.
type Domain struct {
	View
	server *server
	called func()

	mu     sync.Mutex // acquired before the lock for changes, which does not exclude goroutines of one process
	opened map[uint32]int
	closed bool
}

// Join makes the device with this GID a member of the domain of the inode of fd, a file or a
// directory. The caller still owns fd. flags: O_CREAT creates the domain if it has no member;
// O_CREAT|O_EXCL requires that it has none. Join blocks while another process joins, and while no
// member replies.
//
// called runs on a goroutine of the domain, for each Call to this member, and possibly at other
// times, until Close has returned.
//
// Errors, within a *ucs.OpError: ucs.ErrInvalidParam (fd is neither), unix.EAGAIN (no member,
// without O_CREAT), unix.EEXIST (members, with O_EXCL), ucs.ErrTimedOut (a process that
// joins, or all members, are stopped), ucs.ErrNoMemory (all places are taken), system calls.
func Join(fd, flags int, gid [16]byte, called func()) (*Domain, error) {
	id, err := identify(fd)
	if err != nil {
		return nil, failed("join", id, err)
	}
	d := &Domain{View: View{id: id, place: -1}, opened: map[uint32]int{}, called: called}
	if err := d.join(fd, flags, gid); err != nil {
		return nil, failed("join", id, err)
	}
	return d, nil
}

func failed(op string, id inode, err error) error {
	return &ucs.OpError{TL: "xrcd", Dev: fmt.Sprintf("%x:%x", id.dev, id.ino), Op: op, Err: err}
}

func (d *Domain) join(fd, flags int, gid [16]byte) (err error) {
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Run())
		}
	}()
	gate, err := reopen(fd, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(gate) }()
	if err := lockInode(gate); err != nil {
		return err
	}
	if err := d.open(flags); err != nil {
		return err
	}
	undo.Add(d.View.Close)
	return d.enter(gid)
}

// open gets the directory from a member, or creates one.
func (d *Domain) open(flags int) error {
	const exclusive = unix.O_CREAT | unix.O_EXCL
	fd, err := fetch(d.id)
	switch {
	case err != nil:
		return err
	case fd < 0 && flags&unix.O_CREAT == 0:
		return unix.EAGAIN
	case fd >= 0 && flags&exclusive == exclusive:
		return errors.Join(unix.EEXIST, unix.Close(fd))
	case fd < 0:
		d.dir, d.lock, err = create(d.id)
	default:
		d.dir, d.lock, err = mapDirectory(fd, d.id, memfd.ReadWrite)
	}
	return err
}

// enter reserves a free place. The lock for joining is held.
func (d *Domain) enter(gid [16]byte) error {
	for place := range maxMembers {
		if !d.lock.lockPlace(place) {
			continue
		}
		s, err := serve(d.id, place, d.lock.fd, d.called)
		if errors.Is(err, unix.EADDRINUSE) {
			d.lock.unlockPlace(place)
			continue // another user has the socket address
		}
		if err != nil {
			return err
		}
		d.place, d.server = place, s
		return d.publish(gid)
	}
	return fmt.Errorf("%w: %d members", ucs.ErrNoMemory, maxMembers)
}

// publish clears the entries of an earlier member at the place, and publishes this member.
func (d *Domain) publish(gid [16]byte) error {
	err := d.change(func() error {
		d.clearPlace(d.place, srqDied)
		m, w := d.dir.member(d.place), words(gid)
		m.joins.Add(1)
		m.pid.Store(uint32(os.Getpid()))
		m.gid[0].Store(w[0])
		m.gid[1].Store(w[1])
		return nil
	})
	if err != nil {
		err = errors.Join(err, d.server.close())
	}
	return err
}

// change runs f under the lock for changes. ucs.ErrClosed after Close.
func (d *Domain) change(f func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ucs.ErrClosed
	}
	if err := d.lock.lockChanges(); err != nil {
		return err
	}
	defer d.lock.unlockChanges()
	return f()
}

// clearPlace removes the entries of the member at a place; its SRQ numbers get the value free. The
// lock for changes is held.
func (d *Domain) clearPlace(place int, free srqWord) {
	d.clearSRQs(place, free)
	for i := range d.dir.qpsEnd() {
		d.drop(d.dir.qp(i), place)
	}
}

// Close leaves the domain: it removes the SRQ numbers of the member, and the target QPs to which no
// other member refers. Idempotent.
func (d *Domain) Close() error {
	err := d.change(func() error {
		d.clearPlace(d.place, 0)
		return nil
	})
	if errors.Is(err, ucs.ErrClosed) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	// If the change has timed out, the entries remain, like those of a dead member.
	return errors.Join(d.server.close(), d.View.Close())
}
